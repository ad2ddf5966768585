#!/usr/bin/env python3
"""A slow directory: python3 bench/slow.py SOURCE MOUNT [SECONDS]

Shows SOURCE at MOUNT by FUSE, to read from; each call takes SECONDS more (0.001), as on a file
system at a distance. Needs fusepy and libfuse 2 (on Debian python3-fusepy, libfuse2).
"""
import errno, os, sys, threading, time

try:
    import fusepy as fuse
except ImportError:
    import fuse

SOURCE, MOUNT = sys.argv[1:3]
DELAY = float(sys.argv[3]) if len(sys.argv) > 3 else 0.001


class Slow(fuse.Operations):
    def at(self, path):
        time.sleep(DELAY)
        return SOURCE + path

    def getattr(self, path, fh=None):
        stat = os.lstat(self.at(path))
        names = ('st_atime', 'st_ctime', 'st_mtime', 'st_gid', 'st_uid', 'st_mode', 'st_nlink',
                 'st_size', 'st_ino')
        return {name: getattr(stat, name) for name in names}

    def readdir(self, path, fh):
        return ['.', '..'] + os.listdir(self.at(path))

    def open(self, path, flags):
        return os.open(self.at(path), flags)

    def read(self, path, size, offset, fh):
        time.sleep(DELAY)
        return os.pread(fh, size, offset)

    def release(self, path, fh):
        os.close(fh)

    def getxattr(self, path, name, position=0):
        raise OSError(errno.ENODATA, '')

    def listxattr(self, path):
        return []


threading.stack_size(1 << 20)
fuse.FUSE(Slow(), MOUNT, foreground=True, nothreads=False, ro=True, attr_timeout=0,
          entry_timeout=0, use_ino=True)
