"""Tests what the program says about parts that its build lacks: one error, with the option to build with, before any
training. Arguments: the program build/partita, and the parts that the build has: "mpi", "hdf5" and "onednn", or ""."""

import json
import os
import subprocess
import sys
import tempfile

PROGRAM = os.path.abspath(sys.argv[1])
MPI, HDF5, ONEDNN = (word != "" for word in sys.argv[2:5])
SMALL = ["--data", "synthetic", "--samples", "16", "--batch", "8", "--kernels", ""]
failures = []


def check(name, holds, shown=""):
    print(f"{'ok  ' if holds else 'FAIL'} {name}")
    if not holds:
        failures.append(name)
        print(shown)


def run(*words, **variables):
    return subprocess.run([PROGRAM, *words], capture_output=True, text=True, timeout=60, check=False,
                          env={**os.environ, **variables})


def refused(name, result, *parts):
    """Refused in one line, before anything was trained."""
    lines = result.stderr.splitlines()
    check(name, result.returncode == 2 and len(lines) == 1 and all(part in lines[0] for part in parts) and "epoch" not in result.stdout,
          f"status {result.returncode}\n{result.stdout}{result.stderr}")


os.chdir(tempfile.mkdtemp())
known = json.loads(run("info", "--json").stdout)["versions"]
for part, there in (("mpi", MPI), ("hdf5", HDF5), ("onednn", ONEDNN)):
    check(f"info: {part}", (known[part] is not None) == there, known)
result = run("--version")
check("--version", result.returncode == 0 and ("without MPI" in result.stdout) == (not MPI), result.stdout)
result = run("train", *SMALL, "--epochs", "1")
check("training needs none of them", result.returncode == 0 and "epoch 1" in result.stdout, result.stdout + result.stderr)
if not MPI:
    refused("scale", run("scale", "--ranks", "1", "2"), "-Dmpi=enabled")
    check("scale --help", run("scale", "--help").returncode == 0)
    refused("two processes", run("train", *SMALL, PMI_SIZE="2", PMI_RANK="0"), "-Dmpi=enabled", "--ranks N")
if not HDF5:
    for option in ("--save", "--load", "--best"):
        more = ["--validate", "0.5"] if option == "--best" else []
        refused(option, run("train", *SMALL, option, "w.h5", *more), option, "-Dhdf5=enabled")
    refused("evaluate", run("evaluate", *SMALL, "--load", "w.h5"), "-Dhdf5=enabled")
    refused("volumes", run("train", "--data", "hdf5", "--batch", "8"), "training.h5", "-Dhdf5=enabled")
    check("nothing was written", os.listdir(".") == [], os.listdir("."))
if not ONEDNN:
    refused("--backend onednn", run("train", *SMALL, "--backend", "onednn"), "-Donednn=enabled")
print(f"{len(failures)} failed")
sys.exit(1 if failures else 0)
