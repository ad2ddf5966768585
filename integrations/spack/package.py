# Spack recipe of the portable Mayfly, as `cargo xtask dist` has packed it. In a repository of
# packages it stands in packages/mayfly/, and the tarball in a mirror or the working directory:
#   spack install mayfly
import os

from spack.package import *


class Mayfly(Package):
    """Temporary distributed file system for HPC and AI jobs: pools the node-local storage of a
    job's nodes into one namespace, started by any user without root, and gone when the job ends."""

    homepage = "https://example.invalid/mayfly"
    url = f"file://{os.getcwd()}/mayfly-@VERSION@-x86_64.tar.gz"
    manual_download = True

    license("Apache-2.0 OR MIT")

    version("@VERSION@", sha256="@SHA256@")

    conflicts("platform=darwin", msg="Mayfly is for Linux")
    conflicts("target=aarch64:", msg="Mayfly is for x86-64")

    def install(self, spec, prefix):
        install_tree("bin", prefix.bin)
        install_tree("share", prefix.share)
