"""Tests what the program says about parts that its build lacks: one error, with the option to build with, before any
training. Arguments: the program build/partita, and the parts that the build has: "mpi", "hdf5" and "onednn", or ""."""

import json
import os
import sys

from checks import Program, check, refused, run_parts

partita = Program(sys.argv[1], status=None)
MPI, HDF5, ONEDNN = (word != "" for word in sys.argv[2:5])
SMALL = ["--data", "synthetic", "--samples", "16", "--batch", "8", "--kernels", ""]


def refuses(name, *words, parts, **variables):
    """Checks that a command is refused in one line, before anything was trained."""
    ran = partita(*words, variables=variables)
    refused(name, ran, *parts)
    check(f"{name}: nothing was trained", "epoch" not in ran.out, ran)


def present():
    """What the build has, and what needs none of it."""
    known = json.loads(partita("info", "--json").out)["versions"]
    for part, there in (("mpi", MPI), ("hdf5", HDF5), ("onednn", ONEDNN)):
        check(f"info: {part}", (known[part] is not None) == there, known)
    ran = partita("--version")
    check("--version", ran.status == 0 and ("without MPI" in ran.out) == (not MPI), ran)
    ran = partita("train", *SMALL, "--epochs", "1")
    check("training needs none of them", ran.status == 0 and "epoch 1" in ran.out, ran)


def lacking():
    """What the build lacks."""
    if not MPI:
        refuses("scale", "scale", "--ranks", "1", "2", parts=["-Dmpi=enabled"])
        check("scale --help", partita("scale", "--help").status == 0)
        refuses("two processes", "train", *SMALL, parts=["-Dmpi=enabled", "--ranks N"], PMI_SIZE="2", PMI_RANK="0")
    if not HDF5:
        for option in ("--save", "--load", "--best"):
            more = ["--validate", "0.5"] if option == "--best" else []
            refuses(option, "train", *SMALL, option, "w.h5", *more, parts=[option, "-Dhdf5=enabled"])
        refuses("evaluate", "evaluate", *SMALL, "--load", "w.h5", parts=["-Dhdf5=enabled"])
        refuses("volumes", "train", "--data", "hdf5", "--batch", "8", parts=[r"training\.h5", "-Dhdf5=enabled"])
        check("nothing was written", os.listdir(".") == [], os.listdir("."))
    if not ONEDNN:
        refuses("--backend onednn", "train", *SMALL, "--backend", "onednn", parts=["-Donednn=enabled"])


run_parts(present, lacking)
