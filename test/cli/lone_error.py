"""Tests that an error or a fault on one rank during training ends the whole job at once, and that the output names the
rank. Arguments: the launcher build/mpiexec and the program build/test/lone_error."""

import os
import re
import signal
import subprocess
import sys
import time

from checks import Program, begin, check, end_of, finish

program = Program(sys.argv[2], sys.argv[1])
CASES = [  # rank, kind of failure, message, exit status of the job; a launcher may add 128 to a signal
    (1, "error", r"rank 1: layer 'weak': it broke", 2),
    (0, "memory", r"rank 0: out of memory: .*; use more ranks, .*", 1),
    (3, "exception", r"rank 3: something else", 1),
    (2, "fault", r"partita: rank 2 \(process \d+ on \S+\) died; the job ends", signal.SIGSEGV),
]
environment = {name: value for name, value in os.environ.items() if not name.startswith("UCX_")}
for rank, how, message, status in CASES:
    job = program.start("train", "--data", "synthetic", "--batch", "16", "--no-test", ranks=4, stderr=subprocess.PIPE,
                        env={**environment, "FAIL_RANK": str(rank), "FAIL_HOW": how})
    head = begin(job, "ranks")  # do not count the start of the ranks, which may be slow
    start = time.monotonic()
    try:
        ran = end_of(job, head, timeout=10)
    except subprocess.TimeoutExpired:
        job.terminate()  # the launcher also ends its ranks
        ran = end_of(job, head)
    seconds = time.monotonic() - start
    check(f"{how} on rank {rank}: status {ran.status}, {seconds:.1f} s, {ran.errors}", ran.status % 128 == status and
          seconds < 10 and len(ran.errors) == 1 and re.fullmatch(message, ran.errors[0]), ran)
finish()
