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
import time

from checks import Program, check, read, refused, remember, run, run_parts, succeeded, write

partita = Program(sys.argv[2], sys.argv[1], status=None)
SMALL = ["--model", "mlp", "--widths", "8", "--data", "synthetic", "--samples", "32", "--batch", "16", "--no-test",
         "--kernels", ""]
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
ALONE = {"a shell of salloc": {"SLURM_NTASKS": "4", "SLURM_JOB_ID": "7"},
         "a script of sbatch": {"SLURM_NTASKS": "4", "SLURM_PROCID": "0", "SLURM_JOB_ID": "7"},
         "a step of one process": {"SLURM_NTASKS": "4", "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"},
         "mpiexec of one process in a step of four": {"SLURM_PROCID": "2", "SLURM_STEP_NUM_TASKS": "4",
                                                      "OMPI_COMM_WORLD_SIZE": "1", "OMPI_COMM_WORLD_RANK": "0"},}
BATCH_SYSTEMS = ["Slurm", "PALS", "ALPS", "Flux"]  # they start programs of any kind, not only those of MPI

def processes_that_mpi_does_not_connect():
    """Processes that a launcher has started, and that MPI does not connect."""
    for name, variables in LAUNCHERS.items():
        if "PMI_RANK" in variables or "PMIX_RANK" in variables:
            continue  # MPI itself reads these; see below
        ran = partita("train", *SMALL, "--save", "w.h5", variables=variables)
        refused(f"{name}: a process that is alone", ran, "4 processes were started", "MPI sees this one alone")
        check(f"{name}: it does not train", "epoch" not in ran.out and not os.path.exists("w.h5"), ran)
        ran = partita("train", *SMALL, "--grid", "data=4", variables=variables)
        refused(f"{name}: the ranks of a grid are not asked for first", ran, "MPI sees this one alone")
    for name, variables in ALONE.items():
        succeeded(f"{name} trains", partita("train", *SMALL, variables=variables), "ranks      1")
        succeeded(f"{name} trains with --ranks 2", partita("train", *SMALL, "--ranks", "2", variables=variables),
                  "ranks      2")
    ran = partita("train", *SMALL, variables={"PALS_RANKID": "0"})
    check("the first process of PALS notes that it may have others", ran.status == 0 and "ranks      1" in ran.out and
          "note: PALS_RANKID=0 does not tell how many processes were started" in ran.err and ran.err.count("\n") == 1,
          ran)
    succeeded("mpiexec of two in a step of four trains", partita("train", *SMALL, ranks=2,
                                                                 variables=LAUNCHERS["Slurm"]), "ranks      2")


def output_of_every_process():
    """What processes print that a launcher has started."""
    for name, variables in LAUNCHERS.items():
        for verb in (["explain", "--model", "mlp", "--widths", "8"], ["info"], ["--help"], ["schedule"],
                     ["train", "--ranks", "2", "--help"]):
            ran = partita(*verb, variables=variables)
            check(f"{name}: {' '.join(verb)} prints", ran.status == 0 and len(ran.out) > 200 and ran.err == "", ran)
        ran = partita("nosuchverb", variables=variables)
        refused(f"{name}: an error is printed", ran, "^partita: there is no verb 'nosuchverb'")
        check(f"{name}: nothing else is printed", ran.out == "", ran)
        ran = partita("train", *SMALL, "--ranks", "2", variables=variables)
        if name in BATCH_SYSTEMS:
            succeeded(f"{name}: processes train independently with --ranks", ran, "ranks      2")
        else:
            refused(f"{name}: --ranks is refused", ran,
                    "--ranks 2: the ranks are threads of one process, but 4 processes")


def streams():
    """Files that are standard input or pipes."""
    text = 'grid = "data=2"\n[[layer]]\nmatch = "*"\noutput = "N@data"\n'
    write("s.toml", text)
    for verb, more in (("train", ["--ranks", "2"]), ("compare", ["--strategies", "/dev/stdin"]), ("explain", [])):
        given = [] if verb == "compare" else ["--strategy", "/dev/stdin"]
        small = SMALL if verb == "train" else ["--model", "mlp", "--widths", "8", "--batch", "16"]
        status, out, err = partita(verb, *small, *given, *more, input=text.encode())
        check(f"{verb} reads a strategy from a pipe", status == 0 and
              (verb == "compare" or 'grid "data=2"' in out or "N@data" in out) and err == "", out + err)
    ran = partita("train", *SMALL, "--ranks", "2", before=["bash", "-c", '"$@" --strategy <(cat s.toml)', "bash"])
    check("a process substitution is read once by all ranks", ran.status == 0 and 'grid "data=2"' in ran.out, ran)
    for option in ("--strategy", "--machine", "--options"):
        began = time.monotonic()
        status, out, err = partita("train", *SMALL, option, "/dev/stdin", ranks=2, input=text.encode())
        check(f"{option} /dev/stdin of two processes is refused at once", status == 2 and
              "pass a regular file" in err and f"{option} /dev/stdin: 2 processes were started" in err and
              time.monotonic() - began < 20, out + err)


