"""`train --delay`: one rank waits before each step on purpose. The trace, the profile and the results show the delay
apart, and the other rank waits for it. Argument: the program build/partita."""

import re
import sys

from checks import Program, check, read_json, refused, run_parts, succeeded

partita = Program(sys.argv[1])
TRAIN = ["train", "--ranks", "2", "--model", "lenet5", "--width", "0.25", "--data", "synthetic", "--samples", "48",
         "--batch", "8", "--dtype", "f64", "--no-test"]


def delays_of(trace):
    """Returns the seconds of the delays in a trace, by rank."""
    rows = {}
    for event in read_json(trace)["traceEvents"]:
        if event["name"] == "delay":
            rows.setdefault(event["tid"], []).append(event["dur"] / 1e6)
    return rows


def one_rank():
    """Rank 1 waits for 60 ms before each of six steps."""
    plain = partita(*TRAIN, "--json", "plain.json")
    succeeded("without a delay none is reported", plain, "moved")
    check("in no file", "delayed" not in plain.out and "delays" not in read_json("plain.json"), plain)
    ran = partita(*TRAIN, "--delay", "rank=1:60ms", "--trace", "trace.json", "--json", "results.json", "--profile")
    results = read_json("results.json")
    check("the losses are the same", results["losses"] == read_json("plain.json")["losses"])
    check("the results have each rank's delays", results["delays"][0] == 0 and 0.36 <= results["delays"][1] < 2,
          results["delays"])
    check("each step takes as long", min(results["step_seconds"]) >= 0.055, results["step_seconds"])
    check("the delay is printed", re.search(r"^delayed    rank 1: \d{2,3}\.\d+ ms a step$", ran.out, re.M), ran.out)
    rows = delays_of("trace.json")
    check("the trace has the delays of rank 1 alone", set(rows) == {1} and len(rows[1]) == 5 and
          all(0.06 <= each < 0.5 for each in rows[1]), rows)
    profile = {rank: [float(each) for each in numbers.split()]
               for rank, numbers in re.findall(r"^  rank (\d) +([\d. ]+)", ran.out, re.M)}
    check("rank 0 waits for it", profile["0"][2] > 40 > profile["1"][2], ran.out)
    check("the profile has the delay apart", re.search(r"rank 1 .* \+ \d{2,3}\.\d+ delayed$", ran.out, re.M) and
          profile["1"][4] < profile["0"][4] - 40, ran.out)


def actions_begin_after_it():
    """In each step, the first action of the delayed rank begins when the delay has ended."""
    events = [event for event in read_json("trace.json")["traceEvents"]
              if event.get("ph") == "X" and event["pid"] == 0 and event["tid"] == 1]
    events.sort(key=lambda event: event["ts"])
    names = [event["name"] for event in events]
    after = [names[at + 1] for at, name in enumerate(names) if name == "delay"]
    check("an action follows each delay", after == ["0F0"] * 5, names)
    check("nothing overlaps", all(a["ts"] + a["dur"] <= b["ts"] + 0.01 for a, b in zip(events, events[1:])), events)


def random():
    """Random delays are those of seed, rank and step. A busy machine only lengthens them."""
    least = {0: [47, 55, 28, 33, 44], 1: [20, 14, 77, 70, 38]}  # whole milliseconds of the second step and later ones
    for options, same in (([], True), (["--seed", "5"], False)):
        partita(*TRAIN, "--delay", "random:80ms", "--delay", "rank=0:1ms", "--trace", "trace.json", *options)
        rows = delays_of("trace.json")
        check("each rank has delays", set(rows) == {0, 1} and all(len(each) == 5 for each in rows.values()), rows)
        longer = all(1e3 * row >= ms for rank in (0, 1) for row, ms in zip(rows[rank], least[rank]))
        check("they are those of the seed" if same else "another seed gives others", longer == same, rows)


def errors():
    """Bad values."""
    for value in ("3:20ms", "rank=1", "rank=x:20ms", "all:5ms"):
        refused(value, partita(*TRAIN, "--delay", value, status=2), f"--delay {value}: write rank=R:TIME")
    for value in ("rank=1:20", "random:0ms", "random:2h"):
        refused(value, partita(*TRAIN, "--delay", value, status=2), f"--delay {value}: the time must be")
    refused("no such rank", partita(*TRAIN, "--delay", "rank=2:20ms", status=2), "no such rank; there are 2 ranks")
    refused("a long delay", partita(*TRAIN, "--timeout", "5", "--delay", "rank=1:6s", status=2), "raise --timeout")


run_parts(one_rank, actions_begin_after_it, random, errors)
