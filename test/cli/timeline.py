"""Tests the files of `train --trace`: no slice of a row overlaps another, as Perfetto drops such slices, and every
arrow points forward in time, from a slice to a slice. Arguments: the launcher build/mpiexec and the program
build/partita."""

import collections
import sys

from checks import MACHINES, Program, check, finish, new_folder, read_json, write

partita = Program(sys.argv[2], sys.argv[1])
TRAIN = ["train", "--model", "lenet5", "--data", "synthetic", "--batch", "12", "--samples", "108", "--no-test",
         "--kernels", ""]
STAGES = 'stages = 3\n[schedule]\nkind = "{}"\nmicrobatches = 6\n'
HALF_A_NANOSECOND = 5e-4  # in microseconds


def trace(*words, ranks=0):
    """Trains, and returns the events of the trace."""
    partita(*TRAIN, *words, "--trace", "trace.json", ranks=ranks)
    return read_json("trace.json")["traceEvents"]


def slices_by_row(events):
    """Returns the slices of each row in their order."""
    rows = collections.defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            rows[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"], event["args"]["step"],
                                                     event["name"]))
    return {row: sorted(slices) for row, slices in rows.items()}


def check_slices(name, events, rows):
    """Checks the slices of each row."""
    found = slices_by_row(events)
    check(f"{name}: {rows} rows measured and predicted", sorted(found) == [(pid, row) for pid in (0, 1)
                                                                           for row in range(rows)])
    for row, slices in found.items():
        overlaps = [(a, b) for a, b in zip(slices, slices[1:]) if b[0] < a[1] - HALF_A_NANOSECOND]
        check(f"{name}: none of {len(slices)} slices of row {row} overlaps another", not overlaps, overlaps[:3])
        steps = [step for _, _, step, _ in slices]
        # Of two that begin at once, either may be the first of the list.
        turned = [(a, b) for a, b in zip(slices, slices[1:]) if a[2] > b[2] and b[0] - a[0] >= HALF_A_NANOSECOND]
        check(f"{name}: 8 steps, one after the other", not turned and set(steps) == set(range(8)), turned[:3] or steps)


def check_arrows(name, events, arrows):
    """Checks the arrows between slices."""
    rows = slices_by_row(events)
    ends = {kind: {event["id"]: event for event in events if event["ph"] == kind} for kind in "sf"}
    check(f"{name}: {arrows} arrows, each with two ends", len(ends["s"]) == arrows and
          ends["s"].keys() == ends["f"].keys(), ends)
    back = [(start, ends["f"][key]) for key, start in ends["s"].items() if ends["f"][key]["ts"] < start["ts"]]
    check(f"{name}: no arrow points back", not back, back)
    for event in [*ends["s"].values(), *ends["f"].values()]:
        inside = [slice for slice in rows[0, event["tid"]]
                  if slice[0] - HALF_A_NANOSECOND <= event["ts"] <= slice[1] + HALF_A_NANOSECOND]
        assert inside, f"{name}: no slice holds the end of an arrow {event}"


with new_folder():
    check_slices("one rank", trace(), 1)
    # The prices of this machine are ten times too large, so predicted steps take longer than measured ones.
    for what, factor in (("longer", "10"), ("shorter", "0.01")):
        events = trace("--machine", MACHINES / "two-cores.toml", "--scale-compute", factor)
        check_slices(f"predicted steps that are {what}", events, 1)
    for kind in ("1f1b", "zb-2p"):
        staged = trace("--strategy", write(f"{kind}.toml", STAGES.format(kind)), ranks=3)
        check_slices(kind, staged, 3)
        check_arrows(kind, staged, 8 * 6 * 2 * 2)  # steps, microbatches, boundaries, directions
finish()
