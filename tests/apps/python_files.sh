# Program 3: Python's ways of making, walking, copying and removing files.
set -eu
cd "$APP_DIR"
exec python3 "$(dirname "$0")/python_files.py"
