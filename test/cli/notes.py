"""Tests notes about strategies, options and machines that are hardly what was meant: axes over which nothing is
sharded, recomputing all of one microbatch, more threads than cores, one peak for all types. Arguments: the launcher
build/mpiexec, the program build/partita."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

LAUNCHER, PROGRAM = map(os.path.abspath, sys.argv[1:3])
CORES = len(os.sched_getaffinity(0))
SMALL = ["--data", "synthetic", "--samples", "32", "--batch", "16", "--no-test", "--epochs", "1", "--kernels", ""]
failures = []


def run(*arguments, ranks=1):
    launch = [LAUNCHER, "-n", str(ranks)] if ranks > 1 else []
    return subprocess.run([*launch, PROGRAM, *arguments], capture_output=True, text=True, timeout=60, check=False)


def check(name, holds, result):
    print(f"{'ok  ' if holds else 'FAIL'} {name}")
    if not holds:
        failures.append(name)
        print(f"status {result.returncode}\n{result.stdout}{result.stderr}")


def notes_of(result):
    return [line for line in (result.stdout + result.stderr).splitlines() if line.startswith("note")]


def notes_once(name, result, *parts):
    notes = [line for line in notes_of(result) if parts[0] in line]
    check(name, result.returncode == 0 and len(notes) == 1 and all(part in notes[0] for part in parts), result)


with tempfile.TemporaryDirectory() as folder:
    empty, idle, used = (os.path.join(folder, name) for name in ("empty.toml", "idle.toml", "used.toml"))
    for path, text in ((empty, ""), (idle, 'grid = "data=2 y=2"\n[[layer]]\nmatch = "*"\noutput = "N@data"\n'),
                       (used, 'grid = "data=2"\n[[layer]]\nmatch = "*"\noutput = "N@data"\n')):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    same = "do the same work"
    for strategy, ranks, parts in ((["--strategy", empty, "--grid", "data=2"], 2, ("over data,", "groups of 2", '"*: N@data"')),
                                   (["--strategy", idle], 4, ("over y,", "groups of 2", '"*: N@(data,y)"'))):
        name = strategy[1].rsplit("/", 1)[1]
        notes_once(f"explain: {name}", run("explain", *strategy), same, *parts)
        notes_once(f"train: {name}", run("train", *strategy, *SMALL, ranks=ranks), same, *parts)
        notes_once(f"compare: {name}", run("compare", *strategy), same, *parts)
    for verb in ("explain", "compare"):
        result = run(verb, "--strategy", used)
        check(f"{verb}: nothing to note", result.returncode == 0 and same not in result.stdout, result)
    # The rule that the note proposes silences it.
    result = run("explain", "--strategy", idle, "--rule", "*: N@(data,y)")
    check("the proposed rule uses the axis", result.returncode == 0 and same not in result.stdout, result)

with tempfile.TemporaryDirectory() as folder:
    path, machine = (os.path.join(folder, name) for name in ("recompute.toml", "machine.toml"))
    with open(path, "w", encoding="utf-8") as file:
        file.write('[[layer]]\nmatch = "*"\nrecompute = true\n')
    little = "saves little memory"
    for verb in ("explain", "compare"):
        notes_once(f"{verb}: one microbatch recomputes all", run(verb, "--strategy", path), little, "every other block")
    with open(path, "a", encoding="utf-8") as file:
        file.write('[schedule]\nkind = "gpipe"\nmicrobatches = 4\n')
    result = run("explain", "--strategy", path)
    check("several microbatches do not", result.returncode == 0 and little not in result.stdout, result)
    part = "over a part of the samples"
    for how in ("local", "ranks=2"):
        notes_once(f"compare: --batch-norm {how}", run("compare", "--batch-norm", how, "--grid", "a=2 b=2", "--rule", "*: N@(a,b)"), part)
    result = run("compare", "--batch-norm", "synchronized")
    check("--batch-norm synchronized", result.returncode == 0 and part not in result.stdout, result)
    for arguments, message in ((["--model", "vgg16", "--batch-norm", "local"], "has no batch normalization"),
                               (["--batch-norm", "ranks=0"], "write synchronized, local or ranks=N")):
        result = run("compare", *arguments)
        check(f"refused: {message}", result.returncode == 2 and message in result.stderr, result)
    # A machine with one number for the arithmetic of all types.
    two_cores = pathlib.Path(__file__).resolve().parents[2] / "examples/machines/two-cores.toml"
    shutil.copy(two_cores, machine)
    one = "one number for the arithmetic of all types"
    notes_once("one peak, another type", run("compare", "--machine", machine, "--dtype", "bf16"), one, "used for bf16", "[arithmetic]")
    result = run("compare", "--machine", machine)
    check("one peak, f32", result.returncode == 0 and one not in result.stdout, result)
    result = run("compare", "--machine", two_cores.with_name("dgx-h100.toml"), "--dtype", "bf16")
    check("a peak for each type", result.returncode == 0 and one not in result.stdout, result)

notes_once("more threads than cores", run("train", *SMALL, "--threads", str(CORES + 1)), "--threads", f"only {CORES} core")
result = run("train", *SMALL, "--threads", str(CORES))
check("as many threads as cores", result.returncode == 0 and not any("--threads" in note for note in notes_of(result)), result)
for threads in (8 * CORES + 1, 100000):
    result = run("train", *SMALL, "--threads", str(threads), ranks=2)
    lines = [line for line in result.stderr.splitlines() if line.startswith("partita: ")]
    check(f"{threads} threads are refused", result.returncode == 2 and len(lines) == 1 and f"give {8 * CORES} or less" in lines[0], result)

print(f"{len(failures)} failed")
sys.exit(1 if failures else 0)
