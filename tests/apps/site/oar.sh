# OAR: prologue and epilogue on the first host, which reach the others by ssh, and root by sudo.
. "$(dirname "$0")/common.sh"
stand_in ssh <<'P'
#!/bin/sh
exec unshare --uts sh -c 'hostname "$0" && exec sh -c "$1"' "$@"
P
stand_in sudo <<'P'
#!/bin/sh
exec "$@"
P
stand_in oarstat <<'P'
#!/bin/sh
printf 'Job_Id: 5\n    name = %s\n    owner = nobody\n' "$(cat "$SCRATCH/name")"
P
PATH=$SCRATCH/bin:$PATH
printf 'n1\nn1\nn2\nn2\n' > "$SCRATCH/nodes"
mayfly() { on n1 "$SHIPPED/oar/mayfly.sh" "$1" 5 nobody "$SCRATCH/nodes"; }

echo "mayfly $ASKED" > "$SCRATCH/name"
mayfly prologue
job OAR_JOB_ID=5 OAR_NODEFILE="$SCRATCH/nodes"
mayfly epilogue
expect_all_gone

echo 'mayfly capacity=much' > "$SCRATCH/name"
status=0; mayfly prologue 2> "$SCRATCH/said" || status=$?
echo "refused with $status"; grep -c capacity "$SCRATCH/said"
mayfly epilogue
echo 'another job' > "$SCRATCH/name"
mayfly prologue && ls "$SCRATCH/n1-run"
