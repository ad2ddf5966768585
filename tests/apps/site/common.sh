# Two hosts, n1 and n2, on this machine: each with a name of its own, both at the loopback's
# address. Runs as root in a mount namespace of its own. SCRATCH is a directory that everybody may
# pass, SHIPPED has what a site installs, PROGRAM is mayfly.
set -eu
mount --make-rprivate /
printf '127.0.0.1 localhost n1 n2\n' > "$SCRATCH/hosts"
mount --bind "$SCRATCH/hosts" /etc/hosts
export MAYFLY_PROGRAM=$PROGRAM MAYFLY_SITE=$SCRATCH/site.toml
unset XDG_RUNTIME_DIR
"$PROGRAM" site key "$SCRATCH/site.key"
cat > "$MAYFLY_SITE" <<CONFIG
run = "$SCRATCH/%n-run"
data = "$SCRATCH/%n-data"
key = "$SCRATCH/site.key"
ports = "17500-17599"
CONFIG
mkdir -p "$SCRATCH/case" "$SCRATCH/out" "$SCRATCH/bin"
echo content > "$SCRATCH/case/input"
chown 65534:65534 "$SCRATCH/out"
ASKED="capacity=100M stage_in=$SCRATCH/case:case stage_out=results:$SCRATCH/out/results"

# In a shell that the library serves from its start: other users may not mount here.
WORK='cd "$MAYFLY_MOUNT" && mkdir results && cat case/input > results/file
	echo "$("$PROGRAM" status --json | grep -c \"address\") nodes"'
export WORK

# on HOST COMMAND...: as root of that host.
on() {
	unshare --uts sh -c 'hostname "$0" && exec "$@"' "$@"
}

# job NAME=VALUE...: what the job's script does on its first host, with what its batch system sets.
job() {
	on n1 setpriv --reuid=65534 --regid=65534 --clear-groups env TMPDIR=/tmp "$@" sh -c '
		eval "$("$PROGRAM" env)"; exec sh -c "$WORK"'
}

# What a job has left, and what it has brought out.
expect_all_gone() {
	grep -q content "$SCRATCH/out/results/file"
	rm -r "$SCRATCH/out/results"
	left=$(find "$SCRATCH"/n?-run "$SCRATCH"/n?-data -mindepth 1 | head)
	[ -z "$left" ] || { echo "left: $left"; exit 1; }
	! pgrep -f "$SCRATCH/n[12]-run" || exit 1
}

# A program for the scripts' path.
stand_in() {
	cat > "$SCRATCH/bin/$1"
	chmod 755 "$SCRATCH/bin/$1"
}
