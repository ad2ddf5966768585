# Runs one row in $MAYFLY_MOUNT, natively an ordinary directory: bash run.sh PYTHON COMMAND
# ARGUMENT... Scripts find that directory in APP_DIR, the sources beside them in ROW_SOURCES, and in
# ROW_PYTHON a Python that has the modules they asked for.
export APP_DIR=$MAYFLY_MOUNT ROW_PYTHON=$1
shift
cd "$APP_DIR" || exit 120
exec "$@"
