"""Tests the files of `train --trace`: no slice of a row overlaps another, as Perfetto drops such slices, and every
arrow points forward in time, from a slice to a slice. Arguments: the launcher build/mpiexec and the program
build/partita."""

import collections
import json
import os
import pathlib
import subprocess
import sys
import tempfile

LAUNCHER, PROGRAM = map(os.path.abspath, sys.argv[1:3])
MACHINE = str(pathlib.Path(__file__).resolve().parents[2] / "examples/machines/two-cores.toml")
TRAIN = ["train", "--model", "lenet5", "--data", "synthetic", "--batch", "12", "--samples", "108", "--no-test", "--kernels", ""]
STAGES = 'stages = 3\n[schedule]\nkind = "{}"\nmicrobatches = 6\n'
HALF_A_NANOSECOND = 5e-4  # in microseconds


def check(name, holds, shown=""):
    print(f"{'ok  ' if holds else 'FAIL'} {name}", flush=True)
    assert holds, shown


def trace(folder, ranks, *words):
    path = folder / "trace.json"
    command = ([LAUNCHER, "-n", str(ranks)] if ranks > 1 else []) + [PROGRAM, *TRAIN, *words, "--trace", str(path)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, f"{command}: status {ran.returncode}\n{ran.stdout}{ran.stderr}"
    return json.loads(path.read_text(encoding="utf-8"))["traceEvents"]


def slices_by_row(events):
    rows = collections.defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            rows[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"], event["args"]["step"], event["name"]))
    return {row: sorted(slices) for row, slices in rows.items()}


def check_slices(name, events, rows):
    found = slices_by_row(events)
    check(f"{name}: {rows} rows measured and predicted", sorted(found) == [(pid, row) for pid in (0, 1) for row in range(rows)])
    for row, slices in found.items():
        overlaps = [(a, b) for a, b in zip(slices, slices[1:]) if b[0] < a[1] - HALF_A_NANOSECOND]
        check(f"{name}: none of {len(slices)} slices of row {row} overlaps another", not overlaps, overlaps[:3])
        steps = [step for _, _, step, _ in slices]
        check(f"{name}: 8 steps, one after the other", steps == sorted(steps) and set(steps) == set(range(8)), steps)


def check_arrows(name, events, arrows):
    rows = slices_by_row(events)
    ends = {kind: {event["id"]: event for event in events if event["ph"] == kind} for kind in "sf"}
    check(f"{name}: {arrows} arrows, each with two ends", len(ends["s"]) == arrows and ends["s"].keys() == ends["f"].keys(), ends)
    back = [(start, ends["f"][key]) for key, start in ends["s"].items() if ends["f"][key]["ts"] < start["ts"]]
    check(f"{name}: no arrow points back", not back, back)
    for event in [*ends["s"].values(), *ends["f"].values()]:
        inside = [slice for slice in rows[0, event["tid"]]
                  if slice[0] - HALF_A_NANOSECOND <= event["ts"] <= slice[1] + HALF_A_NANOSECOND]
        assert inside, f"{name}: no slice holds the end of an arrow {event}"


with tempfile.TemporaryDirectory() as made:
    files = pathlib.Path(made)
    check_slices("one rank", trace(files, 1), 1)
    # The prices of this machine are ten times too large, so predicted steps take longer than measured ones.
    check_slices("predicted steps that are longer", trace(files, 1, "--machine", MACHINE, "--scale-compute", "10"), 1)
    check_slices("predicted steps that are shorter", trace(files, 1, "--machine", MACHINE, "--scale-compute", "0.01"), 1)
    for kind in ("1f1b", "zb-2p"):
        strategy = files / f"{kind}.toml"
        strategy.write_text(STAGES.format(kind), encoding="utf-8")
        staged = trace(files, 3, "--strategy", str(strategy))
        check_slices(kind, staged, 3)
        check_arrows(kind, staged, 8 * 6 * 2 * 2)  # steps, microbatches, boundaries, directions
