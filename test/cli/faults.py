"""Tests faults around a run: a full disk, a folder or file without permission, damaged checkpoints, and ranks that are
killed while they save. The last complete checkpoint always stays and loads.
Arguments: the launcher build/mpiexec, the program build/partita, the number of kills."""

import fcntl
import os
import random
import shutil
import signal
import sys
import time

from checks import UNSHARE, Program, begin, check, end_of, ended, finish, new_folder, processes, run

partita = Program(sys.argv[2], sys.argv[1], status=None)
KILLS = 50 if "PARTITA_LONG" in os.environ else int(sys.argv[3])
SMALL = ["--data", "synthetic", "--samples", "32", "--batch", "16", "--no-test"]
# Root may read and write every file. Without its capabilities it may not, but it can still read a project in its own
# home.
AS_USER = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.getuid() == 0 else []


def loads(path):
    """Returns whether a checkpoint loads."""
    ran = partita("evaluate", "--data", "synthetic", "--samples", "32", "--batch", "16", "--load", path, ranks=1)
    if ran.status != 0:
        print(ran)
    return ran.status == 0


def train(*arguments, **more):
    """Trains on two ranks."""
    return partita("train", *SMALL, *arguments, ranks=2, **more)


def two_jobs():
    """Another job is saving to the same file."""
    with open("other.h5.partial", "wb") as writer:
        fcntl.lockf(writer, fcntl.LOCK_EX)
        ended("another job is saving to the same file", train("--epochs", "1", "--save", "other.h5"), 3,
              r"other\.h5", "another run is writing it now")
        check("the other job's partial file stays", os.path.exists("other.h5.partial"))
    check("a partial file without its job is replaced", train("--epochs", "1", "--save", "other.h5").status == 0 and
          loads("other.h5"))
    os.remove("other.h5")


def full_disk():
    """A file system in a mount namespace of its own, with room for the old file and half of the new one."""
    if run(*UNSHARE, "true", status=None).status != 0:
        return print("skip full disk: this machine does not allow mounts in a namespace")
    os.mkdir("disk")
    script = (f"mount -t tmpfs -o size={os.path.getsize('w.h5') * 3 // 2} none disk && cp w.h5 disk && \"$@\"; echo "
              "status $?; "
              "ls disk; cmp w.h5 disk/w.h5 && echo same")
    ran = train("--epochs", "2", "--load", "disk/w.h5", "--save", "disk/w.h5",
                before=[*UNSHARE, "sh", "-c", script, "sh"])
    check("full disk: one line, status 2", "status 2\n" in ran.out and len(ran.errors) == 1 and
          "No space left" in ran.errors[0], ran)
    check("full disk leaves the old file and nothing else", ran.out.endswith("w.h5\nsame\n"), ran.out)
    os.rmdir("disk")


def permissions():
    """A folder and a file without permission, and a damaged file."""
    os.mkdir("locked", 0o555)
    ended("folder without permission", train("--save", "locked/w.h5", before=AS_USER), 2, "locked", "Permission denied")
    shutil.copy("w.h5", "other.h5")
    evaluate = ["evaluate", *SMALL[:-1], "--load", "other.h5"]
    os.chmod("other.h5", 0)
    ended("file without permission", partita(*evaluate, ranks=2, before=AS_USER), 2, r"other\.h5")
    os.chmod("other.h5", 0o644)
    os.truncate("other.h5", os.path.getsize("w.h5") // 2)
    ended("truncated checkpoint", partita(*evaluate, ranks=2), 2, r"other\.h5")


def kills():
    """Kills a rank while it saves after every epoch."""
    random.seed(1)
    for kill in range(KILLS):
        job = partita.start("train", *SMALL, "--epochs", "100000", "--load", "w.h5", "--save", "w.h5", ranks=2,
                            start_new_session=True)
        ranks = processes(begin(job))
        time.sleep(random.uniform(0, 0.1))
        os.kill(ranks[0], signal.SIGKILL)
        end_of(job, timeout=10)
        if not loads("w.h5"):
            check(f"after kill {kill} the checkpoint loads", False)
            break
    else:
        check(f"after each of {KILLS} kills while saving the checkpoint loads", True)
    rest = [name for name in os.listdir() if name not in ("w.h5", "other.h5", "locked")]
    print("files that kills left:", rest)
    check("kills leave at most one partial file", len(rest) <= 1, rest)


with new_folder() as folder:
    folder.chmod(0o777)
    assert train("--epochs", "1", "--save", "w.h5").status == 0
    for part in (two_jobs, full_disk, permissions, kills):
        part()
finish()
