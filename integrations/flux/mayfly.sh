#!/bin/sh
# Mayfly for jobs of Flux. Scripts of one line, which Flux runs as root on each node of a job
# (perilog.so with per-rank = true), call it:
#   /etc/flux/system/prolog.d/mayfly: exec /usr/share/mayfly/flux/mayfly.sh prolog
#   /etc/flux/system/epilog.d/mayfly: exec /usr/share/mayfly/flux/mayfly.sh epilog
# A job asks by an attribute, whose value is options or "":
#   flux batch --setattr=system.mayfly='capacity=100G stage_in=/scratch/me/case:case' -N4 job.sh
# Root has to have the rights of the instance's owner ([access] allow-root-owner).
: "${FLUX_JOB_ID:?this is run by Flux}" "${FLUX_JOB_USERID:?this is run by Flux}"

# As in the environment of the job's own programs.
id=$(flux job id --to=f58plain "$FLUX_JOB_ID") || exit 1
wanted=$(flux job info "$FLUX_JOB_ID" jobspec | python3 -c '
import json, sys
system = json.load(sys.stdin).get("attributes", {}).get("system", {})
if "mayfly" in system:
    options = system["mayfly"]
    print("mayfly", options if isinstance(options, str) else "")
') || exit 1
[ -n "$wanted" ] || exit 0

site() {
	MAYFLY_JOB_ID=${id#f} MAYFLY_JOB_UID=$FLUX_JOB_USERID MAYFLY_JOB_COMMENT=$wanted \
		MAYFLY_JOB_NODELIST=$(flux jobs -no '{nodelist}' "$FLUX_JOB_ID") \
		MAYFLY_JOB_NODE=$(hostname) \
		"${MAYFLY_PROGRAM:-/usr/bin/mayfly}" site "$@" --config "${MAYFLY_SITE:-/etc/mayfly/site.toml}"
}

case ${1:-} in
prolog)
	# A prolog that fails drains its node: the job is ended instead, and told why.
	why=$(site prolog 2>&1) || flux job raise --severity=0 --type=mayfly "$FLUX_JOB_ID" "$why"
	;;
epilog) site epilog ;;
*)
	echo "usage: $0 prolog|epilog" >&2
	exit 2
	;;
esac
