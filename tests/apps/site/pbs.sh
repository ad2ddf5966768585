# PBS: execjob_begin on the first host before the others, execjob_prologue when all had theirs.
. "$(dirname "$0")/common.sh"
mkdir "$SCRATCH/lib"
cp "$(dirname "$0")/pbs.py" "$SCRATCH/lib/pbs.py"
export PYTHONPATH=$SCRATCH/lib PYTHONDONTWRITEBYTECODE=1
hook() { on "$1" env EVENT="$2" HOST="$1.site" python3 "$SHIPPED/pbs/mayfly.py"; }

echo "$ASKED" > "$SCRATCH/wanted"
hook n1 begin; hook n2 begin; hook n1 prologue; hook n2 prologue
job 'PBS_JOBID=12[3].server' PBS_NODEFILE=/none
for host in n1 n2; do hook $host end & done
wait
expect_all_gone

echo 'capacity=much' > "$SCRATCH/wanted"
hook n1 begin; hook n2 begin
hook n1 prologue > "$SCRATCH/said" || true
echo "refused with $(head -n 1 "$SCRATCH/said")"; grep -c capacity "$SCRATCH/said"
hook n1 end; hook n2 end
rm "$SCRATCH/wanted"
hook n1 begin && ls "$SCRATCH/n1-run"
