"""Where a file system refuses flock(), training saves, loads and reads HDF5 files as elsewhere. A library that replaces
flock() stands in for the file system.
Arguments: the program build/partita, the program examples/09_volumes, a C++ compiler and its arguments."""

import os
import subprocess
import sys
import tempfile

PROGRAM, VOLUMES = map(os.path.abspath, sys.argv[1:3])
COMPILER = sys.argv[3:]
TRAIN = [PROGRAM, "train", "--model", "lenet5", "--data", "synthetic", "--samples", "8", "--batch", "8", "--no-test", "--kernels", ""]
failures = []


def run(folder, reason, *command):
    preload = {"LD_PRELOAD": f"{folder}/{reason}.so"} if reason else {}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=folder,
                          env={**os.environ, **preload})


def check(name, result, parts=(), status=0):
    output = result.stdout + result.stderr
    if result.returncode == status and all(part in output for part in parts):
        print(f"ok   {name}")
    else:
        failures.append(name)
        print(f"FAIL {name}: status {result.returncode}\n{output}")


with tempfile.TemporaryDirectory() as folder:
    check("volumes are written", run(folder, None, VOLUMES, "volumes"))
    for reason in ("ENOLCK", "EOPNOTSUPP", "EROFS", "EACCES"):
        with open(f"{folder}/{reason}.cpp", "w") as source:
            source.write(f'#include <cerrno>\nextern "C" int flock(int, int) {{\n  errno = {reason};\n  return -1;\n}}\n')
        subprocess.run([*COMPILER, "-shared", "-fPIC", f"{reason}.cpp", "-o", f"{reason}.so"], cwd=folder, check=True)
        check(f"{reason}: a checkpoint is saved", run(folder, reason, *TRAIN, "--save", "w.h5", "--overwrite"))
        check(f"{reason}: and goes on", run(folder, reason, *TRAIN, "--epochs", "2", "--load", "w.h5"), ("epoch 2",))
    check("a data set is read", run(folder, "ENOLCK", PROGRAM, "train", "--model", "unet3d", "--size", "16", "--channels", "4",
                                    "--classes", "3", "--width", "0.0625", "--data", "hdf5", "--data-dir", "volumes", "--batch", "8", "--steps", "1",
                                    "--no-test", "--kernels", ""), ("epoch 1",))
    os.environ["HDF5_USE_FILE_LOCKING"] = "TRUE"
    check("who insists on locks is told", run(folder, "ENOLCK", *TRAIN, "--load", "w.h5"), ("HDF5_USE_FILE_LOCKING=FALSE",), 2)

sys.exit(1 if failures else 0)
