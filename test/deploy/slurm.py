"""Starts a Slurm of two nodes on this machine, and jobs of two processes under it: one on the CPUs, which trains as
under mpiexec, and one on GPUs with NCCL, which on a machine without cards ends with one message. Needs root and the
packages slurm-wlm and munge. Arguments: the build folder."""

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
from checks import Program, check, ended, finish, run  # pylint: disable=wrong-import-position

BUILD = pathlib.Path(sys.argv[1]).resolve()
HOST = socket.gethostname()
CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
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
        self.daemons = []
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
            self.start("slurmd", "-D", "-N", node)
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
partita = Program(BUILD / "partita", BUILD / "mpiexec", status=None, timeout=200)
with Cluster() as cluster:
    done, direct = cluster.srun(*TRAIN), partita(*TRAIN, ranks=2)
    check("a job of two processes trains under srun", done.status == 0 and direct.status == 0, (done, direct))
    check("as it does under mpiexec", losses(done.out) == losses(direct.out) != [], (done.out, direct.out))
    for options in (["--device", "cuda", "--transport", "nccl"], ["--device", "cuda:3"]):
        ended(f"{' '.join(options)} without a card ends with one message and exit status 2",
              cluster.srun(*TRAIN, *options), 2)
finish()
