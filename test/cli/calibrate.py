"""Tests the verb calibrate: for any number of ranks it writes files that compare reads (compare.py: known times stay).
Arguments: the launcher build/mpiexec and the program build/partita."""

import os
import re
import sys

from checks import Program, check, finish, new_folder, read, write

partita = Program(sys.argv[2], sys.argv[1], timeout=100)
LENET = ["--model", "lenet5", "--batch", "8"]
PIPELINE = """grid = "y=2"
[schedule]
kind = "gpipe"
microbatches = 2
[[group]]
layers = ["image", "pool1"]
[[group]]
layers = ["conv2", "loss"]
[[layer]]
match = "*"
output = "N H@y"
"""


def calibrate(ranks, *arguments):
    """Calibrates into machine.toml, and returns the output."""
    return partita("calibrate", *LENET, "--kernels", "", "--out", "machine.toml", *arguments, ranks=ranks).out


def compare(*arguments):
    """Compares on the calibrated machine, and returns the output."""
    return partita("compare", *LENET, "--machine", "machine.toml", *arguments).out


def limited_group():
    """A control group that may use half a core, as of `docker run --cpus 0.5`. None if this user cannot make one."""
    for root, files in (("/sys/fs/cgroup/cpu", {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "50000"}),
                        ("/sys/fs/cgroup/cpu,cpuacct", {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "50000"}),
                        ("/sys/fs/cgroup", {"cpu.max": "50000 100000"})):
        group = os.path.join(root, f"partita-test-{os.getpid()}")
        try:
            os.mkdir(group)
        except OSError:
            continue
        try:
            for name, value in files.items():
                write(os.path.join(group, name), value)
            return group
        except OSError:
            os.rmdir(group)
    return None


def check_quota(group):
    """Checks what is said about processes that the kernel stops while they measure."""
    inside = ["sh", "-c", f"echo $$ > {group}/cgroup.procs && exec \"$@\"", "sh"]
    ran = partita("calibrate", *LENET, "--kernels", "", "--out", "a.toml", ranks=2, before=inside, timeout=200,
                  status=3)
    check("a limit on the time of cores is noticed", "may use 0.5 cores, so the times are wrong" in ran.err and
          not os.path.exists("a.toml"), ran)
    info = partita("info", before=inside).out
    check("info shows it", re.search(r"quota +the time of 0\.5 cores", info), info)


with new_folder():
    if group := limited_group():
        try:
            check_quota(group)
        finally:
            os.rmdir(group)
    else:
        print("note: this user cannot make a control group; base/host_test.cpp tests how limits are read")
    write("pipeline.toml", PIPELINE)

    write("machine.toml", 'name = "mine"\n')
    ran = partita("calibrate", *LENET, status=2)
    check("without --out it does not replace a machine file that it did not write",
          "machine.toml exists, and no calibration wrote it" in ran.err and read("machine.toml") == 'name = "mine"\n',
          ran)

    shown = calibrate(1)
    check("with one rank it says what is assumed",
          "note       with one rank, latency and bandwidth cannot be measured" in shown and
          read("machine.toml").count('latency = { us = 1.5, from = "assumed: ') == 1 and
          "one rank alone measures no network" in read("machine.toml"), shown + read("machine.toml"))
    check("compare reads its file", "ms/step" in compare())

    shown = calibrate(3)
    check("three ranks", re.search(r"levels: node; [\d.]+ s\n", shown) and
          "verb = \"all_reduce\"\nranks = 3" in read("machine.toml"), shown + read("machine.toml"))

    calibrate(2, "--strategies", "pipeline.toml")
    known = read("machine.toml.times")
    shown = compare("--strategies", "pipeline.toml")
    stages = re.search(r"kernels  (\d+) of (\d+) layers use measured times", shown)
    check("two ranks measure the stages of a strategy for four", stages and stages[1] == stages[2], shown)

    shown = calibrate(2, "--dtype", "f64")
    check("times of another data type are added", "will be replaced" not in shown and
          len(read("machine.toml.times")) > len(known), shown)
    shown = compare("--grid", "data=2", "--rule", "*: N@data", "--dtype", "f64")
    measured = re.search(r"kernels  (\d+) of (\d+) layers use measured times", shown)
    check("times in f64 are used", measured and measured[1] == measured[2], shown)
    if "onednn" in known:
        shown = compare("--strategies", "pipeline.toml", "--backend", "reference")
        check("times of another backend are not used", "kernels  0 of" in shown, shown)
finish()
