"""Checks bench/gpu.sh without a card, with stand-ins for nvidia-smi, nvcc, Meson, Ninja, PyTorch and the programs that
Ninja would build: what it runs, in which order, what it leaves out for time, and which files it writes."""

import json
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

NVIDIA_SMI = """case "$*" in
  *query-gpu=name*) echo "NVIDIA H100 80GB HBM3" ;;
  *compute_cap*) echo 9.0 ;;
esac"""
# Meson's stand-in refuses a toolkit without cuDNN and NCCL beside it, as meson.build would, and notes its options.
MESON = """echo "meson $*" >>"$calls"
[ "$1" = setup ] || exit 0
toolkit=$(dirname "$(dirname "$(command -v nvcc)")")
for header in "$toolkit/include/cudnn_graph.h" "$toolkit/../cudnn/include/cudnn_graph.h"; do
  [ -e "$header" ] && found=$header
done
[ -n "${found:-}" ] || { echo "cudnn_graph.h not found"; exit 1; }
mkdir -p "$2" && touch "$2/build.ninja\""""
# Ninja's stand-in makes the programs.
NINJA = """echo "ninja $*" >>"$calls"
mkdir -p "$2/bench" "$2/test"
for name in partita bench/gpu test/unit_backend test/threads_train; do
  cp "$program" "$2/$name"
done"""
PROGRAM = """echo "$(basename "$0") $*" >>"$calls"
case "$(basename "$0") $*" in
  *properties*) printf '{"name":\\n "card"}' ;;
  *"gpu step"*)
    sleep "${step_seconds:-0}"
    echo "{\\"subject\\": \\"gpu-step\\", \\"model\\": \\"$2\\", \\"batch\\": $3, \\"type\\": \\"$4\\", \\"graph\\": true,\\
 \\"seconds\\": 0.05, \\"held\\": 1, \\"predicted\\": 1}" ;;
  *"gpu halos"*) exit "${halos_status:-0}" ;;
  *"gpu nccl"*) echo '{"subject": "gpu-nccl", "version": "2.28", "right": true}' ;;
  *compare*) for word; do [ "$last" = --json ] && json=$word; last=$word; done
    echo '{"strategies": [{"seconds": 0.05, "measured": {"seconds": 0.04}}]}' >"$json" ;;
esac"""
# Python's stand-in has PyTorch, and is Python for all else.
PYTHON = """case "$*" in
  *"import torch, sys"*) exit "${no_torch:-0}" ;;
  *"import torch"*) echo "PyTorch stand-in" ;;
  *torch_gpu.py\\ step*) echo "torch $*" >>"$calls"
    echo "{\\"subject\\": \\"gpu-step-torch\\", \\"model\\": \\"$4\\", \\"batch\\": $5, \\"type\\": \\"$6\\", \\"graph\\": true,\\
 \\"seconds\\": 0.06, \\"held\\": 1}" ;;
  *torch_gpu.py\\ convs*) cat "$4" ;;
  *) exec "$python" "$@" ;;
esac"""


