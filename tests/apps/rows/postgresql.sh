# PostgreSQL: a cluster is made, loaded, used, restarted, killed and recovered. The socket lies
# outside, since nothing can be bound to a name in an instance.
set -eu
bin=$(pg_config --bindir)
export PGDATA=$APP_DIR/cluster PGHOST=$TMPDIR PGUSER=postgres PGDATABASE=postgres PGPORT=54329
log=$TMPDIR/log

start() {
    "$bin/pg_ctl" --silent --wait --log "$log" \
        --options "-c listen_addresses= -c unix_socket_directories=$TMPDIR" start
}
sums() {
    psql --no-align --tuples-only --command "select count(*) = $1, sum(delta) =
        (select sum(abalance) from pgbench_accounts), sum(delta) =
        (select sum(tbalance) from pgbench_tellers), sum(delta) =
        (select sum(bbalance) from pgbench_branches) from pgbench_history"
}
trap '[ $? = 0 ] || cat "$log"; "$bin/pg_ctl" --silent --mode immediate stop || true' EXIT

"$bin/initdb" --auth trust --username postgres --no-locale > "$log"
start
pgbench --quiet --initialize --scale 1 2>> "$log"
pgbench --client 4 --jobs 2 --transactions 100 > "$log.bench" 2>&1 || cat "$log.bench"
grep 'actually processed' "$log.bench"
sums 400
"$bin/pg_ctl" --silent --wait --mode fast stop
start
sums 400
pgbench --client 2 --transactions 100 --no-vacuum > "$log.bench" 2>&1 || cat "$log.bench"
# What was committed outlives a server that is killed.
"$bin/pg_ctl" --silent --wait --mode immediate stop
start
sums 600
psql --quiet --command 'create extension amcheck' --command 'vacuum full'
"$bin/pg_amcheck" --heapallindexed && echo 'no page is damaged'
psql --quiet --no-align --tuples-only --command "copy pgbench_branches to '$APP_DIR/copied'" \
    > /dev/null
wc -l < "$APP_DIR/copied"
"$bin/pg_ctl" --silent --wait --mode fast stop
"$bin/pg_controldata" | grep 'cluster state'
trap - EXIT
rm "$log" "$log.bench"
