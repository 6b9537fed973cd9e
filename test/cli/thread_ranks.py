"""Tests ranks that are threads of one process (--ranks N): their losses, memory, traffic and checkpoints are those of
MPI ranks, bit for bit, and so are errors, exit statuses and what signals do. Arguments: the program build/partita, the
program build/test/cli/lone_error, and the launcher build/mpiexec, or "" in a build without MPI."""

import filecmp
import os
import re
import signal
import subprocess
import sys
import time

from checks import STRATEGIES, Program, begin, check, end_of, ended, read_json, run_parts

LAUNCHER = sys.argv[3]
partita, lone = (Program(path, LAUNCHER, status=None, timeout=300) for path in sys.argv[1:3])
HDF5 = "not in this build" not in partita("info", status=0).out.split("HDF5")[1].split("\n")[0]
SMALL = ["--data", "synthetic", "--samples", "48", "--batch", "24", "--kernels", ""]


def trained(ranks, *options, mpi=False):
    """Trains, and returns the results without their conditions, the lines of output, and the checkpoint's path."""
    name = "mpi" if mpi else "threads"
    saves = ["--save", f"{name}.h5", "--overwrite"] if HDF5 else []
    ran = partita("train", *SMALL, *options, *saves, "--json", f"{name}.json", *([] if mpi else ["--ranks", ranks]),
                  ranks=ranks if mpi else 0)
    if ran.status != 0:
        check(f"{name}: {options}", False, ran)
        return None, None, None
    report = read_json(f"{name}.json")
    del report["conditions"]
    # "epoch 1    loss 2.3  accuracy 9%  0.1 s  700 images/s"
    lines = [re.sub(r"[\d.]+ s  \d+ images/s", "", line) for line in ran.out.splitlines()
             if not line.startswith("ranks")]
    return report, lines, f"{name}.h5"


def steady(report):
    """The report without what a clock gives, at any depth."""
    if isinstance(report, dict):
        return {key: steady(value) for key, value in report.items() if "seconds" not in key and "per_second" not in key}
    return [steady(value) for value in report] if isinstance(report, list) else report


def as_processes():
    """Threads and processes of MPI do the same."""
    for ranks, options in ((1, ["--dtype", "f64"]), (2, ["--dtype", "f64", "--model", "lenet5"]),
                           (3, ["--model", "lenet5", "--dtype", "bf16"]), (4, ["--dtype", "f16"]),
                           (4, ["--strategy", STRATEGIES / "fashion-cnn-hybrid.toml"]),
                           (7, ["--strategy", STRATEGIES / "fashion-cnn-pipeline.toml"]),
                           (4, ["--grid", "y=2 c=2", "--rule", "*: C@c H@y", "--dtype", "f64"]),
                           (6, ["--model", "mlp", "--grid", "a=3 b=2", "--rule", "*: N@a C@b"])):
        what = f"{ranks} ranks, {' '.join(map(str, options)).replace(str(STRATEGIES), '')}"
        report, lines, saved = trained(ranks, *options)
        other, its_lines, its_saved = trained(ranks, *options, mpi=True)
        if not report or not other:
            continue
        check(f"{what}: losses", report["losses"] == other["losses"] and len(report["losses"]) == 2,
              f"{report}\n{other}")
        check(f"{what}: memory, traffic and all else", steady(report) == steady(other), f"{report}\n{other}")
        check(f"{what}: output", [line.replace(saved, "") for line in lines] == [line.replace(its_saved, "")
                                                                                 for line in its_lines],
              "\n".join(lines + its_lines))
        if HDF5:
            check(f"{what}: checkpoint", filecmp.cmp(saved, its_saved, shallow=False))


def alone():
    """What needs no MPI: ranks agree with one rank, and the other verbs run."""
    one, four = (trained(ranks, "--dtype", "f64")[0] for ranks in (1, 4))
    check("4 ranks are as 1", all(abs(a - b) < 1e-11 for a, b in zip(one["losses"], four["losses"])), f"{one}\n{four}")
    if HDF5:
        ran = partita("evaluate", "--ranks=2", "--load", "threads.h5", *SMALL, "--dtype", "f64")
        ended("evaluate", ran, 0)
        check("its ranks", "ranks      2 (threads of process " in ran.out and "\ntest " in ran.out, ran.out)
    ran = partita("compare", "--measure", "--ranks", 2, "--model", "lenet5", "--batch", 16)
    ended("compare --measure", ran, 0)
    check("compare --measure: 2 ranks ran", re.search(r"^command line +2 .*%$", ran.out, re.M) and
          "not run" not in ran.out, ran.out)
    ran = partita("calibrate", "--ranks", 2, "--model", "lenet5", "--batch", 16, "--out", "here.toml")
    ended("calibrate", ran, 0)
    check("calibrate: latency was measured", os.path.exists("here.toml.times") and "cannot be measured" not in ran.out,
          ran.out)
    ran = partita("train", *SMALL, "--ranks", 2, "--write-options", "o.toml", "--no-test")
    ended("--write-options", ran, 0)
    ran = partita("train", "--options", "o.toml")
    check("--options with ranks", "ranks      2 (threads" in ran.out, ran)


