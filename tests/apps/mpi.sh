# Program 5: MPI ranks write files of their own and disjoint parts of shared ones, with POSIX and
# MPI-IO. The program is compiled into the mount and runs from there.
set -eu
cd "$APP_DIR"
source=$(dirname "$0")/mpi_files.c
export HYDRA_LAUNCHER=fork HYDRA_IFACE=lo MPICH_INTERFACE_HOSTNAME=localhost

mpicc.mpich -O1 -Wall -o mpi_files "$source"
for ranks in 2 4; do
    mkdir "ranks$ranks"
    mpirun.mpich -n "$ranks" ./mpi_files "$APP_DIR/ranks$ranks"
    (cd "ranks$ranks" && sha256sum ./* | sort -k 2)
done
