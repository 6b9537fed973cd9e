"""Tests ranks that are threads of one process (--ranks N): their losses, memory, traffic and checkpoints are those of
MPI ranks, bit for bit, and so are errors, exit statuses and what signals do. Arguments: the program build/partita, the
program build/test/cli/lone_error, and the launcher build/mpiexec, or "" in a build without MPI."""

import filecmp
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

PROGRAM, LONE = map(os.path.abspath, sys.argv[1:3])
LAUNCHER = sys.argv[3]
HDF5 = "not in this build" not in subprocess.run([PROGRAM, "info"], capture_output=True, text=True, check=True).stdout.split("HDF5")[1].split("\n")[0]
STRATEGIES = pathlib.Path(__file__).resolve().parents[2] / "examples/strategies"
SMALL = ["--data", "synthetic", "--samples", "48", "--batch", "24", "--kernels", ""]
failures = []


def check(name, holds, shown=""):
    print(f"{'ok  ' if holds else 'FAIL'} {name}", flush=True)
    if not holds:
        failures.append(name)
        print(shown)


def run(*words, env=None):
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=300, check=False,
                          env={**os.environ, **(env or {})})


def ended(name, result, status, *patterns):
    """The exit status is `status`, and exactly one line of standard error is an error, which has all patterns."""
    ours = [line for line in result.stderr.splitlines() if line.startswith(("partita: ", "rank "))]
    check(name, result.returncode == status and len(ours) == (1 if status else 0) and
          all(re.search(pattern, ours[0]) for pattern in patterns),
          f"status {result.returncode}\n{result.stdout}{result.stderr}")


def trained(ranks, launch, *options):
    """Trains, and returns the results without their conditions, the lines of output, and the checkpoint's path."""
    name = "mpi" if launch else "threads"
    saves = ["--save", f"{name}.h5", "--overwrite"] if HDF5 else []
    result = run(*launch, PROGRAM, "train", *SMALL, *options, *saves, "--json", f"{name}.json",
                 *([] if launch else ["--ranks", ranks]))
    if result.returncode != 0:
        check(f"{name}: {options}", False, result.stdout + result.stderr)
        return None, None, None
    report = json.loads(pathlib.Path(f"{name}.json").read_text(encoding="utf-8"))
    del report["conditions"]
    # "epoch 1    loss 2.3  accuracy 9%  0.1 s  700 images/s"
    lines = [re.sub(r"[\d.]+ s  \d+ images/s", "", line) for line in result.stdout.splitlines() if not line.startswith("ranks")]
    return report, lines, f"{name}.h5"


def steady(report):
    """The report without what a clock gives, at any depth."""
    if isinstance(report, dict):
        return {key: steady(value) for key, value in report.items() if "seconds" not in key and "per_second" not in key}
    return [steady(value) for value in report] if isinstance(report, list) else report


def as_processes():
    for ranks, options in ((1, ["--dtype", "f64"]), (2, ["--dtype", "f64", "--model", "lenet5"]),
                           (3, ["--model", "lenet5", "--dtype", "bf16"]), (4, ["--dtype", "f16"]),
                           (4, ["--strategy", STRATEGIES / "fashion-cnn-hybrid.toml"]),
                           (7, ["--strategy", STRATEGIES / "fashion-cnn-pipeline.toml"]),
                           (4, ["--grid", "y=2 c=2", "--rule", "*: C@c H@y", "--dtype", "f64"]),
                           (6, ["--model", "mlp", "--grid", "a=3 b=2", "--rule", "*: N@a C@b"])):
        what = f"{ranks} ranks, {' '.join(map(str, options)).replace(str(STRATEGIES), '')}"
        report, lines, saved = trained(ranks, [], *options)
        other, its_lines, its_saved = trained(ranks, [LAUNCHER, "-n", ranks], *options)
        if not report or not other:
            continue
        check(f"{what}: losses", report["losses"] == other["losses"] and len(report["losses"]) == 2, f"{report}\n{other}")
        check(f"{what}: memory, traffic and all else", steady(report) == steady(other), f"{report}\n{other}")
        check(f"{what}: output", [line.replace(saved, "") for line in lines] == [line.replace(its_saved, "") for line in its_lines],
              "\n".join(lines + its_lines))
        if HDF5:
            check(f"{what}: checkpoint", filecmp.cmp(saved, its_saved, shallow=False))