def wrong():
    """Options that do not fit, and launchers."""
    train = ["train", *SMALL]
    ended("no ranks", partita(*train, "--ranks", 0), 2, "--ranks 0: it must be 1 or more")
    ended("too many ranks", partita(*train, "--ranks", 5000), 2, "at most 1024")
    ended("not a number", partita(*train, "--ranks", "two"), 2, "'two'")
    ended("a grid", partita(*train, "--ranks", 2, "--grid", "data=3"), 2, "3 ranks, but 2 were started; .*--ranks 3")
    ended("copies without ranks", partita(*train, "--transport", "copies"), 2, "--ranks N") if LAUNCHER else None
    ended("a wrong transport", partita(*train, "--transport", "pigeons"), 2, "'staged', 'nccl' and 'copies'")
    ended("no such option", partita(*train, "--ranks", 4, "--epoch", 1), 2, "--epochs")
    ended("several numbers to measure", partita("compare", "--measure", "--ranks", 1, 2), 2, "one number")
    for extra in (["--weak"], ["--csv", "c.csv"]):
        ended(f"--measure {extra[0]}", partita("compare", "--measure", "--ranks", 2, *extra), 2, extra[0])
    ended("no fit", partita(*train, "--ranks", 4, "--memory-limit", "1MiB"), 2, "1.0 MiB")
    ran = partita(*train, "--ranks", 2, "--help")
    check("help", ran.status == 0 and ran.out.count("\n  --ranks N ") == 1, ran)
    for variables in ({"PMI_SIZE": "2", "PMI_RANK": "0"}, {"OMPI_COMM_WORLD_SIZE": "3", "OMPI_COMM_WORLD_RANK": "0"}):
        ended(f"launched: {variables}", partita(*train, "--ranks", 2, variables=variables), 2, "processes were started")
    ended("launched: each says so", partita(*train, "--ranks", 2, variables={"PMI_SIZE": "2", "PMI_RANK": "1"}), 2,
          "but 2 processes were started")
    if LAUNCHER:
        ran = partita(*train, "--ranks", 2, ranks=2)
        check("by mpiexec", ran.status == 2 and ran.err.count("but 2 processes were started") == 2,
              ran)
        ended("one process of mpiexec", partita(*train, "--ranks", 2, ranks=1), 0)
    else:
        ended("launched without MPI", partita(*train, variables={"PMI_SIZE": "2", "PMI_RANK": "0"}), 2,
              "no MPI.*-Dmpi=enabled")
        ran = partita(*train)
        ended("without --ranks", ran, 0)
        check("without --ranks: one rank", "ranks      1 (threads" in ran.out, ran.out)


def one_rank_fails():
    """Errors of one rank and of all."""
    command = ["train", "--data", "synthetic", "--batch", "16", "--no-test", "--ranks", 4]
    for rank, how, status, message in ((1, "error", 2, r"^rank 1: layer 'weak': it broke$"),
                                       (0, "memory", 1, r"^rank 0: out of memory: "),
                                       (3, "exception", 1, r"^rank 3: something else$")):
        start = time.monotonic()
        ran = lone(*command, variables={"FAIL_RANK": str(rank), "FAIL_HOW": how})
        ended(f"{how} on rank {rank}", ran, status, message)
        check(f"{how} on rank {rank}: at once", time.monotonic() - start < 10)
    ran = lone(*command, "--timeout", 3, "--wait-note", 1, variables={"FAIL_RANK": "2", "FAIL_HOW": "hang"})
    ended("a rank that hangs", ran, 3, r"^partita: rank [013] has waited 3 s for other ranks: .*; the job ends$")
    notes = re.findall(r"^note: rank ([013]) has waited 1 s for ranks? [0-3, ]*2.*; it goes on waiting$", ran.err, re.M)
    check("a rank that hangs: notes", sorted(set(notes)) == ["0", "1", "3"] == sorted(notes), ran.err)
    ended("all fail", partita("train", *SMALL, "--ranks", 4, "--rate", "1e30", "--epochs", 5), 3, "not finite|nan|inf")


def after_first_epoch(number, *options):
    """Sends a signal to a training that has begun, and returns its ran."""
    job = partita.start("train", *SMALL, "--no-test", "--epochs", "100000", "--ranks", "4", *options,
                        stderr=subprocess.PIPE)
    head = begin(job)
    job.send_signal(number)
    return end_of(job, head)


def signals():
    """Signals that end a training."""
    ended("SIGTERM without --save", after_first_epoch(signal.SIGTERM), 3, "SIGTERM ended the run")
    ran = after_first_epoch(signal.SIGINT)
    check("Ctrl-C ends the run", ran.status == -signal.SIGINT, f"{ran.status} {ran.err}")
    if not HDF5:
        return
    ran = after_first_epoch(signal.SIGTERM, "--save", "stopped.h5")
    ended("SIGTERM saves", ran, 0)
    resume = re.search(r"resume with\n +(.*)", ran.out)
    check("SIGTERM: how to resume", resume and "mpiexec" not in resume[1] and "--ranks 4" in resume[1], ran.out)
    ended("it resumes on another number of ranks", partita("train", *SMALL, "--load", "stopped.h5",
                                                           "--ranks", 2, "--no-test", "--epochs", 1), 0)


run_parts(*([as_processes] if LAUNCHER else []), alone, wrong, one_rank_fails, signals)
