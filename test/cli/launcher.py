"""Tests what ranks say about their launcher and about each other: a launcher that is killed ends the job within seconds
and is named once; ranks without a launcher are reported each time that they die; a rank that waits for long says for
whom and where, and goes on. Arguments: the launcher build/mpiexec, the program build/partita."""

import contextlib
import os
import re
import signal
import sys
import time

from checks import Program, check, finish, new_folder, processes, read, remember

partita = Program(sys.argv[2], sys.argv[1])
TRAIN = ["train", "--data", "synthetic", "--samples", "512", "--batch", "64", "--epochs", "100000", "--no-test",
         "--kernels", ""]
PATIENCE = 6  # seconds in which a job must be gone; the ranks look every half second


def status_of(pid):
    """Returns the state of a process and its parent. A process that ended has the state X."""
    try:
        state, parent = read(f"/proc/{pid}/stat").rsplit(")", 1)[1].split()[:2]
    except OSError:
        return "X", 0
    return state, int(parent)


def until(holds, seconds=PATIENCE):
    """Waits until something holds, and returns whether it does."""
    end = time.monotonic() + seconds
    while not holds() and time.monotonic() < end:
        time.sleep(0.05)
    return holds()


def gone(pids):
    """Returns whether processes end in time."""
    return until(lambda: all(status_of(pid)[0] in "ZX" for pid in pids))


@contextlib.contextmanager
def started(ranks, *more):
    """Starts a job whose output is appended to a log, so that the launcher does not overwrite what ranks write. Gives
    the job and the process numbers of its ranks."""
    with new_folder(), open("log", "a", encoding="utf-8") as log:
        job = partita.start(*TRAIN, *more, ranks=ranks, stdout=log, stderr=log)
        assert until(lambda: "epoch 1" in read("log"), 30), read("log")
        pids = processes(read("log"))
        try:
            yield job, [pids[rank] for rank in sorted(pids)]
        finally:
            job.kill()
            job.wait()
        remember(read("log"), job.args)


def said(part, awaited="\n"):
    """Returns the lines of the log with a part, once the log has what is awaited or no patience is left."""
    until(lambda: awaited in read("log"))
    time.sleep(0.3)  # whatever else follows at once
    return [line for line in read("log").splitlines() if part in line]


with started(2) as (job, ranks):
    os.kill(job.pid, signal.SIGKILL)
    job.wait()
    check("the launcher is killed: the ranks end", gone(ranks), ranks)
    lines = said("the job ends", "the job ends")
    check("one rank says so", len(lines) == 1 and
          re.fullmatch(r"partita: the launcher \(process \d+ on \S+\) died; the job ends", lines[0]), read("log"))

# mpiexec starts a helper on each node, which starts the ranks. When that is killed, nobody is left to end them.
with started(2) as (job, ranks):
    helper = status_of(ranks[0])[1]
    if helper != job.pid:
        os.kill(helper, signal.SIGKILL)
        check("the launcher's helper is killed: the ranks end", gone(ranks), ranks)
        lines = said("the job ends", "the job ends")
        check("one rank says so, too", len(lines) == 1 and "the launcher" in lines[0], read("log"))

# Without a launcher, this program is the parent of both ranks.
for death in ("first", "second"):
    with started(0) as (job, ranks):
        os.kill(ranks[0], signal.SIGKILL)
        job.wait()
        lines = said("died; the job ends", "the job ends")
        check(f"the {death} death of a rank without a launcher is reported", len(lines) == 1, read("log"))

with started(3, "--wait-note", "1", "--rule", "*: N@data") as (job, ranks):
    os.kill(ranks[1], signal.SIGSTOP)
    time.sleep(2.5)
    lines = said("has waited")
    os.kill(ranks[1], signal.SIGCONT)
    for rank in (0, 2):
        mine = [line for line in lines if line.startswith(f"note: rank {rank} has waited 1 s for rank")]
        check(f"rank {rank} says for whom it waits, and at which layer", len(mine) == 1 and
              re.search(r"for ranks? [\d, ]*\b1\b.* at layer '\w+'; it goes on waiting", mine[0]), lines)
    before = read("log").count("epoch")
    until(lambda: read("log").count("epoch") > before + 1)
    check("the job goes on", job.poll() is None and read("log").count("epoch") > before + 1)
    job.terminate()
    job.wait()
finish()