def alone():
    """What needs no MPI: ranks agree with one rank, and the other verbs run."""
    one, four = (trained(ranks, [], "--dtype", "f64")[0] for ranks in (1, 4))
    check("4 ranks train as 1", all(abs(a - b) < 1e-11 for a, b in zip(one["losses"], four["losses"])), f"{one}\n{four}")
    if HDF5:
        result = run(PROGRAM, "evaluate", "--ranks=2", "--load", "threads.h5", *SMALL, "--dtype", "f64")
        ended("evaluate", result, 0)
        check("evaluate: ranks", "ranks      2 (threads of process " in result.stdout and "\ntest " in result.stdout, result.stdout)
    result = run(PROGRAM, "compare", "--measure", "--ranks", 2, "--model", "lenet5", "--batch", 16)
    ended("compare --measure", result, 0)
    check("compare --measure: 2 ranks ran", re.search(r"^command line +2 .*%$", result.stdout, re.M) and "not run" not in result.stdout,
          result.stdout)
    result = run(PROGRAM, "calibrate", "--ranks", 2, "--model", "lenet5", "--batch", 16, "--out", "here.toml")
    ended("calibrate", result, 0)
    check("calibrate: latency was measured", os.path.exists("here.toml.times") and "cannot be measured" not in result.stdout, result.stdout)
    result = run(PROGRAM, "train", *SMALL, "--ranks", 2, "--write-options", "o.toml", "--no-test")
    ended("--write-options", result, 0)
    result = run(PROGRAM, "train", "--options", "o.toml")
    check("--options with ranks", "ranks      2 (threads" in result.stdout, result.stdout + result.stderr)


def wrong():
    train = [PROGRAM, "train", *SMALL]
    ended("no ranks", run(*train, "--ranks", 0), 2, "--ranks 0: it must be 1 or more")
    ended("too many ranks", run(*train, "--ranks", 5000), 2, "at most 1024")
    ended("not a number", run(*train, "--ranks", "two"), 2, "'two'")
    ended("another grid", run(*train, "--ranks", 2, "--grid", "data=3"), 2, "3 ranks, but 2 were started; .*--ranks 3")
    ended("copies without ranks", run(*train, "--transport", "copies"), 2, "--ranks N") if LAUNCHER else None
    ended("a wrong transport", run(*train, "--transport", "pigeons"), 2, "'staged', 'nccl' and 'copies'")
    ended("no such option", run(*train, "--ranks", 4, "--epoch", 1), 2, "--epochs")
    ended("several numbers to measure", run(PROGRAM, "compare", "--measure", "--ranks", 1, 2), 2, "one number")
    for extra in (["--weak"], ["--csv", "c.csv"]):
        ended(f"--measure {extra[0]}", run(PROGRAM, "compare", "--measure", "--ranks", 2, *extra), 2, extra[0])
    ended("no fit", run(*train, "--ranks", 4, "--memory-limit", "1MiB"), 2, "1.0 MiB")
    result = run(*train, "--ranks", 2, "--help")
    check("help", result.returncode == 0 and result.stdout.count("--ranks N") == 1, result.stdout + result.stderr)
    for variables in ({"PMI_SIZE": "2", "PMI_RANK": "0"}, {"OMPI_COMM_WORLD_SIZE": "3", "OMPI_COMM_WORLD_RANK": "0"}):
        ended(f"launched: {variables}", run(*train, "--ranks", 2, env=variables), 2, "processes were started")
    ended("launched: each says so", run(*train, "--ranks", 2, env={"PMI_SIZE": "2", "PMI_RANK": "1"}), 2, "but 2 processes were started")
    if LAUNCHER:
        result = run(LAUNCHER, "-n", 2, *train, "--ranks", 2)
        check("launched by mpiexec", result.returncode == 2 and result.stderr.count("but 2 processes were started") == 2,
              result.stdout + result.stderr)
        ended("one process of mpiexec", run(LAUNCHER, "-n", 1, *train, "--ranks", 2), 0)
    else:
        ended("launched without MPI", run(*train, env={"PMI_SIZE": "2", "PMI_RANK": "0"}), 2, "no MPI.*-Dmpi=enabled")
        result = run(*train)
        ended("without --ranks", result, 0)
        check("without --ranks: one rank", "ranks      1 (threads" in result.stdout, result.stdout)