def hangup():
    """UCX, which MPICH loads, handles SIGHUP. nohup has it ignored, and that stays so."""
    for name, command, ends in (("processes", [], True), ("threads", [], True), ("nohup", ["nohup"], False)):
        more = ["--ranks", "2"] if name == "threads" else []
        with open("log", "w+", encoding="utf-8") as log, partita.start("train", *SMALL, "--epochs", "1000000", *more,
                                                                       before=command, stdin=subprocess.DEVNULL,
                                                                       stdout=log, stderr=log) as job:
            until = time.monotonic() + 30
            while "epoch 1" not in read("log") and time.monotonic() < until:
                time.sleep(0.05)
            job.send_signal(signal.SIGHUP)
            try:
                status = job.wait(timeout=10 if ends else 1)
            except subprocess.TimeoutExpired:
                status = None
                job.kill()
        text = read("log")
        remember(text, job.args)
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


def many_cores():
    """A system with more cores than a cpu_set_t has bits."""
    run(shutil.which("cc") or "gcc", "-shared", "-fPIC", "-o", "many.so", write("many.c", MANY_CORES))
    many = {"LD_PRELOAD": os.path.abspath("many.so")}
    status, out, err = partita("info", variables=many)
    check("info counts cores beyond 1024", status == 0 and re.search(r"cores +8 of", out), out + err)
    refused("--threads knows cores beyond 1024", partita("train", *SMALL, "--threads", "65", variables=many),
            "a rank may use 8 cores")
    status, out, err = partita("train", *SMALL, variables=many, ranks=2)
    check("ranks of MPI train with cores beyond 1024", status == 0 and "ranks      2" in out, out + err)


def cache_folder():
    """The folder of caches."""
    os.makedirs("home", exist_ok=True)
    home = os.path.abspath("home")
    for given, expected in (("relative", f"{home}/.cache/partita"), ("", f"{home}/.cache/partita"),
                            (home, f"{home}/partita")):
        status, out, err = partita("info", variables={"XDG_CACHE_HOME": given, "HOME": home})
        check(f"XDG_CACHE_HOME={given}", status == 0 and re.search(rf"kernels +{expected} ", out), out + err)
    status, out, err = partita("info", variables={"XDG_CACHE_HOME": "", "HOME": "home"})
    check("a relative HOME is not taken", status == 0 and not re.search(r"kernels +home/", out), out + err)
    nowhere = {"XDG_CACHE_HOME": "", "HOME": "/dev/null"}
    status, out, err = partita("info", variables=nowhere)
    check("info says that no folder can be in a file", status == 0 and
          re.search(r"kernels +/dev/null/\.cache/partita \(cannot be created", out), out + err)
    small = SMALL[:-2]
    status, out, err = partita("train", *small, "--steps", "1", variables=nowhere)
    check("train says the same", status == 0 and "Not a directory" in out + err, out + err)


def limits_of_file_sizes():
    """A limit on the size of files."""
    def limited(size, *arguments):
        """Runs the program with a limit."""
        return partita(*arguments, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)))

    for ranks in ("1", "2"):  # without MPI: UCX needs larger files to start
        refused("a checkpoint beyond the limit is named", limited(40 << 10, "train", *SMALL, "--ranks", ranks, "--save",
                                                                  "limited.h5"), r"limited\.h5", "File too large")
        check("it is not left behind", not [name for name in os.listdir() if name.startswith("limited.h5")])
    refused("another file", limited(1 << 10, "info", "--json", "limited.json"), r"limited\.json", "File too large")


def pipes():
    """To open a pipe would wait for somebody who writes."""
    os.mkfifo("pipe.h5")
    refused("a checkpoint that is a pipe", partita("train", *SMALL, "--load", "pipe.h5"), r"'pipe\.h5' is not seekable")
    os.mkdir("pipes")
    for name in ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz", "training.h5"):
        os.mkfifo(f"pipes/{name}")
    for data in ("fashion-mnist", "hdf5"):
        refused(f"pipes in the folder of {data}", partita("train", "--model", "mlp", "--data", data, "--data-dir",
                                                          "pipes"), "is not seekable; give a regular file")


run_parts(processes_that_mpi_does_not_connect, output_of_every_process, streams, hangup, many_cores, cache_folder,
          limits_of_file_sizes, pipes)
