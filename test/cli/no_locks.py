"""Where a file system refuses flock(), training saves, loads and reads HDF5 files as elsewhere. A library that replaces
flock() stands in for the file system.
Arguments: the program build/partita, the program examples/09_volumes, a C++ compiler and its arguments."""

import sys

from checks import Program, ended, finish, new_folder, run, write

partita, volumes = (Program(path, status=None) for path in sys.argv[1:3])
COMPILER = sys.argv[3:]
TRAIN = ["train", "--model", "lenet5", "--data", "synthetic", "--samples", "8", "--batch", "8", "--no-test",
         "--kernels", ""]
VOLUMES = ["train", "--model", "unet3d", "--size", "16", "--channels", "4", "--classes", "3", "--width", "0.0625",
           "--data", "hdf5", "--data-dir", "volumes", "--batch", "8", "--steps", "1", "--no-test", "--kernels", ""]


with new_folder() as folder:
    def without_locks(reason, *words, **variables):
        """Runs the program where flock() fails for a reason."""
        return partita(*words, variables={"LD_PRELOAD": f"{folder}/{reason}.so", **variables})

    ended("volumes are written", volumes("volumes"), 0)
    for reason in ("ENOLCK", "EOPNOTSUPP", "EROFS", "EACCES"):
        write(f"{reason}.cpp", f'#include <cerrno>\nextern "C" int flock(int, int) {{\n  errno = {reason};\n  return '
              f'-1;\n}}\n')
        run(*COMPILER, "-shared", "-fPIC", f"{reason}.cpp", "-o", f"{reason}.so")
        ended(f"{reason}: a checkpoint is saved", without_locks(reason, *TRAIN, "--save", "w.h5", "--overwrite"), 0)
        ended(f"{reason}: and goes on", without_locks(reason, *TRAIN, "--epochs", "2", "--load", "w.h5"), 0, "epoch 2")
    ended("a data set is read", without_locks("ENOLCK", *VOLUMES), 0, "epoch 1")
    ended("who insists on locks is told", without_locks("ENOLCK", *TRAIN, "--load", "w.h5",
                                                        HDF5_USE_FILE_LOCKING="TRUE"), 2, "HDF5_USE_FILE_LOCKING=FALSE")
finish()