def one_rank_fails():
    command = [LONE, "train", "--data", "synthetic", "--batch", "16", "--no-test", "--ranks", 4]
    for rank, how, status, message in ((1, "error", 2, r"^rank 1: layer 'weak': it broke$"), (0, "memory", 1, r"^rank 0: out of memory: "),
                                       (3, "exception", 1, r"^rank 3: something else$")):
        start = time.monotonic()
        result = run(*command, env={"FAIL_RANK": str(rank), "FAIL_HOW": how})
        ended(f"{how} on rank {rank}", result, status, message)
        check(f"{how} on rank {rank}: at once", time.monotonic() - start < 10)
    result = run(*command, "--timeout", 3, "--wait-note", 1, env={"FAIL_RANK": "2", "FAIL_HOW": "hang"})
    ended("a rank that hangs", result, 3, r"^partita: rank [013] has waited 3 s for other ranks: .*; the job ends$")
    notes = re.findall(r"^note: rank ([013]) has waited 1 s for ranks? [0-3, ]*2.*; it goes on waiting$", result.stderr, re.M)
    check("a rank that hangs: notes", sorted(set(notes)) == ["0", "1", "3"] == sorted(notes), result.stderr)
    ended("all ranks fail", run(PROGRAM, "train", *SMALL, "--ranks", 4, "--rate", "1e30", "--epochs", 5), 3, "not finite|nan|inf")


def after_first_epoch(number, *options):
    """Sends a signal to a training that has begun, and returns its result."""
    words = [PROGRAM, "train", *SMALL, "--no-test", "--epochs", "100000", "--ranks", "4", *options]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as job:
        head = ""
        while "\nepoch" not in head and job.poll() is None:
            head += job.stdout.readline()
        job.send_signal(number)
        out, err = job.communicate(timeout=30)
        return subprocess.CompletedProcess(words, job.returncode, head + out, err)


def signals():
    ended("SIGTERM without --save", after_first_epoch(signal.SIGTERM), 3, "SIGTERM ended the run")
    result = after_first_epoch(signal.SIGINT)
    check("Ctrl-C ends the run", result.returncode == -signal.SIGINT, f"{result.returncode} {result.stderr}")
    if not HDF5:
        return
    result = after_first_epoch(signal.SIGTERM, "--save", "stopped.h5")
    ended("SIGTERM saves", result, 0)
    resume = re.search(r"resume with\n +(.*)", result.stdout)
    check("SIGTERM: how to resume", resume and "mpiexec" not in resume[1] and "--ranks 4" in resume[1], result.stdout)
    ended("it resumes on another number of ranks", run(PROGRAM, "train", *SMALL, "--load", "stopped.h5",
                                                      "--ranks", 2, "--no-test", "--epochs", 1), 0)


os.chdir(tempfile.mkdtemp())
if LAUNCHER:
    as_processes()
alone()
wrong()
one_rank_fails()
signals()
print(f"{len(failures)} failed")
sys.exit(1 if failures else 0)
