# Programs in namespaces of their own, as containers start them: files of before are there, what is
# made in there is there afterwards, locks and offsets are shared across.
set -eu
echo before > file
mkdir directory
program='
    cat file
    echo "$1" >> log
    cd directory
    mkdir new && echo text > new/file && mv new/file "moved $1" && rmdir new
    cd ..
    python3 -c "
import fcntl, os, sys
with open(\"file\") as file:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        print(\"not locked\")
    except BlockingIOError:
        print(\"locked outside\")
print(sorted(os.listdir(\"directory\")))
"
    echo "inherited $1" >&3'
exec 3> inherited 4< file
flock -x 4
for kind in --user '--user --map-root-user' --mount --pid --ipc --uts --net --cgroup --time \
    '--pid --mount-proc' '--mount --pid --ipc --uts --net --cgroup --time'; do
    case $kind in *--user* | '') ;; *) kind="--user --map-root-user $kind" ;; esac
    echo "== $kind"
    # shellcheck disable=SC2086
    unshare $kind --fork sh -ec "$program" sh "$kind"
done
flock -u 4
cat log inherited directory/moved*
# Somebody goes into the namespaces of another one.
mkfifo go
program='hostname inner; touch ready; read -r _ < go'
unshare --user --map-root-user --uts --fork sh -ec "$program" &
while [ ! -e ready ]; do sleep 0.01; done
target=$(pgrep -P $!)
nsenter --user --uts --preserve-credentials --target "$target" \
    sh -ec 'hostname > name; cat file name'
echo > go
wait
ls -A
