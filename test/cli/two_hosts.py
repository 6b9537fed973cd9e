"""Tests two hosts over TCP, which test/support/cluster.py makes of name spaces. Training gives the same losses as on
one host, MPI test programs pass, and if the link is cut the job ends and says why. Needs root and the launcher of
MPICH; otherwise the test is skipped (status 77). Arguments: the launcher build/mpiexec, build/partita, the test
programs."""

import os
import pathlib
import re
import subprocess
import sys
import time

from checks import ROOT, Program, begin, check, end_of, read_json, run_parts, skip

sys.path.append(str(ROOT / "test/support"))
from cluster import cluster, lacks  # pylint: disable=wrong-import-position

LAUNCHER, PROGRAM, *TESTS = map(os.path.abspath, sys.argv[1:])
partita = Program(PROGRAM, LAUNCHER, timeout=90)
RUNS = 6  # MPI_Finalize hung in half of them before the ranks called it together
TRAIN = ["train", "--data", "synthetic", "--samples", "512", "--batch", "32", "--dtype", "f64", "--grid", "data=2 y=2",
         "--rule", "conv*: N@data H@y"]


def on_hosts(*command):
    """Starts four ranks, two on each host."""
    return hosts.start(2, *command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def on_hosts_to_end(seconds, *command):
    """Runs four ranks, and returns how they ended."""
    job = on_hosts(*command)
    try:
        return end_of(job, timeout=seconds)
    except subprocess.TimeoutExpired:
        job.kill()
        sys.exit(f"FAIL: the job still runs after {seconds} s\n{end_of(job, timeout=10)}")


def losses(path):
    """Returns the losses of a training and of its test."""
    found = read_json(path)
    return [*found["losses"], found["test"]["loss"]]


def agree():
    """Trains on one host and on two. MPI_Finalize does not hang: it would say so, and the status would not be 0."""
    partita(*TRAIN, "--json", "one.json", ranks=4)
    expected = losses("one.json")
    for _ in range(RUNS):
        ran = on_hosts_to_end(90, PROGRAM, *TRAIN, "--json", "two.json")
        check("the job ends", ran.status == 0 and "MPI_Finalize" not in ran.text, ran)
        found = losses("two.json")
        os.remove("two.json")
        check("two hosts agree with one", len(found) == len(expected) and
              all(abs(x - y) <= 1e-9 * abs(y) for x, y in zip(found, expected)), (found, expected))


def tests_pass():
    """Runs test programs of MPI."""
    for program in TESTS:
        ran = on_hosts_to_end(1500, program)  # with PARTITA_LONG the master test has 200 cases
        check(f"{os.path.basename(program)} passes over two hosts",
              "[  PASSED  ]" in ran.text and "[  FAILED  ]" not in ran.text and ran.status == 0, ran)


def ranks_of(folder):
    """Returns the processes whose command line names a folder."""
    found = []
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = pathlib.Path(f"/proc/{process}/cmdline").read_bytes().decode().split("\0")
        except OSError:
            continue
        if words[0] == PROGRAM and folder in words:
            found.append(process)
    return found


def cut():
    """Cuts the link during training. The ranks of both hosts end by themselves. The launcher of MPICH does not notice
    the cut, so the test ends it."""
    folder = os.getcwd()
    job = on_hosts(PROGRAM, *TRAIN, "--epochs", "100000", "--no-test", "--timeout", "5", "--kernels", folder)
    begin(job)
    assert len(ranks_of(folder)) >= 4
    hosts.cut(hosts.hosts[0])
    start = time.monotonic()
    while ranks_of(folder) and time.monotonic() - start < 30:
        time.sleep(0.1)
    seconds, rest = time.monotonic() - start, ranks_of(folder)
    job.kill()
    ran = end_of(job)
    said = re.findall(r"rank \d \(process \d+ on (\S+)\) has waited 5 s for other ranks: .*; the job ends", ran.text)
    check(f"a cut link ends the ranks of both hosts after {seconds:.1f} s, reported on the first", not rest and
          ran.status != 0 and said == [hosts.hosts[0]], f"{len(rest)} ranks left, {ran}")


if reason := lacks(LAUNCHER):
    skip(reason)
with cluster(2, launcher=LAUNCHER) as hosts:
    run_parts(agree, tests_pass, cut)
