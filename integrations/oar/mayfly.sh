#!/bin/sh
# Mayfly for jobs of OAR. /etc/oar/prologue and /etc/oar/epilogue, which OAR runs on the first node
# of a job as the user oar, hand on their arguments:
#   exec /usr/share/mayfly/oar/mayfly.sh prologue "$@"
#   exec /usr/share/mayfly/oar/mayfly.sh epilogue "$@"
# A job asks by its name:
#   oarsub -n 'mayfly capacity=100G stage_in=/scratch/me/case:case' -l nodes=4 ./job.sh
# The other nodes are reached by ssh, as OAR's own examples do; on each, oar may run
# `sudo /usr/share/mayfly/oar/mayfly.sh node …`, which is what root does of it.
program=${MAYFLY_PROGRAM:-/usr/bin/mayfly}
config=${MAYFLY_SITE:-/etc/mayfly/site.toml}

if [ "${1:-}" = node ]; then
	# node HALF JOB USER HOST HOSTS COMMENT
	uid=$(id -u "$4") || exit 1
	export MAYFLY_JOB_ID="$3" MAYFLY_JOB_UID="$uid" MAYFLY_JOB_NODE="$5"
	export MAYFLY_JOB_NODELIST="$6" MAYFLY_JOB_COMMENT="$7"
	case $2 in
	end) exec "$program" site epilog --config "$config" ;;
	*) exec "$program" site prolog --only "$2" --config "$config" ;;
	esac
fi

what=${1:-} job=${2:?OAR names no job} user=${3:?OAR names no user} file=${4:?OAR names no nodes}
name=$(oarstat -fj "$job" | sed -n 's/^ *name = //p' | head -n 1)
case $name in mayfly | 'mayfly '*) ;; *) exit 0 ;; esac
nodes=$(uniq "$file" | awk '!seen[$0]++')
hosts=$(echo "$nodes" | paste -sd, -)

quoted() { printf "'%s'" "$(printf %s "$1" | sed "s/'/'\\\\''/g")"; }

on_all() {
	failed=0
	# Each in a process of its own: an epilog waits for the first node's.
	for node in $nodes; do
		on "$node" "$1" &
		running="${running:-} $!"
	done
	for pid in $running; do wait "$pid" || failed=1; done
	running=
	return $failed
}

on() {
	ssh "$1" "sudo $(quoted "$0") node $2 $(quoted "$job") $(quoted "$user") $(quoted "$1") \
		$(quoted "$hosts") $(quoted "$name")"
}

case $what in
prologue) on_all ready && on "$(echo "$nodes" | head -n 1)" start ;;
epilogue) on_all end ;;
*)
	echo "usage: $0 prologue|epilogue JOB USER FILE" >&2
	exit 2
	;;
esac
