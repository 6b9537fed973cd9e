"""Tests `compare --ranks`: predicted curves over numbers of ranks, as text, CSV and JSON. Argument: build/partita."""

import re
import sys

from checks import MACHINES, Program, check, read_csv, read_json, refused, run_parts

partita = Program(sys.argv[1])
H100 = ["--machine", MACHINES / "dgx-h100.toml"]
COUNTS = [str(2**k) for k in range(13)]


def points(*arguments):
    """Returns the points in JSON and the text, after a check that the CSV has the same."""
    text = partita("compare", *arguments, "--csv", "c.csv", "--json", "c.json").out
    content, rows = read_json("c.json"), read_csv("c.csv")
    assert len(rows) == len(content["points"]), rows
    for row, point in zip(rows, content["points"]):
        flat = {**point, **point["parts"], "fits": str(point["fits"]).lower()}
        assert all(row[key] == flat[key] if isinstance(flat[key], str) else float(row[key]) == flat[key]
                   for key in row), (row, flat)
        assert abs(sum(point["parts"].values()) - point["seconds"]) < 1e-9 * point["seconds"], point
    return content, text


def curves():
    """Two strategies on 1 to 4096 ranks."""
    model = ["--model", "resnet50", "--batch", "4096", *H100]
    content, text = points(*model, "--ranks", *COUNTS, "--grid", "data={}", "data={} y=4")
    by = {(point["strategy"], point["ranks"]): point for point in content["points"]}
    check("a point for each number that the grid divides",
          sorted(by) == sorted([("data={}", 2**k) for k in range(13)] + [("data={} y=4", 2**k) for k in range(2, 13)]),
          by)
    check("left out numbers are named", "data={} y=4 does not divide 1, 2 ranks; left out" in text, text)
    check("one rank is as efficient as one rank", by["data={}", 1]["efficiency"] == 1)
    for (_, ranks), point in by.items():
        assert abs(point["efficiency"] - by["data={}", 1]["seconds"] / point["seconds"] / ranks) < 1e-12, point
    check("points that do not fit are priced and marked", not by["data={}", 4]["fits"] and by["data={}", 8]["fits"] and
          len(re.findall("does not fit", text)) == 4, text)
    single = partita("compare", *model, "--grid", "data=64 y=4", "--rule", "*: N@data H@y").out
    expected = f'{1e3 * by["data={} y=4", 256]["seconds"]:.3f}'
    check("a point costs what compare says of its grid", expected in single, single)
    fastest = {entry["ranks"]: entry["strategy"] for entry in content["fastest"]}
    for ranks, strategy in fastest.items():
        fitting = [point["seconds"] for point in content["points"] if point["ranks"] == ranks and point["fits"]]
        assert by[strategy, ranks]["seconds"] == min(fitting), (ranks, strategy)
    check("the fastest that fits is named from 8 ranks on", sorted(fastest) == [2**k for k in range(3, 13)] and
          "\nfastest: " in text, fastest)


def weak():
    """A batch for each rank."""
    content, text = points("--model", "resnet50", "--batch", "64", *H100, "--weak", "--ranks", "1", "8", "64", "--grid",
                           "data={}")
    check("the batch grows with the ranks", [point["batch"] for point in content["points"]] == [64, 512, 4096] and
          "per rank" in text, text)
    rates = [point["efficiency"] for point in content["points"]]
    check("weak efficiency is a ratio of step times", rates[0] == 1 and 0.8 < rates[2] < rates[1] < 1, rates)


def crossing():
    """Few samples: beyond 8 ranks, samples alone leave ranks idle, and cutting images as well is faster."""
    content, text = points("--model", "vgg16", "--batch", "8", *H100, "--memory-limit", "1TiB", "--ranks", "1", "2",
                           "4", "8", "16", "32", "--grid", "data={}", "y=4 data={}")
    fastest = [entry["strategy"] for entry in content["fastest"]]
    check("strategies cross", fastest[0] == "data={}" and fastest[-1] == "y=4 data={}", fastest)
    check("the crossing is printed",
          re.search(r"fastest: data=\{\} on 1 to \d+ ranks, y=4 data=\{\} on \d+ to 32 ranks", text), text)


def refusals():
    """Options that do not fit together."""
    cases = ((["--ranks", "2", "1"], "--ranks 2 1: write each number once, in ascending order"),
             (["--ranks", "0"], "--ranks 0: a run has 1 rank or more"),
             (["--weak"], "--weak needs --ranks"),
             (["--csv", "x.csv"], "--csv x.csv: it needs --ranks"),
             (["--grid", "data=2", "data=4"], "--grid: several grids need --ranks"),
             (["--grid", "data={}"], '--grid "data={}": {} needs --ranks'),
             (["--ranks", "1", "2", "--measure"], "--measure takes one number of --ranks"),
             (["--ranks", "3", "--grid", "data={} y=2"], "data={} y=2 does not divide 3 ranks"),
             (["--ranks", "2", "--grid", "rows={}"],
              "only axes named data, c, z, y, x and seq say which dimension they shard"))
    for arguments, message in cases:
        refused(" ".join(arguments), partita("compare", *arguments, status=2), re.escape(message))
    ran = partita("compare", "--ranks", "1", "2", "--memory-limit", "1MiB", status=2)
    check("nothing fits: status 2, but all is priced", "no strategy fits in 1.0 MiB per rank" in ran.err and
          ran.out.count("does not fit") == 2, ran)


run_parts(curves, weak, crossing, refusals)
