"""Exchanges schedules with PyTorch as CSV files. PyTorch reads the schedules that `partita schedule` writes, validates
them, adds sends and receives, and runs them in its simulator. `partita schedule` reads and validates the schedules that
PyTorch's own classes write, and must refuse those that PyTorch refuses too. Both must refuse schedules that were
damaged. Prints one JSON object per case. Fails if a case does not end as it should.
  build/peers/bin/python -B bench/peers/schedule.py [build/partita]"""
import csv
import json
import os
import subprocess
import sys
import tempfile
import types

import torch
from torch.distributed.pipelining import schedules as peer

PROGRAM = sys.argv[1] if len(sys.argv) > 1 else "build/partita"
SIZES = [(2, 4), (3, 6), (4, 8), (8, 24)]  # stages (PyTorch: ranks) and microbatches
ODD = [(4, 3), (4, 5), (5, 13)]            # PyTorch generates no schedule for these
OURS = ["gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-1p", "zb-2p", "zb-v", "v-half", "v-min", "dualpipe-v"]
# PyTorch's classes, groups of layers per stage (PyTorch: stages per rank), and our kind of the same name
PEERS = [("ScheduleGPipe", 1, "gpipe"), ("Schedule1F1B", 1, "1f1b"), ("ScheduleInterleaved1F1B", 1, "1f1b"),
         ("ScheduleInterleaved1F1B", 2, "interleaved"), ("ScheduleLoopedBFS", 2, None),
         ("ScheduleInterleavedZeroBubble", 2, None), ("ScheduleZBVZeroBubble", 2, "zb-v"),
         ("ScheduleDualPipeV", 2, "dualpipe-v")]
failures = 0


def partita(*arguments):
    """Runs `partita schedule --json` and returns the parsed JSON, or the error as text."""
    run = subprocess.run([PROGRAM, "schedule", "--json", "/dev/stdout", *map(str, arguments)], capture_output=True, text=True, timeout=60)
    return json.loads(run.stdout) if run.returncode == 0 else run.stderr.strip()


def stages(ranks, per_rank):
    """Objects with the fields of the stages of rank 0 that PyTorch's schedules read; no process group, no layers."""
    return [types.SimpleNamespace(stage_index=i, num_stages=ranks * per_rank, group_size=ranks, group_rank=0, is_first=i == 0,
                                  is_last=False, submod=torch.nn.Identity()) for i in range(per_rank)]


def rows(path):
    """The actions of a file, without idle time."""
    with open(path, newline="", encoding="utf-8") as file:
        return [[cell for cell in row if cell] for row in csv.reader(file)]


def flat(lists):
    """Rows in which each pair of overlapped actions is two actions."""
    return [[part for cell in row for part in cell.removesuffix("OVERLAP_F_B").strip("()").split(";")] for row in lists]


def loaded(path, ranks, per_rank, microbatches):
    """PyTorch's runtime with the schedule of a file, after it has validated and simulated it."""
    runtime = peer._PipelineScheduleRuntime(stages(ranks, per_rank), microbatches)
    runtime._load_csv(path)
    place = runtime.stage_index_to_group_rank.__getitem__
    # its simulator supports neither the UNSHARD actions that _load_csv adds nor pairs of actions
    order = {rank: [part for a in actions if a for part in a.sub_actions or (a,)]
             for rank, actions in runtime.pipeline_order.items()}
    groups = ranks * per_rank
    peer._simulate_comms_compute(peer._add_send_recv(order, place, groups), place, groups)
    return runtime


def generated(name, ranks, per_rank, microbatches):
    """The actions that one of PyTorch's classes generates: computations only, as in its compute-only files."""
    make = getattr(peer, name)
    own = stages(ranks, per_rank)
    order = make(own if issubclass(make, peer.PipelineScheduleMulti) else own[0], microbatches).pipeline_order
    return {rank: [a for a in actions if a is None or a.is_compute_op] for rank, actions in order.items()}


def refusal(call, *arguments):
    """Calls a function of PyTorch. Returns the error, or "" if there is none."""
    try:
        call(*arguments)
    except (AssertionError, RuntimeError, ValueError, KeyError) as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return ""


