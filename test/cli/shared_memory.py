"""Tests /dev/shm that is too small for the ranks of a node: they say so once and exchange messages through MPI. Every
result is the same as with shared memory. The test mounts small file systems in a namespace of its own.
Arguments: the launcher build/mpiexec, the program build/partita."""

import json
import os
import re
import subprocess
import sys
import tempfile

LAUNCHER, PROGRAM = map(os.path.abspath, sys.argv[1:3])
UNSHARE = ["unshare", "-m"] if os.getuid() == 0 else ["unshare", "-rm"]
SKIPPED = 77
failures = []

if subprocess.run([*UNSHARE, "sh", "-c", "mount -t tmpfs -o size=1m none /dev/shm"], check=False).returncode != 0:
    print("this machine does not allow mounts in a namespace")
    sys.exit(SKIPPED)


def train(size, json_file, ranks=4, environment=None):
    words = [LAUNCHER, "-n", str(ranks), PROGRAM, "train", "--data", "synthetic", "--samples", "64", "--batch", "32", "--grid",
             "data=2 y=2", "--rule", "*: N@data H@y", "--dtype", "f64", "--epochs", "1", "--json", json_file]
    mount = f"mount -t tmpfs -o size={size} none /dev/shm && " if size else ""
    return subprocess.run([*UNSHARE, "sh", "-c", mount + "exec \"$@\"", "sh", *words], capture_output=True, text=True, timeout=60,
                          check=False, env={**os.environ, **(environment or {})})


def check(name, holds, result):
    print(f"{'ok  ' if holds else 'FAIL'} {name}")
    if not holds:
        failures.append(name)
        print(f"status {result.returncode}\n{result.stdout}{result.stderr}")


with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "result.json")

    def report():
        with open(path, encoding="utf-8") as file:
            return json.load(file)

    result = train("", path)
    check("enough shared memory: no note", result.returncode == 0 and "/dev/shm" not in result.stderr, result)
    expected = report()
    check("shared memory is predicted", expected["predicted_memory"] == expected["measured_memory"], result)
    # Too small for MPI, for the communicator of all ranks, and for those of some axes.
    for size in ("64k", "6m", "12m", "20m", "24m"):
        result = train(size, path)
        notes = [line for line in result.stderr.splitlines() if "/dev/shm" in line]
        check(f"{size}: one note with size and cure", result.returncode == 0 and len(notes) == 1 and
              re.search(r"too small: \d ranks need \d+\.\d MiB .* --shm-size", notes[0]), result)
        if result.returncode == 0:
            found = report()
            check(f"{size}: the same losses, messages and bytes", all(
                found[key] == expected[key] for key in ("losses", "measured_messages", "measured_bytes", "predicted_bytes")), result)
    result = train("", path, environment={"PARTITA_SHARED_MEMORY": "off"})
    check("switched off: no note", result.returncode == 0 and "/dev/shm" not in result.stderr and
          report()["losses"] == expected["losses"], result)

left = [name for name in os.listdir("/dev/shm") if name.startswith("partita-")]
if left:
    failures.append(f"left in /dev/shm: {left}")
print(f"{len(failures)} failed", *failures, sep="\n")
sys.exit(1 if failures else 0)
