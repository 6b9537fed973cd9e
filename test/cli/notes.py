"""Tests notes about strategies, options and machines that are hardly what was meant: axes over which nothing is
sharded, recomputing all of one microbatch, more threads than cores, one peak for all types. Arguments: the launcher
build/mpiexec, the program build/partita."""

import os
import shutil
import sys

from checks import MACHINES, Program, check, ended, refused, run_parts, write

partita = Program(sys.argv[2], sys.argv[1], status=None)
CORES = len(os.sched_getaffinity(0))
SMALL = ["--data", "synthetic", "--samples", "32", "--batch", "16", "--no-test", "--epochs", "1", "--kernels", ""]


def notes_of(ran):
    """Returns the notes that were printed."""
    return [line for line in ran.text.splitlines() if line.startswith("note")]


def notes_once(name, ran, *parts):
    """Checks that one note has the first part, and that it has the others too."""
    notes = [line for line in notes_of(ran) if parts[0] in line]
    check(name, ran.status == 0 and len(notes) == 1 and all(part in notes[0] for part in parts), ran)


def silent(name, ran, part):
    """Checks that a part was not printed."""
    check(name, ran.status == 0 and part not in ran.out, ran)


def idle_axes():
    """Axes over which nothing is sharded."""
    write("empty.toml", "")
    write("idle.toml", 'grid = "data=2 y=2"\n[[layer]]\nmatch = "*"\noutput = "N@data"\n')
    write("used.toml", 'grid = "data=2"\n[[layer]]\nmatch = "*"\noutput = "N@data"\n')
    same = "do the same work"
    for strategy, ranks, parts in ((["--strategy", "empty.toml", "--grid", "data=2"], 2,
                                    ("over data,", "groups of 2", '"*: N@data"')),
                                   (["--strategy", "idle.toml"], 4, ("over y,", "groups of 2", '"*: N@(data,y)"'))):
        notes_once(f"explain: {strategy[1]}", partita("explain", *strategy), same, *parts)
        notes_once(f"train: {strategy[1]}", partita("train", *strategy, *SMALL, ranks=ranks), same, *parts)
        notes_once(f"compare: {strategy[1]}", partita("compare", *strategy), same, *parts)
    for verb in ("explain", "compare"):
        silent(f"{verb}: nothing to note", partita(verb, "--strategy", "used.toml"), same)
    # The rule that the note proposes silences it.
    silent("the proposed rule", partita("explain", "--strategy", "idle.toml", "--rule", "*: N@(data,y)"), same)


def recomputation():
    """Recomputing all of one microbatch."""
    text = '[[layer]]\nmatch = "*"\nrecompute = true\n'
    write("recompute.toml", text)
    little = "saves little memory"
    for verb in ("explain", "compare"):
        notes_once(f"{verb}: one microbatch recomputes all", partita(verb, "--strategy", "recompute.toml"), little,
                   "every other block")
    write("recompute.toml", text + '[schedule]\nkind = "gpipe"\nmicrobatches = 4\n')
    silent("several microbatches do not", partita("explain", "--strategy", "recompute.toml"), little)


def batch_normalization():
    """Statistics over a part of the samples."""
    part = "over a part of the samples"
    for how in ("local", "ranks=2"):
        notes_once(f"compare: --batch-norm {how}", partita("compare", "--batch-norm", how, "--grid", "a=2 b=2",
                                                           "--rule", "*: N@(a,b)"), part)
    silent("--batch-norm synchronized", partita("compare", "--batch-norm", "synchronized"), part)
    for arguments, message in ((["--model", "vgg16", "--batch-norm", "local"], "has no batch normalization"),
                               (["--batch-norm", "ranks=0"], "write synchronized, local or ranks=N")):
        refused("statistics", partita("compare", *arguments), message)


def peaks():
    """A machine with one number for the arithmetic of all types."""
    shutil.copy(MACHINES / "two-cores.toml", "machine.toml")
    one = "one number for the arithmetic of all types"
    notes_once("one peak, another type", partita("compare", "--machine", "machine.toml", "--dtype", "bf16"), one,
               "used for bf16", "[arithmetic]")
    silent("one peak, f32", partita("compare", "--machine", "machine.toml"), one)
    silent("a peak for each type", partita("compare", "--machine", MACHINES / "dgx-h100.toml", "--dtype", "bf16"), one)


def threads():
    """More threads than cores."""
    notes_once("many threads", partita("train", *SMALL, "--threads", CORES + 1), "--threads", f"only {CORES} core")
    ran = partita("train", *SMALL, "--threads", CORES)
    check("as many threads as cores", ran.status == 0 and not any("--threads" in note for note in notes_of(ran)), ran)
    for number in (8 * CORES + 1, 100000):
        ended(f"{number} threads are refused", partita("train", *SMALL, "--threads", number, ranks=2), 2,
              f"give {8 * CORES} or less")


run_parts(idle_axes, recomputation, batch_normalization, peaks, threads)