def report(direction, case, ranks, per_rank, microbatches, holds, **more):
    global failures
    failures += not holds
    print(json.dumps({"subject": "schedule-csv", "direction": direction, "case": case, "stages": ranks,
                      "groups": ranks * per_rank, "microbatches": microbatches, "ok": bool(holds), **more,
                      "against": f"PyTorch {torch.__version__}"}))


def to_peer(kind, ranks, microbatches, folder):
    ours, back = os.path.join(folder, "ours.csv"), os.path.join(folder, "back.csv")
    made = partita("--kind", kind, "--stages", ranks, "--microbatches", microbatches, "--csv-out", ours)
    per_rank = made["groups"] // ranks
    why = refusal(lambda: loaded(ours, ranks, per_rank, microbatches)._dump_csv(back, format="compute_only"))
    same = not why and rows(back) == rows(ours)
    again = None if why else partita("--csv-in", back)
    holds = same and isinstance(again, dict) and {**again, "kind": kind} == made
    report("written by us, read by PyTorch", kind, ranks, per_rank, microbatches, holds, **{"PyTorch refuses": why})


def from_peer(name, per_rank, kind, ranks, microbatches, folder):
    theirs, ours = os.path.join(folder, "theirs.csv"), os.path.join(folder, "ours.csv")
    runtime = peer._PipelineScheduleRuntime(stages(ranks, per_rank), microbatches)
    runtime.pipeline_order = generated(name, ranks, per_rank, microbatches)
    runtime._dump_csv(theirs, format="compute_only")
    why, read = refusal(loaded, theirs, ranks, per_rank, microbatches), partita("--csv-in", theirs, "--csv-out", ours)
    accepted = isinstance(read, dict)
    holds = accepted == (not why) and (not accepted or rows(ours) == flat(rows(theirs)))
    more = {"PyTorch refuses": why, "we refuse": "" if accepted else read.replace(theirs, "theirs.csv")}
    if accepted:
        more["bubble_rate"] = round(read["bubble_rate"], 4)
    if accepted and kind:
        own = partita("--kind", kind, "--stages", ranks, "--microbatches", microbatches, "--csv-out", ours)
        more.update(our_bubble_rate=round(own["bubble_rate"], 4), same_order=rows(ours) == flat(rows(theirs)))
    report("written by PyTorch, read by us", name, ranks, per_rank, microbatches, holds, **more)


def both_refuse(case, change, folder):
    """Damages one of our schedules and checks that PyTorch and Partita refuse it."""
    path = os.path.join(folder, "wrong.csv")
    partita("--kind", "1f1b", "--stages", 4, "--microbatches", 8, "--csv-out", path)
    lists = rows(path)
    change(lists)
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(lists)
    theirs, ours = refusal(loaded, path, 4, 1, 8), partita("--csv-in", path)
    report("damaged, refused by both", case, 4, 1, 8, theirs and isinstance(ours, str),
           **{"PyTorch refuses": theirs, "we refuse": str(ours).replace(path, "wrong.csv")})


def swap(row, first, second):
    i, j = row.index(first), row.index(second)
    row[i], row[j] = row[j], row[i]


with tempfile.TemporaryDirectory() as folder:
    for kind in OURS:
        for ranks, microbatches in SIZES + ODD:
            to_peer(kind, ranks, microbatches, folder)
    for name, per_rank, kind in PEERS:
        for ranks, microbatches in SIZES:
            from_peer(name, per_rank, kind, ranks, microbatches, folder)
    both_refuse("unknown action", lambda lists: lists[1].insert(2, "1X0"), folder)
    both_refuse("missing microbatch", lambda lists: lists[2].remove("2F5"), folder)
    both_refuse("backward before its forward", lambda lists: swap(lists[3], "3F0", "3B0"), folder)
    both_refuse("cycle", lambda lists: swap(lists[0], "0F1", "0B0"), folder)
    both_refuse("two stages run a group", lambda lists: lists[1].append(lists[0].pop()), folder)
sys.exit(failures > 0)
