# Parallel HDF5 over MPI-IO.
set -eu
export HYDRA_LAUNCHER=fork HYDRA_IFACE=lo MPICH_INTERFACE_HOSTNAME=localhost
h5pcc.mpich -O1 -Wall -o parallel "$ROW_SOURCES/parallel_hdf5.c"
mpirun.mpich -n 4 ./parallel "$APP_DIR/parallel.h5"
stat -c '%n %s' parallel.h5
