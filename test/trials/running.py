"""Cases about running: ranks, memory, signals, times."""

import collections
import os
import pathlib
import signal
import subprocess
import time

from trial import case

SOURCE = pathlib.Path(__file__).resolve().parents[2]
SMALL = ["--model", "lenet5", "--data", "synthetic", "--samples", 32, "--batch", 16, "--steps", 1, "--no-test", "--kernels", ""]
# A host whose mask of processors has more than 1024 bits, of which 64 are set.
MANY_PROCESSORS = """#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <string.h>
int sched_getaffinity(pid_t pid, size_t size, cpu_set_t* mask) {
  (void)pid;
  if (size < 256) { errno = EINVAL; return -1; }
  memset(mask, 0, size);
  memset(mask, 255, 8);
  return 0;
}
"""


@case
def memory_of_a_pool_that_overlaps(shell):
    """A rank holds more than was predicted if halos travel while pools compute (kind of report: PyTorch and DeepSpeed,
    out of memory above the estimate). Right: both numbers are equal."""
    words = ["--grid", "y=2", "--rule", "*: H@y", "--data", "synthetic", "--samples", 4, "--batch", 4, "--steps", 1, "--kernels", "",
             "--no-test", "--json", "m.json"]
    for more in ([], ["--no-overlap"], ["--model", "lenet5", "--size", 64]):
        shell.on_ranks(2, "train", *words, *more, MPIR_CVAR_NOLOCAL="1")  # each rank is a node of its own
        result = shell.json("m.json")
        assert result["predicted_memory"] == result["measured_memory"] > 0, (more, result["predicted_memory"], result["measured_memory"])


@case
def processes_that_mpi_does_not_connect(shell):
    """Four processes of a batch system that MPI does not connect train four times, each alone (kind of report: MPICH
    and Open MPI under Slurm). Right: an error before the training that names both numbers."""
    batch_systems = [{"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "4", "SLURM_NTASKS": "4"}, {"PMIX_RANK": "1", "PMIX_SIZE": "4"}]
    for variables in batch_systems:
        ran = shell.partita("train", *SMALL, status=None, **variables)
        assert ran.status == 2 and "4" in ran.text and "epoch" not in ran.text, (variables, ran)


@case
def a_predicted_timeline(shell):
    """Slices of one row overlap, and viewers drop them (kind of report: Perfetto). Right: none overlaps."""
    shell.partita("train", "--data", "synthetic", "--samples", 64, "--batch", 8, "--no-test", "--kernels", "", "--machine",
                  SOURCE / "examples/machines/two-cores.toml", "--scale-compute", 10, "--trace", "t.json")
    rows = collections.defaultdict(list)
    for event in shell.json("t.json")["traceEvents"]:
        if event["ph"] == "X":
            rows[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for row, slices in rows.items():
        slices.sort()
        assert all(a[1] <= b[0] + 1e-3 for a, b in zip(slices, slices[1:])), row


@case
def more_than_1024_possible_processors(shell):
    """The mask of processors does not fit into the type of 1024 bits (kind of report: MPICH and hwloc on large hosts).
    Right: the processors that may be used are counted."""
    library = shell.preload("many", MANY_PROCESSORS)
    ran = shell.partita("info", LD_PRELOAD=library)
    cores = [line for line in ran.out.splitlines() if line.split()[:1] == ["cores"]]
    assert len(cores) == 1 and "64" in cores[0], cores
    assert "may use 1 core" not in shell.partita("train", *SMALL, "--threads", 2, status=None, LD_PRELOAD=library).text


@case
def output_of_a_process_with_a_rank(shell):
    """Under a batch system, a verb that needs no ranks prints nothing on all but one process, and errors nowhere (kind
    of report: srun with one shell per task). Right: an error is always printed."""
    ran = shell.partita("nosuchverb", status=2, SLURM_PROCID="3")
    assert "nosuchverb" in ran.err, ran
    ran = shell.partita("explain", SLURM_PROCID="3")
    assert "total per step" in ran.out, ran


@case
def a_terminal_that_closes(shell):
    """A closed terminal or a lost connection does not end the job, since a library handles SIGHUP (kind of report:
    UCX). Right: it ends, and the library prints nothing."""
    words = [shell.programs.partita, "train", "--model", "lenet5", "--data", "synthetic", "--epochs", "400", "--no-test"]
    with open(shell.folder / "out", "w", encoding="utf-8") as out, \
            subprocess.Popen(words, stdout=out, stderr=out, cwd=shell.folder) as job:
        time.sleep(3)
        os.kill(job.pid, signal.SIGHUP)
        try:
            status = job.wait(10)
        except subprocess.TimeoutExpired:
            job.kill()
            status = 0
    text = (shell.folder / "out").read_text(encoding="utf-8")
    assert status != 0 and "UCX" not in text, (status, text[-1000:])


@case
def a_build_without_optimization(shell):
    """The program does not compile for a debugger (kind of report: GCC bugs with precompiled headers). Right: an
    intrinsic header compiles after the precompiled one."""
    shell.file("user.cpp", "#include <xmmintrin.h>\nvoid load(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }\n")
    options = ["-std=c++20", "-O0", "-g", "-I", SOURCE]
    shell.file("pch.hpp", (SOURCE / "src/pch.hpp").read_text(encoding="utf-8"))
    shell.run("g++", *options, "-x", "c++-header", "pch.hpp", "-o", "pch.hpp.gch")
    shell.run("g++", *options, "-Winvalid-pch", "-include", "pch.hpp", "-c", "user.cpp", "-o", "user.o")
