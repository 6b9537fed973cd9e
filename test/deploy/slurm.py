"""Starts a Slurm of two nodes on this machine, and jobs under it: training on the CPUs, which goes as under mpiexec; on
GPUs with NCCL, which on a machine without cards ends with one message; the points of `scale --slurm`, while a node dies
and is drained; and `train --slurm`, whose job returns to the queue. Needs root and the packages slurm-wlm and munge.
Arguments: the build folder."""

import os
import pathlib
import re
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
from checks import Program, check, ended, finish, new_folder, read_json, run  # pylint: disable=wrong-import-position

BUILD = pathlib.Path(sys.argv[1]).resolve()
HOST = socket.gethostname()
CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
MpiDefault=pmi2
SlurmctldPort={port}
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdSpoolDir={folder}/spool-%n
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
ReturnToService=2
NodeName=n[1-2] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{first}-{last}] CPUs=1 RealMemory=500
PartitionName=all Nodes=n[1-2] Default=YES State=UP
"""


class Cluster:
    """munged, slurmctld and two slurmd, which end with it."""

    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="partita-slurm-"))
        self.folder.chmod(0o755)
        self.daemons, self.nodes = [], {}
        port = 20000 + os.getpid() % 20000
        (self.folder / "state").mkdir()
        text = CONFIGURATION.format(host=HOST, folder=self.folder, port=port, first=port + 1, last=port + 2)
        (self.folder / "slurm.conf").write_text(text)
        self.environment = {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf")}

    def __enter__(self):
        key = self.folder / "munge.key"
        key.write_bytes(secrets.token_bytes(1024))
        key.chmod(0o400)
        self.start("munged", "--foreground", "--force", f"--key-file={key}", f"--socket={self.folder}/munge.socket",
                   f"--pid-file={self.folder}/munge.pid", f"--log-file={self.folder}/munge.log",
                   f"--seed-file={self.folder}/munge.seed")
        self.wait(lambda: (self.folder / "munge.socket").exists(), "munged")
        self.start("slurmctld", "-D")
        for node in ("n1", "n2"):
            self.start_node(node)
        self.wait(lambda: self.idle_nodes() == 2, "two idle nodes")
        return self

    def __exit__(self, *_):
        for daemon in reversed(self.daemons):
            daemon.terminate()
        for daemon in self.daemons:
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start(self, *command):
        """Starts a daemon, whose output goes to a log."""
        log = (self.folder / f"{command[0]}.out").open("a")
        self.daemons.append(subprocess.Popen(command, env=self.environment, stdout=log, stderr=log))
        return self.daemons[-1]

    def start_node(self, node):
        """Starts the daemon of a node."""
        self.nodes[node] = self.start("slurmd", "-D", "-N", node)

    def set_node(self, node, state):
        """Tells Slurm the state of a node."""
        self.run("scontrol", "update", f"nodename={node}", f"state={state}", "reason=test")

    def run(self, *command, **more):
        """Runs a command that talks to this Slurm."""
        return run(*command, variables=self.environment, **more)

    def queue(self):
        """Returns (array, point, nodes, state) of each job in the queue."""
        lines = self.run("squeue", "--noheader", "--array", "--format=%F %K %D %T").out.splitlines()
        return [tuple(line.split()) for line in lines]

    def until(self, holds, what, seconds=120):
        """Waits until something holds, or counts that as a failure."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if found := holds():
                return found
            time.sleep(0.3)
        check(what, False, self.queue())
        return None

    def idle_nodes(self):
        """Returns the number of nodes that wait for work."""
        return run("sinfo", "--noheader", "--Node", "--format=%T", env=self.environment,
                   status=None).out.split().count("idle")

    def wait(self, holds, what):
        """Waits until something holds, or ends the script."""
        for _ in range(300):
            if holds():
                return
            time.sleep(0.1)
        logs = "\n".join(f"{log.name}: {log.read_text()[-500:]}" for log in sorted(self.folder.glob("*.[lo][ou][gt]")))
        raise SystemExit(f"Slurm does not start: there is no sign of {what}\n{logs}")

    def srun(self, *arguments):
        """Runs the program as two processes, one a node."""
        before = ["srun", "--mpi=pmi2", "-N2", "-n2", "--time=5"]
        return partita(*arguments, before=before, env={**self.environment, "OMP_NUM_THREADS": "1"})


def losses(text):
    """Returns the losses that train printed."""
    return re.findall(r"loss +([0-9.e+-]+)", text)


TRAIN = ["train", "--model", "lenet5", "--data", "synthetic", "--dtype", "f64", "--batch", "16", "--steps", "3",
         "--no-test"]
