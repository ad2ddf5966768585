-- Environment module (Lmod) of a Mayfly that stands where its tarball was unpacked.
help([[Mayfly: a temporary distributed file system for the time of a job.

  mayfly run --nodes job -- ./job.sh
]])
whatis("Name: mayfly")
whatis("Version: @VERSION@")
whatis("Description: temporary distributed file system for HPC and AI jobs")

local prefix = myFileName():match("^(.*)/share/modulefiles/mayfly/[^/]*$")
prepend_path("PATH", pathJoin(prefix, "bin"))
prepend_path("MANPATH", pathJoin(prefix, "share/man"))
