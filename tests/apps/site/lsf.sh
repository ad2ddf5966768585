# LSF: host-based commands on all hosts, then the job-based one on the first; backwards at the end.
. "$(dirname "$0")/common.sh"
mkdir "$SCRATCH/lsf"
sed -e "s,^program=.*,program=$PROGRAM," -e "s,^config=.*,config=$MAYFLY_SITE," \
	-e "s,^lsf=.*,lsf=$SCRATCH/profile," "$SHIPPED/lsf/mayfly.sh" > "$SCRATCH/lsf/mayfly.sh"
chmod 755 "$SCRATCH/lsf/mayfly.sh"
stand_in bjobs <<'P'
#!/bin/sh
[ "$*" = "-noheader -o user 71" ] && echo nobody
P
echo "PATH=$SCRATCH/bin:\$PATH" > "$SCRATCH/profile"
export LSB_JOBID=71 LSB_JOBINDEX=2 LSB_MCPU_HOSTS='n1 4 n2 4' LSFUSER=root

MAYFLY=$ASKED; export MAYFLY
# What a user may have put there is not root's.
LD_PRELOAD=$SCRATCH/none.so; export LD_PRELOAD
{ for host in n1 n2; do on $host "$SCRATCH/lsf/mayfly.sh" ready; done
on n1 "$SCRATCH/lsf/mayfly.sh" start; } 2> "$SCRATCH/said"
unset LD_PRELOAD
job LSB_JOBID=71 LSB_JOBINDEX=2 LSB_MCPU_HOSTS="$LSB_MCPU_HOSTS"
on n1 "$SCRATCH/lsf/mayfly.sh" end
for host in n1 n2; do on $host "$SCRATCH/lsf/mayfly.sh" end & done
wait
expect_all_gone

MAYFLY='capacity=much'
for host in n1 n2; do on $host "$SCRATCH/lsf/mayfly.sh" ready; done
status=0; on n1 "$SCRATCH/lsf/mayfly.sh" start 2> "$SCRATCH/said" || status=$?
echo "refused with $status"; grep -c capacity "$SCRATCH/said"
for host in n1 n2; do on $host "$SCRATCH/lsf/mayfly.sh" end; done
unset MAYFLY
on n1 "$SCRATCH/lsf/mayfly.sh" ready && ls "$SCRATCH/n1-run"