POINTS = ["scale", "--model", "lenet5", "--width", "0.25", "--batch", "8", "--steps", "20", "--ranks", "1", "2",
          "--repeats", "1", "--grid", "data={}", "y={}", "data={} c=1", "--delay", "rank=0:150ms", "--ranks-per-node",
          "1", "--sbatch", "--time=5", "--out", "r.json"]


def jobs(*arguments, **more):
    """Runs the program, which talks to this Slurm."""
    return partita(*arguments, variables={**cluster.environment, "OMP_NUM_THREADS": "1"}, **more)


def a_node_dies_and_one_is_drained():
    """Six points as jobs. A node dies while one of them runs: that point is missing, and is submitted again. A node
    that is drained only delays it."""
    jobs(*POINTS, "--slurm", status=0)
    lost = cluster.until(lambda: next((each for each in cluster.queue() if each[2:] == ("2", "RUNNING")), None),
                         "a point runs on two nodes")
    time.sleep(1)
    cluster.nodes["n2"].kill()
    cluster.set_node("n2", "down")
    cluster.until(lambda: lost not in cluster.queue(), "its job ends")
    cluster.start_node("n2")
    cluster.set_node("n2", "resume")
    cluster.until(lambda: not cluster.queue(), "the other points are done", 300)
    ran = jobs(*POINTS, "--collect")
    names = {"1": "data={}", "3": "y={}", "5": "data={} c=1"}
    check("--collect names the missing point", ran.status == 1 and re.findall("^missing: (.*)$", ran.out, re.M) == [
        f"{names[lost[1]]} on 2 ranks: 1 of 1 run, in no queue of Slurm"], (lost, ran))
    check("and has the five others", len(read_json("r.json")["runs"]) == 5, ran)
    cluster.set_node("n2", "drain")
    ran = jobs(*POINTS, "--slurm", "--resubmit")
    check("--resubmit submits it alone", re.findall("--array=([0-9,]+) ", ran.out) == [lost[1]], ran)
    time.sleep(3)
    check("it waits for the drained node", [each[1:] for each in cluster.queue()] == [(lost[1], "2", "PENDING")],
          cluster.queue())
    ran = jobs(*POINTS, "--collect")
    check("--collect says so", "its job is PENDING" in ran.out, ran)
    cluster.set_node("n2", "resume")
    cluster.until(lambda: not cluster.queue(), "it runs", 120)
    ran = jobs(*POINTS, "--collect")
    check("then all six are there", ran.status == 0 and len(read_json("r.json")["runs"]) == 6, ran)


def a_training_returns_to_the_queue():
    """A training of about 45 s, in a job that 20 s limit: three in a chain have the weights of one run."""
    words = ["train", "--model", "lenet5", "--width", "0.25", "--data", "synthetic", "--samples", "480", "--batch", "16",
             "--dtype", "f64", "--no-test", "--epochs", "6"]
    ran = jobs(*words, "--delay", "rank=0:250ms", "--save", "w.h5", "--time-limit", "20s", "--keep", "2", "--slurm",
               "train.sh", "--ranks", "2", "--ranks-per-node", "1")
    check("the script is written", ran.status == 0 and "sbatch train.sh" in ran.out, ran)
    cluster.run("sbatch", "train.sh")
    cluster.until(lambda: not cluster.queue(), "the chain ends", 400)
    printed = pathlib.Path("w.h5.txt").read_text()
    check("the time limit ends runs, and the last one is finished", printed.count("stopped    by --time-limit 20s") >= 2
          and printed.endswith("the training is finished\n"), printed)
    partita(*words, "--save", "whole.h5", "--json", "whole.json", ranks=2)
    check("the losses are those of one run", read_json("w.h5.json")["losses"] == read_json("whole.json")["losses"])
    check("and so are the weights, bit for bit",
          pathlib.Path("w.h5").read_bytes() == pathlib.Path("whole.h5").read_bytes(), printed)


partita = Program(BUILD / "partita", BUILD / "mpiexec", status=None, timeout=200)
with Cluster() as cluster, new_folder():
    a_node_dies_and_one_is_drained()
    a_training_returns_to_the_queue()
    done, direct = cluster.srun(*TRAIN), partita(*TRAIN, ranks=2)
    check("a job of two processes trains under srun", done.status == 0 and direct.status == 0, (done, direct))
    check("as it does under mpiexec", losses(done.out) == losses(direct.out) != [], (done.out, direct.out))
    for options in (["--device", "cuda", "--transport", "nccl"], ["--device", "cuda:3"]):
        ended(f"{' '.join(options)} without a card ends with one message and exit status 2",
              cluster.srun(*TRAIN, *options), 2)
finish()
