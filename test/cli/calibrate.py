"""Tests the verb calibrate: for any number of ranks it writes files that compare reads, and it measures nothing twice.
Arguments: the launcher build/mpiexec and the program build/partita."""

import os
import re
import subprocess
import sys
import tempfile

LAUNCHER, PROGRAM = map(os.path.abspath, sys.argv[1:3])
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


def run(ranks, *arguments):
    command = ([LAUNCHER, "-n", str(ranks)] if ranks else []) + [PROGRAM, *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert result.returncode == 0, f"{command}: status {result.returncode}\n{result.stdout}{result.stderr}"
    return result.stdout


def calibrate(ranks, *arguments):
    return run(ranks, "calibrate", *LENET, "--kernels", "", "--out", machine, *arguments)


def check(name, holds, shown=""):
    print(f"{'ok  ' if holds else 'FAIL'} {name}")
    assert holds, shown


def text(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


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
                with open(os.path.join(group, name), "w", encoding="utf-8") as file:
                    file.write(value)
            return group
        except OSError:
            os.rmdir(group)
    return None


def test_quota(group):
    """Processes that the kernel stops while they measure."""
    words = [LAUNCHER, "-n", "2", PROGRAM, "calibrate", *LENET, "--kernels", "", "--out", os.path.join(folder, "limited.toml")]
    inside = ["sh", "-c", f"echo $$ > {group}/cgroup.procs && exec \"$@\"", "sh"]
    result = subprocess.run([*inside, *words], capture_output=True, text=True, timeout=200, check=False)
    check("a limit on the time of cores is noticed", result.returncode == 3 and "may use 0.5 cores, so the times are wrong" in result.stderr and
          not os.path.exists(os.path.join(folder, "limited.toml")), f"{result.returncode}\n{result.stdout}{result.stderr}")
    info = subprocess.run([*inside, PROGRAM, "info"], capture_output=True, text=True, timeout=60, check=False).stdout
    check("info shows it", re.search(r"quota +the time of 0\.5 cores", info), info)


with tempfile.TemporaryDirectory() as folder:
    if group := limited_group():
        try:
            test_quota(group)
        finally:
            os.rmdir(group)
    else:
        print("note: this user cannot make a control group; base/host_test.cpp tests how limits are read")
    machine, strategy = (os.path.join(folder, name) for name in ("machine.toml", "pipeline.toml"))
    with open(strategy, "w", encoding="utf-8") as file:
        file.write(PIPELINE)

    with open(machine, "w", encoding="utf-8") as file:
        file.write('name = "mine"\n')
    refused = subprocess.run([PROGRAM, "calibrate", *LENET], capture_output=True, text=True, timeout=100, check=False, cwd=folder)
    check("without --out it does not replace a machine file that it did not write", refused.returncode == 2 and
          "machine.toml exists, and no calibration wrote it" in refused.stderr and text(machine) == 'name = "mine"\n', refused.stderr)

    shown = calibrate(1)
    check("with one rank it says what is assumed", "note       with one rank, latency and bandwidth cannot be measured" in shown and
          text(machine).count('latency = { us = 1.5, from = "assumed: ') == 1, shown + text(machine))
    check("compare reads its file", "ms/step" in run(0, "compare", *LENET, "--machine", machine))

    shown = calibrate(3)
    check("three ranks", re.search(r"levels: node; [\d.]+ s\n", shown) and "verb = \"all_reduce\"\nranks = 3" in text(machine),
          shown + text(machine))

    calibrate(2, "--strategies", strategy)
    known = text(machine + ".times")
    shown = run(0, "compare", *LENET, "--machine", machine, "--strategies", strategy)
    stages = re.search(r"kernels  (\d+) of (\d+) layers use measured times", shown)
    check("two ranks measure the stages of a strategy for four", stages and stages[1] == stages[2], shown)
    again = calibrate(2, "--strategies", strategy)
    check("known times are not measured again", re.search(r"\(1 of 1\): 0 measured, \d+ in total", again) and
          text(machine + ".times") == known, again)

    shown = calibrate(2, "--dtype", "f64")
    check("times of another data type are added", "will be replaced" not in shown and len(text(machine + ".times")) > len(known), shown)
    shown = run(0, "compare", *LENET, "--grid", "data=2", "--rule", "*: N@data", "--machine", machine, "--dtype", "f64")
    measured = re.search(r"kernels  (\d+) of (\d+) layers use measured times", shown)
    check("times in f64 are used", measured and measured[1] == measured[2], shown)
    if "onednn" in known:
        shown = run(0, "compare", *LENET, "--machine", machine, "--strategies", strategy, "--backend", "reference")
        check("times of another backend are not used", "kernels  0 of" in shown, shown)
