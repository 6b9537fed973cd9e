"""Tests /dev/shm that is too small for the ranks of a node: they say so once and exchange messages through MPI. Every
result is the same as with shared memory. The test mounts small file systems in a namespace of its own.
Arguments: the launcher build/mpiexec, the program build/partita."""

import os
import re
import sys

from checks import UNSHARE, Program, check, finish, new_folder, read_json, run, skip

partita = Program(sys.argv[2], sys.argv[1])
TRAIN = ["train", "--data", "synthetic", "--samples", "64", "--batch", "32", "--grid", "data=2 y=2", "--rule",
         "*: N@data H@y", "--dtype", "f64", "--epochs", "1", "--json", "result.json"]

if run(*UNSHARE, "sh", "-c", "mount -t tmpfs -o size=1m none /dev/shm", status=None).status != 0:
    skip("this machine does not allow mounts in a namespace")


def train(size="", **variables):
    """Trains with a /dev/shm of a size, or with that of this machine. Returns what was printed, the lines about
    /dev/shm, and the results."""
    mount = f"mount -t tmpfs -o size={size} none /dev/shm && " if size else ""
    ran = partita(*TRAIN, ranks=4, before=[*UNSHARE, "sh", "-c", mount + 'exec "$@"', "sh"], variables=variables)
    return ran, [line for line in ran.err.splitlines() if "/dev/shm" in line], read_json("result.json")


def same(found):
    """Returns whether results are the expected ones. MPI adds in another order."""
    return (all(found[key] == expected[key] for key in ("measured_messages", "measured_bytes", "predicted_bytes")) and
            all(abs(a - b) < 1e-9 * abs(b) for a, b in zip(found["losses"], expected["losses"], strict=True)))


with new_folder():
    ran, notes, expected = train()
    check("enough shared memory: no note", not notes, ran)
    check("shared memory is predicted", expected["predicted_memory"] == expected["measured_memory"], ran)
    # Too small for MPI, for the communicator of all ranks, and for those of some axes.
    for size in ("64k", "6m", "12m", "20m", "24m"):
        ran, notes, found = train(size)
        check(f"{size}: one note with size and cure", len(notes) == 1 and
              re.search(r"too small: \d ranks need \d+\.\d MiB .* --shm-size", notes[0]), ran)
        check(f"{size}: the same losses, messages and bytes", same(found), ran)
    ran, notes, found = train(PARTITA_SHARED_MEMORY="off")
    check("switched off: no note", not notes and same(found), ran)
left = [name for name in os.listdir("/dev/shm") if name.startswith("partita-")]
check("nothing is left in /dev/shm", not left, left)
finish()
