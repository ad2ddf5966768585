#!/bin/sh
# Mayfly for jobs of LSF. In lsb.queues, or in an application of lsb.applications:
#   HOST_PRE_EXEC  = /usr/share/mayfly/lsf/mayfly.sh ready
#   PRE_EXEC       = /usr/share/mayfly/lsf/mayfly.sh start
#   POST_EXEC      = /usr/share/mayfly/lsf/mayfly.sh end
#   HOST_POST_EXEC = /usr/share/mayfly/lsf/mayfly.sh end
# and in lsf.sudoers LSB_PRE_POST_EXEC_USER=root. A job asks by the variable MAYFLY, which is empty
# or holds options:
#   MAYFLY='capacity=100G stage_in=/scratch/me/case:case' bsub -nnodes 4 ./job.sh
program=/usr/bin/mayfly
config=/etc/mayfly/site.toml
# What makes bjobs known.
lsf=/etc/profile.d/lsf.sh

[ -n "${MAYFLY+set}" ] && [ -n "${LSB_JOBID:-}" ] || exit 0
if [ "${2:-}" != alone ]; then
	# The environment is the user's, and this is root: nothing of it is used but a few words.
	exec /usr/bin/env -i PATH=/usr/bin:/bin:/usr/sbin:/sbin MAYFLY="$MAYFLY" \
		LSB_JOBID="$LSB_JOBID" LSB_JOBINDEX="${LSB_JOBINDEX:-0}" LSB_HOSTS="${LSB_HOSTS:-}" \
		LSB_MCPU_HOSTS="${LSB_MCPU_HOSTS:-}" "$0" "${1:-}" alone
fi
[ -r "$lsf" ] && . "$lsf"

id=$LSB_JOBID
[ "$LSB_JOBINDEX" = 0 ] || id=$id-$LSB_JOBINDEX
# Hosts and their numbers of slots by turns; or each host once for each slot.
hosts=$(echo "$LSB_MCPU_HOSTS" | awk '{ for (i = 1; i < NF; i += 2) print $i }')
[ -n "$hosts" ] || hosts=$(echo "$LSB_HOSTS" | tr ' ' '\n' | awk '!seen[$0]++')
# What LSF calls this host may be longer or shorter than what it calls itself.
short=$(hostname) && short=${short%%.*}
node=$(echo "$hosts" | awk -F. -v short="$short" '$1 == short { print; exit }')
user=$(bjobs -noheader -o user "$LSB_JOBID" | head -n 1) || exit 1
uid=$(id -u "$user") || exit 1

site() {
	MAYFLY_JOB_ID=$id MAYFLY_JOB_UID=$uid MAYFLY_JOB_NODE=${node:-$short} \
		MAYFLY_JOB_NODELIST=$(echo "$hosts" | paste -sd, -) MAYFLY_JOB_COMMENT="mayfly $MAYFLY" \
		"$program" site "$@" --config "$config"
}

case $1 in
ready | start)
	# 99: the job ends, where any other status would have it tried again and again.
	site prolog --only "$1" || exit 99
	;;
end) site epilog ;;
*)
	echo "usage: $0 ready|start|end" >&2
	exit 2
	;;
esac
