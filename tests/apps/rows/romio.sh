# MPI-IO as ROMIO does it to a local file system, by four ranks.
set -eu
export HYDRA_LAUNCHER=fork HYDRA_IFACE=lo MPICH_INTERFACE_HOSTNAME=localhost
mpicc.mpich -O1 -Wall -o romio "$ROW_SOURCES/romio.c"
mpirun.mpich -n 4 ./romio "$APP_DIR"
sha256sum 'data sieving' 'each piece by itself' 'collective buffering'
# The file of the shared pointer is hidden, and gone when all have closed.
ls -A
