"""An error that one rank alone meets in the middle of training takes the whole job down at once, named with the rank.
Arguments: the launcher build/mpiexec and the program build/test/lone_error."""

import os
import subprocess
import sys
import time

LAUNCHER, PROGRAM = map(os.path.abspath, sys.argv[1:3])
failures = 0
for rank, how, message, status in ((1, "error", "layer 'weak': it broke", 2), (0, "memory", "out of memory", 1),
                                   (3, "exception", "something else", 1)):
    job = subprocess.Popen([LAUNCHER, "-n", "4", PROGRAM, "train", "--data", "synthetic", "--batch", "16", "--no-test"],
                           env={**os.environ, "FAIL_RANK": str(rank), "FAIL_HOW": how}, stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, text=True)
    head = ""
    while "\nranks" not in head and job.poll() is None:  # not their start, which may be slow
        head += job.stdout.readline()
    start = time.monotonic()
    out, err = job.communicate(timeout=50)
    seconds = time.monotonic() - start
    ours = [line for line in err.splitlines() if line.startswith(("rank", "partita"))]
    good = job.returncode == status and seconds < 10 and ours == [f"rank {rank}: {message}"]
    print(f"{'ok  ' if good else 'FAIL'} {how} on rank {rank}: status {job.returncode}, {seconds:.1f} s, {ours}")
    if not good:
        failures += 1
        print(head + out + err)
sys.exit(1 if failures else 0)
