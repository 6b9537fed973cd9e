"""Tests what a process makes of its surroundings: variables of launchers that MPI knows nothing of, standard input,
signals that a library has taken, systems with very many cores, and folders of caches.
Arguments: the launcher build/mpiexec, the program build/partita."""

import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time

LAUNCHER, PROGRAM = map(os.path.abspath, sys.argv[1:3])
SMALL = ["--model", "mlp", "--widths", "8", "--data", "synthetic", "--samples", "32", "--batch", "16", "--no-test", "--kernels", ""]
# Variables that tell process 1 of 4 what it is. PALS tells no number of processes.
LAUNCHERS = {
    "Slurm": {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "4", "SLURM_NTASKS": "4"},
    "PMI": {"PMI_RANK": "1", "PMI_SIZE": "4"},
    "PMIx": {"PMIX_RANK": "1", "PMIX_SIZE": "4"},
    "PMIx without a size": {"PMIX_RANK": "3"},
    "Open MPI": {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4"},
    "MVAPICH": {"MV2_COMM_WORLD_RANK": "1", "MV2_COMM_WORLD_SIZE": "4"},
    "jsrun": {"JSM_NAMESPACE_RANK": "1", "JSM_NAMESPACE_SIZE": "4"},
    "Hydra on one node": {"MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "4"},
    "PALS": {"PALS_RANKID": "3"},
    "ALPS": {"ALPS_APP_PE": "3"},
    "Flux": {"FLUX_TASK_RANK": "1", "FLUX_JOB_SIZE": "4"},
}
ALONE = {
    "a shell of salloc": {"SLURM_NTASKS": "4", "SLURM_JOB_ID": "7"},
    "a script of sbatch": {"SLURM_NTASKS": "4", "SLURM_PROCID": "0", "SLURM_JOB_ID": "7"},
    "a step of one process": {"SLURM_NTASKS": "4", "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"},
    "mpiexec of one process in a step of four": {"SLURM_PROCID": "2", "SLURM_STEP_NUM_TASKS": "4", "OMPI_COMM_WORLD_SIZE": "1",
                                                 "OMPI_COMM_WORLD_RANK": "0"},
}
BATCH_SYSTEMS = ["Slurm", "PALS", "ALPS", "Flux"]  # they start programs of any kind, not only those of MPI
failures = []


def check(name, holds, shown=""):
    print(f"{'ok  ' if holds else 'FAIL'} {name}")
    if not holds:
        failures.append(name)
        print(shown)


def run(*arguments, variables=None, command=(), **more):
    environment = {**os.environ, **(variables or {})}
    result = subprocess.run([*command, PROGRAM, *arguments], env=environment, capture_output=True, text=True, timeout=60, check=False, **more)
    return result.returncode, result.stdout, result.stderr


def test_processes_that_mpi_does_not_connect():
    for name, variables in LAUNCHERS.items():
        if "PMI_RANK" in variables or "PMIX_RANK" in variables:
            continue  # MPI itself reads these; see below
        status, out, err = run("train", *SMALL, "--save", "w.h5", variables=variables)
        check(f"{name}: a process that MPI does not connect does not train", status == 2 and "4 processes were started" in err and
              "MPI sees this one alone" in err and err.count("\n") == 1 and "epoch" not in out and not os.path.exists("w.h5"), out + err)
        status, out, err = run("train", *SMALL, "--grid", "data=4", variables=variables)
        check(f"{name}: the ranks of a grid are not asked for first", status == 2 and "MPI sees this one alone" in err, out + err)
    for name, variables in ALONE.items():
        status, out, err = run("train", *SMALL, variables=variables)
        check(f"{name} trains", status == 0 and "ranks      1" in out and err == "", out + err)
        status, out, err = run("train", *SMALL, "--ranks", "2", variables=variables)
        check(f"{name} trains with --ranks 2", status == 0 and "ranks      2" in out and err == "", out + err)
    status, out, err = run("train", *SMALL, variables={"PALS_RANKID": "0"})
    check("the first process of PALS notes that it may have others", status == 0 and "ranks      1" in out and
          "note: PALS_RANKID=0 does not tell how many processes were started" in err and err.count("\n") == 1, out + err)
    status, out, err = run("train", *SMALL, command=[LAUNCHER, "-n", "2"], variables=LAUNCHERS["Slurm"])
    check("mpiexec of two in a step of four trains", status == 0 and "ranks      2" in out and err == "", out + err)


def test_output_of_every_process():
    for name, variables in LAUNCHERS.items():
        for verb in (["explain", "--model", "mlp", "--widths", "8"], ["info"], ["--help"], ["schedule"], ["train", "--ranks", "2", "--help"]):
            status, out, err = run(*verb, variables=variables)
            check(f"{name}: {' '.join(verb)} prints", status == 0 and len(out) > 200 and err == "", out + err)
        status, out, err = run("nosuchverb", variables=variables)
        check(f"{name}: an error is printed", status == 2 and err.startswith("partita: there is no verb 'nosuchverb'") and out == "", out + err)
        status, out, err = run("train", *SMALL, "--ranks", "2", variables=variables)
        if name in BATCH_SYSTEMS:
            check(f"{name}: processes train independently with --ranks", status == 0 and "ranks      2" in out and err == "", out + err)
        else:
            check(f"{name}: --ranks is refused with a message", status == 2 and "--ranks 2: the ranks are threads of one process, but 4 processes" in err and
                  err.count("\n") == 1, out + err)


def test_streams():
    with open("s.toml", "w", encoding="utf-8") as file:
        file.write('grid = "data=2"\n[[layer]]\nmatch = "*"\noutput = "N@data"\n')
    text = open("s.toml", encoding="utf-8").read()
    for verb, more in (("train", ["--ranks", "2"]), ("compare", ["--strategies", "/dev/stdin"]), ("explain", [])):
        given = [] if verb == "compare" else ["--strategy", "/dev/stdin"]
        small = SMALL if verb == "train" else ["--model", "mlp", "--widths", "8", "--batch", "16"]
        status, out, err = run(verb, *small, *given, *more, input=text)
        check(f"{verb} reads a strategy from a pipe", status == 0 and (verb == "compare" or 'grid "data=2"' in out or "N@data" in out) and err == "", out + err)
    script = f"{PROGRAM} train {' '.join(SMALL[:-2])} --kernels '' --ranks 2 --strategy <(cat s.toml)"
    result = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, check=False)
    check("a process substitution is read once by all ranks", result.returncode == 0 and 'grid "data=2"' in result.stdout, result)
    for option in ("--strategy", "--machine", "--options"):
        began = time.monotonic()
        status, out, err = run("train", *SMALL, option, "/dev/stdin", command=[LAUNCHER, "-n", "2"], input=text)
        check(f"{option} /dev/stdin of two processes is refused at once", status == 2 and "pass a regular file" in err and
              f"{option} /dev/stdin: 2 processes were started" in err and time.monotonic() - began < 20, out + err)


def test_hangup():
    """UCX, which MPICH loads, handles SIGHUP. nohup has it ignored, and that stays so."""
    for name, command, ends in (("processes", [], True), ("threads", [], True), ("nohup", ["nohup"], False)):
        more = ["--ranks", "2"] if name == "threads" else []
        with open("log", "w+", encoding="utf-8") as log, subprocess.Popen([*command, PROGRAM, "train", *SMALL, "--epochs", "1000000", *more],
                                                                         stdin=subprocess.DEVNULL, stdout=log, stderr=log) as job:
            until = time.monotonic() + 30
            while "epoch 1" not in open("log", encoding="utf-8").read() and time.monotonic() < until:
                time.sleep(0.05)
            job.send_signal(signal.SIGHUP)
            try:
                status = job.wait(timeout=10 if ends else 1)
            except subprocess.TimeoutExpired:
                status = None
            if status is None:
                job.kill()
        text = open("log", encoding="utf-8").read()
        check(f"SIGHUP to {name}", (status == -signal.SIGHUP) if ends else status is None, f"{status}\n{text[-2000:]}")
        check(f"SIGHUP to {name}: no line of UCX, and one message", "UCX" not in text and
              text.count("was told to end (SIGHUP); the job ends") == (1 if name == "processes" else 0), text[-2000:])


MANY_CORES = """
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <string.h>
int sched_getaffinity(pid_t process, size_t bytes, cpu_set_t* cores) {
  (void)process;
  if (bytes < 512) { errno = EINVAL; return -1; }  /* a system with 4096 cores */
  memset(cores, 0, bytes);
  memset((char*)cores + 400, 255, 1);  /* of which this process may use 8, beyond the first 1024 */
  return 0;
}
"""


def test_many_cores():
    with open("many.c", "w", encoding="utf-8") as file:
        file.write(MANY_CORES)
    subprocess.run([shutil.which("cc") or "gcc", "-shared", "-fPIC", "-o", "many.so", "many.c"], check=True, timeout=60)
    many = {"LD_PRELOAD": os.path.abspath("many.so")}
    status, out, err = run("info", variables=many)
    check("info counts cores beyond 1024", status == 0 and re.search(r"cores +8 of", out), out + err)
    status, out, err = run("train", *SMALL, "--threads", "65", variables=many)
    check("--threads knows cores beyond 1024", status == 2 and "a rank may use 8 cores" in err, out + err)
    status, out, err = run("train", *SMALL, variables=many, command=[LAUNCHER, "-n", "2"])
    check("ranks of MPI train with cores beyond 1024", status == 0 and "ranks      2" in out, out + err)


def test_cache_folder():
    os.makedirs("home", exist_ok=True)
    home = os.path.abspath("home")
    for given, expected in (("relative", f"{home}/.cache/partita"), ("", f"{home}/.cache/partita"), (home, f"{home}/partita")):
        status, out, err = run("info", variables={"XDG_CACHE_HOME": given, "HOME": home})
        check(f"XDG_CACHE_HOME={given}", status == 0 and re.search(rf"kernels +{expected} ", out), out + err)
    status, out, err = run("info", variables={"XDG_CACHE_HOME": "", "HOME": "home"})
    check("a relative HOME is not taken", status == 0 and not re.search(r"kernels +home/", out), out + err)
    nowhere = {"XDG_CACHE_HOME": "", "HOME": "/dev/null"}
    status, out, err = run("info", variables=nowhere)
    check("info says that no folder can be in a file", status == 0 and re.search(r"kernels +/dev/null/\.cache/partita \(cannot be created", out), out + err)
    small = SMALL[:-2]
    status, out, err = run("train", *small, "--steps", "1", variables=nowhere)
    check("train says the same", status == 0 and "Not a directory" in out + err, out + err)


def test_limits_of_file_sizes():
    def limited(size, *arguments):
        return run(*arguments, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)))

    for ranks in ("1", "2"):  # without MPI: UCX needs larger files to start
        status, out, err = limited(40 << 10, "train", *SMALL, "--ranks", ranks, "--save", "limited.h5")
        check("a checkpoint beyond the limit is named, and not left behind", status == 2 and "limited.h5" in err and "File too large" in err and
              not [name for name in os.listdir() if name.startswith("limited.h5")], out + err)
    status, out, err = limited(1 << 10, "info", "--json", "limited.json")
    check("so is another file", status == 2 and "limited.json" in err and "File too large" in err, out + err)


def test_pipes():
    """To open a pipe would wait for somebody who writes."""
    os.mkfifo("pipe.h5")
    status, out, err = run("train", *SMALL, "--load", "pipe.h5")
    check("a checkpoint that is a pipe is refused", status == 2 and "'pipe.h5' is not seekable" in err, out + err)
    os.mkdir("pipes")
    for name in ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz", "training.h5"):
        os.mkfifo(f"pipes/{name}")
    for data in ("fashion-mnist", "hdf5"):
        status, out, err = run("train", "--model", "mlp", "--data", data, "--data-dir", "pipes")
        check(f"pipes in the folder of {data} are refused", status == 2 and "is not seekable; give a regular file" in err, out + err)


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    for part in (test_processes_that_mpi_does_not_connect, test_output_of_every_process, test_streams, test_hangup, test_many_cores,
                 test_cache_folder, test_limits_of_file_sizes, test_pipes):
        began = time.monotonic()
        part()
        print(f"     {part.__name__}: {time.monotonic() - began:.1f} s")
    os.chdir("/")
print(f"{len(failures)} failed")
sys.exit(1 if failures else 0)
