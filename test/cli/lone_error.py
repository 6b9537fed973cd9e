"""Tests that an error or a fault on one rank during training ends the whole job at once, and that the output names the
rank. Arguments: the launcher build/mpiexec and the program build/test/lone_error."""

import os
import re
import signal
import subprocess
import sys
import time

LAUNCHER, PROGRAM = map(os.path.abspath, sys.argv[1:3])
CASES = [  # rank, kind of failure, message, exit status of the job; a launcher may add 128 to a signal
    (1, "error", r"rank 1: layer 'weak': it broke", 2),
    (0, "memory", r"rank 0: out of memory: .*; use more ranks, .*", 1),
    (3, "exception", r"rank 3: something else", 1),
    (2, "fault", r"partita: rank 2 \(process \d+ on \S+\) died; the job ends", signal.SIGSEGV),
]
environment = {name: value for name, value in os.environ.items() if not name.startswith("UCX_")}
failures = 0
for rank, how, message, status in CASES:
    job = subprocess.Popen([LAUNCHER, "-n", "4", PROGRAM, "train", "--data", "synthetic", "--batch", "16", "--no-test"],
                           env={**environment, "FAIL_RANK": str(rank), "FAIL_HOW": how}, stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, text=True)
    head = ""
    while "\nranks" not in head and job.poll() is None:  # do not count the start of the ranks, which may be slow
        head += job.stdout.readline()
    start = time.monotonic()
    try:
        out, err = job.communicate(timeout=10)
    except subprocess.TimeoutExpired:
        job.terminate()  # the launcher also ends its ranks
        out, err = job.communicate()
    seconds = time.monotonic() - start
    ours = [line for line in err.splitlines() if line.startswith(("rank", "partita"))]
    good = job.returncode % 128 == status and seconds < 10 and len(ours) == 1 and re.fullmatch(message, ours[0])
    print(f"{'ok  ' if good else 'FAIL'} {how} on rank {rank}: status {job.returncode}, {seconds:.1f} s, {ours}")
    if not good:
        failures += 1
        print(head + out + err)
sys.exit(1 if failures else 0)
