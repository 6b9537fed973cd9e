"""Runs the steps of examples/deploy/Dockerfile in a fresh Debian 12 that debootstrap makes, as Docker would, and trains
with the program that they install. Needs root, the packages debootstrap and util-linux, and the network. Arguments:
the build folder, and optionally the numbers of the steps to run, e.g. 0 1 2 (0 makes the system)."""

import pathlib
import shlex
import shutil
import subprocess
import sys

import dockerfile
from dockerfile import ROOT

FOLDER = pathlib.Path(sys.argv[1]).resolve() / "chroot"


def perform(*command, **options):
    """Prints a command and runs it, with its output."""
    print("$", shlex.join(map(str, command)), flush=True)
    subprocess.run([str(word) for word in command], check=True, stdin=subprocess.DEVNULL, **options)


def inside(command, user="root"):
    """Runs a shell command in the new system, with its own /proc, /dev/shm and mounts."""
    script = (f"mount -t proc proc {FOLDER}/proc && mkdir -p {FOLDER}/dev/shm && mount -t tmpfs tmpfs "
              f"{FOLDER}/dev/shm && "
              f"chmod 1777 {FOLDER}/dev/shm && exec chroot --userspec={user} {FOLDER} /bin/sh -c "
              f"{shlex.quote(command)}")
    perform("unshare", "--mount", "--pid", "--fork", "sh", "-c", script,
            env={"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"})


def make_system():
    """What FROM gives. Docker gives a container the host's resolver."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    perform("debootstrap", "--variant=minbase", "bookworm", FOLDER)
    shutil.copy("/etc/resolv.conf", FOLDER / "etc/resolv.conf")


def copy_project(target):
    """What COPY does: the files that git knows; a checkout is no larger."""
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout.split(b"\0")
    for name in filter(None, (name.decode() for name in names)):
        to = FOLDER / target.lstrip("/") / name
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, to)


def steps():
    """The steps of the Dockerfile as functions, and a training."""
    user, folder = "root", "/"
    for name, argument in dockerfile.steps():
        if name == "FROM":
            assert argument == "debian:12"
            yield make_system
        elif name == "COPY":
            yield lambda target=argument.split()[1]: copy_project(target)
        elif name == "RUN":
            yield lambda command=argument, who=user: inside(command, who)
        elif name == "USER":
            user = argument
        elif name == "WORKDIR":
            folder = argument
    train = ("partita-mpiexec -n 2 partita train --data fashion-mnist --model lenet5 --size 28 --channels 1 "
             "--steps 5 --no-test")
    yield lambda: inside(f"cd {folder} && HOME={folder} {train} && partita --help >/dev/null", user)


wanted = set(map(int, sys.argv[2:]))
for number, step in enumerate(steps()):
    if not wanted or number in wanted:
        step()
if not wanted:
    shutil.rmtree(FOLDER)
print("the steps of the Dockerfile work")
