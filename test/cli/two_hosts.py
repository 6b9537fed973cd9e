"""Tests two hosts over TCP. The hosts are namespaces of network, processes, shared memory and host name, connected by a
virtual link. Training gives the same losses as on one host, MPI test programs pass, and if the link is cut the job ends
and says why. Needs root and the launcher of MPICH; otherwise the test is skipped (status 77). Arguments: the launcher
build/mpiexec, build/partita, the test programs."""

import json
import os
import re
import subprocess
import sys
import tempfile
import time

LAUNCHER, PROGRAM, *TESTS = map(os.path.abspath, sys.argv[1:])
RUNS = 6  # MPICH 4.0.2 hangs in MPI_Finalize in half of them
TRAIN = [PROGRAM, "train", "--data", "synthetic", "--samples", "512", "--batch", "32", "--dtype", "f64", "--grid", "data=2 y=2",
         "--rule", "conv*: N@data H@y"]
HOSTS = {f"partita-{os.getpid()}-{side}": f"10.77.0.{number}" for number, side in ((1, "a"), (2, "b"))}
A, B = HOSTS


def sh(*words, check=True):
    return subprocess.run(words, capture_output=True, text=True, check=check)


def skip(reason):
    print("skip:", reason)
    sys.exit(77)


def on_hosts(folder, *command):
    """Starts four ranks, two on each host. The launcher runs on A and reaches B as if by ssh."""
    launch = os.path.join(folder, "launch")
    with open(launch, "w") as file:
        file.write(f"""#!/bin/bash
while [[ $1 == -* ]]; do shift; done
case $1 in {HOSTS[A]}) host={A} ;; *) host={B} ;; esac
shift
exec ip netns exec $host unshare --ipc --uts --pid --fork --kill-child --mount-proc sh -c "hostname $host; $*"
""")
    os.chmod(launch, 0o755)
    hosts = ",".join(f"{address}:2" for address in HOSTS.values())
    at_home = ["ip", "netns", "exec", A, "unshare", "--uts", "sh", "-c", 'hostname "$0"; exec "$@"', A]
    return subprocess.Popen([*at_home, LAUNCHER, "-launcher", "ssh", "-launcher-exec", launch, "-hosts", hosts,
                             "-iface", "link-a", "-n", "4", *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finish(job, seconds):
    try:
        return job.communicate(timeout=seconds)[0]
    except subprocess.TimeoutExpired:
        job.terminate()
        sys.exit(f"FAIL: the job still runs after {seconds} s\n{job.communicate(timeout=10)[0]}")


def losses(path):
    with open(path) as file:
        found = json.load(file)
    return [*found["losses"], found["test"]["loss"]]


def agree(folder):
    one, two = os.path.join(folder, "one.json"), os.path.join(folder, "two.json")
    sh(LAUNCHER, "-n", "4", *TRAIN, "--json", one)
    expected, left = losses(one), 0
    for _ in range(RUNS):
        job = on_hosts(folder, *TRAIN, "--json", two)
        printed = finish(job, 90)
        hung = "MPI_Finalize has not returned" in printed
        left += hung
        assert job.returncode == 0 or hung, f"status {job.returncode}\n{printed}"
        found = losses(two)
        os.remove(two)
        assert len(found) == len(expected) and all(abs(x - y) <= 1e-9 * abs(y) for x, y in zip(found, expected)), (found, expected)
    print(f"ok   two hosts agree with one in {len(expected)} losses, {RUNS} runs; MPI_Finalize hung in {left}")


def tests_pass(folder):
    for program in TESTS:
        job = on_hosts(folder, program)
        printed = finish(job, 1500)  # with PARTITA_LONG the master test has 200 cases
        hung = "MPI_Finalize has not returned" in printed
        assert "[  PASSED  ]" in printed and "[  FAILED  ]" not in printed and (job.returncode == 0 or hung), printed
        print(f"ok   {os.path.basename(program)} passes over two hosts{'; MPI_Finalize hung' if hung else ''}")


def ranks_of(folder):
    found = []
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{process}/cmdline", "rb") as file:
                words = file.read().decode().split("\0")
        except OSError:
            continue
        if words[0] == PROGRAM and folder in words:
            found.append(process)
    return found


def cut(folder):
    """Cuts the link during training. The ranks of both hosts end by themselves. The launcher of MPICH does not notice
    the cut, so the test ends it."""
    job = on_hosts(folder, *TRAIN, "--epochs", "100000", "--no-test", "--timeout", "5", "--kernels", folder)
    for line in job.stdout:
        if line.startswith("epoch"):
            break
    assert len(ranks_of(folder)) >= 4
    sh("ip", "-n", A, "link", "set", "link-a", "down")
    start = time.monotonic()
    while ranks_of(folder) and time.monotonic() - start < 30:
        time.sleep(0.1)
    seconds, rest = time.monotonic() - start, ranks_of(folder)
    job.terminate()
    printed = job.communicate(timeout=30)[0]
    said = re.findall(r"rank \d \(process \d+ on (\S+)\) has waited 5 s for other ranks: .*; the job ends", printed)
    assert not rest and job.returncode != 0 and said == [A], f"{len(rest)} ranks left, status {job.returncode}\n{printed}"
    print(f"ok   a cut link ends the ranks of both hosts after {seconds:.1f} s, reported on A")


if os.geteuid() != 0:
    skip("network namespaces need root")
if sh("ip", "netns", check=False).returncode != 0:
    skip("there is no 'ip netns' (package iproute2)")
if "HYDRA" not in sh(LAUNCHER, "--version", check=False).stdout:
    skip("the launcher is not MPICH's")
if sh("ip", "netns", "add", A, check=False).returncode != 0:
    skip("this machine does not allow network namespaces")
try:
    sh("ip", "netns", "add", B)
    sh("ip", "link", "add", "link-a", "netns", A, "type", "veth", "peer", "name", "link-b", "netns", B)
    for host, device in ((A, "link-a"), (B, "link-b")):
        sh("ip", "-n", host, "addr", "add", HOSTS[host] + "/24", "dev", device)
        sh("ip", "-n", host, "link", "set", "lo", "up")
        sh("ip", "-n", host, "link", "set", device, "up")
    with tempfile.TemporaryDirectory() as workplace:
        agree(workplace)
        tests_pass(workplace)
        cut(workplace)
finally:
    for host in HOSTS:
        sh("ip", "netns", "del", host, check=False)
