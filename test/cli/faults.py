"""Tests faults around a run: a full disk, a folder or file without permission, damaged checkpoints, and ranks that are
killed while they save. The last complete checkpoint always stays and loads.
Arguments: the launcher build/mpiexec, the program build/partita, the number of kills."""

import fcntl
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

LAUNCHER, PROGRAM = map(os.path.abspath, sys.argv[1:3])
KILLS = 50 if "PARTITA_LONG" in os.environ else int(sys.argv[3])
SMALL = ["--data", "synthetic", "--samples", "32", "--batch", "16", "--no-test"]
# Root may read and write every file. Without its capabilities it may not, but it can still read a project in its own
# home.
AS_USER = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.getuid() == 0 else []
failures = []


def run(*arguments, ranks=2, before=()):
    return subprocess.run([*before, LAUNCHER, "-n", str(ranks), PROGRAM, *arguments], capture_output=True, text=True,
                          timeout=60, check=False)


def check(name, holds, shown=""):
    print(f"{'ok  ' if holds else 'FAIL'} {name}")
    if not holds:
        failures.append(name)
        print(shown)


def refused(name, result, *parts, status=2):
    lines = [line for line in result.stderr.splitlines() if line.startswith("partita: ")]
    check(name, result.returncode == status and len(lines) == 1 and all(part in lines[0] for part in parts),
          f"status {result.returncode}\n{result.stdout}{result.stderr}")


def loads(path):
    result = run("evaluate", "--data", "synthetic", "--samples", "32", "--batch", "16", "--load", path, ranks=1)
    return result.returncode == 0, result.stdout + result.stderr


with tempfile.TemporaryDirectory() as folder:
    os.chmod(folder, 0o777)
    saved, other = os.path.join(folder, "w.h5"), os.path.join(folder, "other.h5")
    assert run("train", *SMALL, "--epochs", "1", "--save", saved).returncode == 0
    whole = open(saved, "rb").read()

    with open(other + ".partial", "wb") as writer:
        fcntl.lockf(writer, fcntl.LOCK_EX)
        refused("another job is saving to the same file", run("train", *SMALL, "--epochs", "1", "--save", other), other, "another run is writing it now",
                status=3)
        check("the other job's partial file stays", os.path.exists(other + ".partial"))
    check("a partial file without its job is replaced", run("train", *SMALL, "--epochs", "1", "--save", other).returncode == 0 and loads(other)[0])
    os.remove(other)

    # A file system in a mount namespace of its own, with room for the old file and half of the new one.
    disk = os.path.join(folder, "disk")
    os.mkdir(disk)
    script = (f"mount -t tmpfs -o size={len(whole) * 3 // 2} none {disk} && cp {saved} {disk}/w.h5 && {LAUNCHER} -n 2 {PROGRAM} train "
              f"{' '.join(SMALL)} --epochs 2 --load {disk}/w.h5 --save {disk}/w.h5; echo status $?; ls {disk}; cmp {saved} {disk}/w.h5 && echo same")
    unshare = ["unshare", "-m"] if os.getuid() == 0 else ["unshare", "-rm"]
    if subprocess.run([*unshare, "true"], check=False).returncode != 0:
        print("skip full disk: this machine does not allow mounts in a namespace")
    else:
        result = subprocess.run([*unshare, "sh", "-c", script], capture_output=True, text=True, timeout=60, check=False)
        ours = [line for line in result.stderr.splitlines() if line.startswith("partita: ")]
        check("full disk: one line, status 2", "status 2\n" in result.stdout and len(ours) == 1 and "No space left" in ours[0],
              result.stdout + result.stderr)
        check("full disk leaves the old file and nothing else", result.stdout.endswith("w.h5\nsame\n"), result.stdout)
    os.rmdir(disk)

    locked = os.path.join(folder, "locked")
    os.mkdir(locked, 0o555)
    refused("folder without permission", run("train", *SMALL, "--save", os.path.join(locked, "w.h5"), before=AS_USER),
            locked, "Permission denied")
    shutil.copy(saved, other)
    os.chmod(other, 0)
    refused("file without permission", run("evaluate", *SMALL[:-1], "--load", other, before=AS_USER), other)
    os.chmod(other, 0o644)
    with open(other, "wb") as file:
        file.write(whole[:len(whole) // 2])
    refused("truncated checkpoint", run("evaluate", *SMALL[:-1], "--load", other), other)

    random.seed(1)
    for kill in range(KILLS):
        job = subprocess.Popen([LAUNCHER, "-n", "2", PROGRAM, "train", *SMALL, "--epochs", "100000", "--load", saved,
                                "--save", saved], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                               start_new_session=True)
        ranks = []
        for line in job.stdout:
            if line.startswith("ranks"):
                ranks = [int(word.split(":")[1].rstrip(")")) for word in line.split() if ":" in word and "pid" not in word]
            if line.startswith("epoch"):
                break  # from here on it saves after every epoch
        time.sleep(random.uniform(0, 0.1))
        os.kill(ranks[0], signal.SIGKILL)
        job.stdout.read()
        job.wait(timeout=10)
        good, shown = loads(saved)
        if not good:
            check(f"after kill {kill} the checkpoint loads", False, shown)
            break
    else:
        check(f"after each of {KILLS} kills while saving the checkpoint loads", True)
    rest = [name for name in os.listdir(folder) if name not in ("w.h5", "other.h5", "locked")]
    print("files that kills left:", rest)
    check("kills leave at most one partial file", len(rest) <= 1, rest)

print(f"{len(failures)} failed")
sys.exit(1 if failures else 0)
