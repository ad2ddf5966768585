# Flux: the prolog on all hosts at the same time.
. "$(dirname "$0")/common.sh"
stand_in flux <<'P'
#!/bin/sh
case "$*" in
'job id --to=f58plain '*) echo f2Xyz ;;
'job info 17 jobspec') cat "$SCRATCH/jobspec" ;;
"jobs -no {nodelist} 17") echo 'n[1-2]' ;;
'job raise '*) echo "$@" >> "$SCRATCH/raised" ;;
*) echo "flux $*: what is that?" >&2; exit 1 ;;
esac
P
PATH=$SCRATCH/bin:$PATH
export FLUX_JOB_ID=17 FLUX_JOB_USERID=65534
mayfly() { on "$1" "$SHIPPED/flux/mayfly.sh" "$2"; }

cat > "$SCRATCH/jobspec" <<J
{"version": 1, "attributes": {"system": {"duration": 60, "mayfly": "$ASKED"}}}
J
for host in n1 n2; do mayfly $host prolog & done
wait
job FLUX_JOB_ID=ƒ2Xyz FLUX_URI=local:///none
for host in n1 n2; do mayfly $host epilog & done
wait
expect_all_gone

echo '{"attributes": {"system": {"mayfly": "capacity=much"}}}' > "$SCRATCH/jobspec"
for host in n1 n2; do mayfly $host prolog & done
wait
echo "refused with $(cut -d ' ' -f 1-4 "$SCRATCH/raised")"; grep -c capacity "$SCRATCH/raised"
for host in n1 n2; do mayfly $host epilog; done
echo '{"attributes": {"system": {"duration": 60}}}' > "$SCRATCH/jobspec"
mayfly n1 prolog && ls "$SCRATCH/n1-run"
