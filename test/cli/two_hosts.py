"""Tests two hosts over TCP. The hosts are namespaces of network, processes, shared memory and host name, connected by a
virtual link. Training gives the same losses as on one host, MPI test programs pass, and if the link is cut the job ends
and says why. Needs root and the launcher of MPICH; otherwise the test is skipped (status 77). Arguments: the launcher
build/mpiexec, build/partita, the test programs."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

from checks import Program, begin, check, end_of, read_json, run, run_parts, skip, write

LAUNCHER, PROGRAM, *TESTS = map(os.path.abspath, sys.argv[1:])
partita = Program(PROGRAM, LAUNCHER, timeout=90)
RUNS = 6  # MPICH 4.0.2 hangs in MPI_Finalize in half of them
TRAIN = ["train", "--data", "synthetic", "--samples", "512", "--batch", "32", "--dtype", "f64", "--grid", "data=2 y=2",
         "--rule", "conv*: N@data H@y"]
HOSTS = {f"partita-{os.getpid()}-{side}": f"10.77.0.{number}" for number, side in ((1, "a"), (2, "b"))}
A, B = HOSTS


def on_hosts(*command):
    """Starts four ranks, two on each host. The launcher runs on A and reaches B as if by ssh."""
    write("launch", f"""#!/bin/bash
while [[ $1 == -* ]]; do shift; done
case $1 in {HOSTS[A]}) host={A} ;; *) host={B} ;; esac
shift
exec ip netns exec $host unshare --ipc --uts --pid --fork --kill-child --mount-proc sh -c "hostname $host; $*"
""")
    os.chmod("launch", 0o755)
    hosts = ",".join(f"{address}:2" for address in HOSTS.values())
    at_home = ["ip", "netns", "exec", A, "unshare", "--uts", "sh", "-c", 'hostname "$0"; exec "$@"', A]
    return subprocess.Popen([*at_home, LAUNCHER, "-launcher", "ssh", "-launcher-exec", os.path.abspath("launch"),
                             "-hosts", hosts, "-iface", "link-a", "-n", "4", *command], stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True)


def on_hosts_to_end(seconds, *command):
    """Runs four ranks. Returns how they ended, and whether MPI_Finalize hung."""
    job = on_hosts(*command)
    try:
        ran = end_of(job, timeout=seconds)
    except subprocess.TimeoutExpired:
        job.terminate()
        sys.exit(f"FAIL: the job still runs after {seconds} s\n{end_of(job, timeout=10)}")
    return ran, "MPI_Finalize has not returned" in ran.text


def losses(path):
    """Returns the losses of a training and of its test."""
    found = read_json(path)
    return [*found["losses"], found["test"]["loss"]]


def agree():
    """Trains on one host and on two."""
    partita(*TRAIN, "--json", "one.json", ranks=4)
    expected, left = losses("one.json"), 0
    for _ in range(RUNS):
        ran, hung = on_hosts_to_end(90, PROGRAM, *TRAIN, "--json", "two.json")
        left += hung
        check("the job ends", ran.status == 0 or hung, ran)
        found = losses("two.json")
        os.remove("two.json")
        check("two hosts agree with one", len(found) == len(expected) and
              all(abs(x - y) <= 1e-9 * abs(y) for x, y in zip(found, expected)), (found, expected))
    print(f"{len(expected)} losses, {RUNS} runs; MPI_Finalize hung in {left}")


def tests_pass():
    """Runs test programs of MPI."""
    for program in TESTS:
        ran, hung = on_hosts_to_end(1500, program)  # with PARTITA_LONG the master test has 200 cases
        check(f"{os.path.basename(program)} passes over two hosts{'; MPI_Finalize hung' if hung else ''}",
              "[  PASSED  ]" in ran.text and "[  FAILED  ]" not in ran.text and (ran.status == 0 or hung), ran)


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
    run("ip", "-n", A, "link", "set", "link-a", "down")
    start = time.monotonic()
    while ranks_of(folder) and time.monotonic() - start < 30:
        time.sleep(0.1)
    seconds, rest = time.monotonic() - start, ranks_of(folder)
    job.terminate()
    ran = end_of(job)
    said = re.findall(r"rank \d \(process \d+ on (\S+)\) has waited 5 s for other ranks: .*; the job ends", ran.text)
    check(f"a cut link ends the ranks of both hosts after {seconds:.1f} s, reported on A", not rest and
          ran.status != 0 and said == [A], f"{len(rest)} ranks left, {ran}")


if os.geteuid() != 0:
    skip("network namespaces need root")
if not shutil.which("ip") or run("ip", "netns", status=None).status != 0:
    skip("there is no 'ip netns' (package iproute2)")
if "HYDRA" not in run(LAUNCHER, "--version", status=None).out:
    skip("the launcher is not MPICH's")
if run("ip", "netns", "add", A, status=None).status != 0:
    skip("this machine does not allow network namespaces")
try:
    run("ip", "netns", "add", B)
    run("ip", "link", "add", "link-a", "netns", A, "type", "veth", "peer", "name", "link-b", "netns", B)
    for host, device in ((A, "link-a"), (B, "link-b")):
        run("ip", "-n", host, "addr", "add", HOSTS[host] + "/24", "dev", device)
        run("ip", "-n", host, "link", "set", "lo", "up")
        run("ip", "-n", host, "link", "set", device, "up")
    run_parts(agree, tests_pass, cut)
finally:
    for host in HOSTS:
        run("ip", "netns", "del", host, status=None)
