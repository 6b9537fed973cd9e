"""Tests what ranks say about their launcher and about each other: a launcher that is killed ends the job within seconds
and is named once; ranks without a launcher are reported each time that they die; a rank that waits for long says for
whom and where, and goes on. Arguments: the launcher build/mpiexec, the program build/partita."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time

LAUNCHER, PROGRAM = map(os.path.abspath, sys.argv[1:3])
TRAIN = ["train", "--data", "synthetic", "--samples", "512", "--batch", "64", "--epochs", "100000", "--no-test", "--kernels", ""]
PATIENCE = 6  # seconds in which a job must be gone; the ranks look every half second
failures = []


def check(name, holds, shown=""):
    print(f"{'ok  ' if holds else 'FAIL'} {name}")
    if not holds:
        failures.append(name)
        print(shown)


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def parent(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        return int(file.read().rsplit(")", 1)[1].split()[1])


def start(log, ranks, *more):
    """Starts a job whose output is appended to a log, so that the launcher does not overwrite what ranks write."""
    launch = [LAUNCHER, "-n", str(ranks)] if ranks else []
    job = subprocess.Popen([*launch, PROGRAM, *TRAIN, *more], stdout=log, stderr=log)
    until = time.monotonic() + 30
    while time.monotonic() < until:
        text = open(log.name, encoding="utf-8").read()
        if "epoch 1" in text:
            return job, [int(pid) for pid in re.findall(r" \d+:(\d+)", re.search("ranks .*", text)[0])]
        time.sleep(0.05)
    sys.exit("FAIL: the job did not start\n" + text)


def gone(pids):
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and any(map(alive, pids)):
        time.sleep(0.05)
    return not any(map(alive, pids))


def text_of(log, awaited="\n"):
    """Returns what a log has, once it has what is awaited or no patience is left."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and awaited not in open(log.name, encoding="utf-8").read():
        time.sleep(0.05)
    time.sleep(0.3)  # whatever else follows at once
    return open(log.name, encoding="utf-8").read()


with tempfile.TemporaryDirectory() as folder, open(os.path.join(folder, "log"), "a", encoding="utf-8") as log:
    job, ranks = start(log, 2)
    os.kill(job.pid, signal.SIGKILL)
    job.wait()
    check("the launcher is killed: the ranks end", gone(ranks), ranks)
    said = [line for line in text_of(log, "the job ends").splitlines() if "the job ends" in line]
    check("one rank says so", len(said) == 1 and re.fullmatch(r"partita: the launcher \(process \d+ on \S+\) died; the job ends", said[0]), text_of(log))

# mpiexec starts a helper on each node, which starts the ranks. When that is killed, nobody is left to end them.
with tempfile.TemporaryDirectory() as folder, open(os.path.join(folder, "log"), "a", encoding="utf-8") as log:
    job, ranks = start(log, 2)
    helper = parent(ranks[0])
    if helper != job.pid:
        os.kill(helper, signal.SIGKILL)
        check("the launcher's helper is killed: the ranks end", gone(ranks), ranks)
        said = [line for line in text_of(log, "the job ends").splitlines() if "the job ends" in line]
        check("one rank says so, too", len(said) == 1 and "the launcher" in said[0], text_of(log))
    job.kill()
    job.wait()

# Without a launcher, this program is the parent of both ranks.
for death in ("first", "second"):
    with tempfile.TemporaryDirectory() as folder, open(os.path.join(folder, "log"), "a", encoding="utf-8") as log:
        job, ranks = start(log, 0)
        os.kill(ranks[0], signal.SIGKILL)
        job.wait()
        said = [line for line in text_of(log, "the job ends").splitlines() if "died; the job ends" in line]
        check(f"the {death} death of a rank without a launcher is reported", len(said) == 1, text_of(log))

with tempfile.TemporaryDirectory() as folder, open(os.path.join(folder, "log"), "a", encoding="utf-8") as log:
    job, ranks = start(log, 3, "--wait-note", "1", "--rule", "*: N@data")
    os.kill(ranks[1], signal.SIGSTOP)
    time.sleep(2.5)
    said = [line for line in text_of(log).splitlines() if "has waited" in line]
    os.kill(ranks[1], signal.SIGCONT)
    for rank in (0, 2):
        mine = [line for line in said if line.startswith(f"note: rank {rank} has waited 1 s for rank")]
        check(f"rank {rank} says for whom it waits, and at which layer", len(mine) == 1 and
              re.search(r"for ranks? [\d, ]*\b1\b.* at layer '\w+'; it goes on waiting", mine[0]), said)
    before = text_of(log).count("epoch")
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and text_of(log).count("epoch") <= before + 1:
        pass
    check("the job goes on", job.poll() is None and text_of(log).count("epoch") > before + 1)
    job.terminate()
    job.wait()

print(f"{len(failures)} failed")
sys.exit(1 if failures else 0)