class Machine:
    """A folder with stand-ins, first on the PATH."""

    def __init__(self, folder, wheels):
        self.folder = folder
        tools = folder / "tools"
        for name, text in {"nvidia-smi": NVIDIA_SMI, "meson": MESON, "ninja": NINJA, "python3": PYTHON,
                           "compute-sanitizer": 'exec "${@:5}"'}.items():
            self.script(tools / name, text)
        self.script(folder / "program", PROGRAM)
        toolkit = folder / "toolkit"
        self.script(toolkit / "bin" / "nvcc", "echo nvcc 13.0")
        headers = folder / "site" / "nvidia" / "cudnn" / "include" if wheels else toolkit / "include"
        headers.mkdir(parents=True)
        (headers / "cudnn_graph.h").touch()
        (toolkit / "include").mkdir(exist_ok=True)
        (folder / "site" / "nvidia" / "nccl" / "include").mkdir(parents=True)
        self.environment = dict(os.environ, PATH=f"{tools}:{toolkit / 'bin'}:/usr/bin:/bin", python=sys.executable,
                                PYTHONPATH=str(folder / "site"), program=str(folder / "program"),
                                calls=str(folder / "calls"), PARTITA_GPU_BUILD=str(folder / "build"))

    @staticmethod
    def script(path, text):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/bash\n{text}\n")
        path.chmod(0o755)

    def run(self, **environment):
        """Runs the script. Returns its status, its output, the calls of the stand-ins and the folder of results."""
        results = self.folder / "results"
        run = subprocess.run(["bash", ROOT / "bench" / "gpu.sh", results], capture_output=True, text=True, timeout=120,
                             env={**self.environment, **environment}, check=False)
        calls = self.folder / "calls"
        return run.returncode, run.stdout + run.stderr, calls.read_text() if calls.exists() else "", results


def check_files(results):
    """The script leaves three files, whatever happens."""
    assert sorted(path.name for path in results.iterdir()) == ["logs.tar.gz", "results.jsonl", "table.md"]
    with tarfile.open(results / "logs.tar.gz") as archive:
        return set(pathlib.PurePath(name).name for name in archive.getnames())


def everything_runs(folder):
    for wheels in (False, True):
        status, output, calls, results = Machine(folder / str(wheels), wheels).run()
        assert status == 0, output
        table = (results / "table.md").read_text()
        assert "All steps have run and passed." in table, table
        assert "ratio 1.200" in table and "predicted step of unet3d" in table, table
        logs = check_files(results)
        assert {"properties.json", "build.txt", "memcheck.txt", "versions.txt"} <= logs, logs
        subjects = [json.loads(line)["subject"] for line in (results / "results.jsonl").read_text().splitlines()]
        assert subjects.count("gpu-step") == 2 and subjects.count("gpu-predicted") == 4, subjects
        assert "-Dcapabilities=90" in calls, calls
        order = [calls.index(word) for word in ("ninja", "gpu properties", "meson test", "gpu step resnet50 256",
                                                "torch", "gpu step resnet50 32", "gpu halos", "gpu gaps", "gpu nccl")]
        assert order == sorted(order), calls


def without_torch(folder):
    status, output, calls, results = Machine(folder, True).run(no_torch="1")
    assert status == 0, output
    assert "left out: PyTorch: it is not there" in (results / "table.md").read_text()
    assert "torch" not in calls, calls


def time_ends(folder):
    """A step is ended by the deadline, and the table names it and all that no time was left for."""
    start = time.monotonic()
    status, output, _, results = Machine(folder, False).run(PARTITA_GPU_SECONDS="25", step_seconds="60")
    assert time.monotonic() - start < 40, "the deadline is 25 s"
    assert status == 1, output
    table = (results / "table.md").read_text()
    assert "failed: step-resnet50-256 (ended after 1" in table, table
    assert "left out: halos: no time was left" in table and "left out: memcheck: no time was left" in table, table
    check_files(results)


def a_step_fails(folder):
    status, output, calls, results = Machine(folder, False).run(halos_status="3")
    assert status == 1, output
    assert "failed: halos (status 3)" in (results / "table.md").read_text()
    assert "gpu nccl" in calls, "the steps after it run"


def the_build_fails(folder):
    machine = Machine(folder, False)
    (folder / "toolkit" / "include" / "cudnn_graph.h").unlink()
    status, output, calls, results = machine.run()
    assert status == 1 and "cudnn_graph.h not found" in output, output
    assert "left out: everything: the build failed" in (results / "table.md").read_text()
    assert "gpu step" not in calls
    check_files(results)


def main():
    for check in (everything_runs, without_torch, time_ends, a_step_fails, the_build_fails):
        with tempfile.TemporaryDirectory() as folder:
            check(pathlib.Path(folder))
        print(f"{check.__name__}: right")


main()
