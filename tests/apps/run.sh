# Runs one program of the suite in $MAYFLY_MOUNT and then packs what it left there.
#
#   bash run.sh SCRIPT ARCHIVE
#
# The same command runs natively and in a mount: MAYFLY_MOUNT is then an ordinary directory. The
# archive is written outside, by a process inside: it is how the tree looks to a program. The script
# finds its directory in APP_DIR. With APP_ROUNDS it runs that often, each time in a directory of
# its own. Exits with its status.
script=$1
archive=$2
rounds=${APP_ROUNDS:-1}

status=0
for round in $(seq "$rounds"); do
    export APP_DIR=$MAYFLY_MOUNT
    if [ "$rounds" -gt 1 ]; then
        APP_DIR=$MAYFLY_MOUNT/round$round
        mkdir "$APP_DIR" || exit 120
    fi
    cd "$APP_DIR" || exit 120
    bash "$script" || status=$?
done
tar --sort=name -cf "$archive" -C "$MAYFLY_MOUNT" . || exit 121
exit "$status"
