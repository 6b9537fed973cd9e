"""Tests the verbs of a program that declares its strategy in C++: they take it where the command line names no
strategy, --grid and --rule change it, and --strategy takes another or none. Arguments: the launcher build/mpiexec, the
program that declared.cpp makes, and the file of Chart.js, or "" for a build without the verb report."""

import os
import sys

from checks import Program, check, read, read_json, run_parts, write

declared = Program(sys.argv[2], sys.argv[1], timeout=100)
REPORTS = sys.argv[3] != ""
DATA = ["--data", "synthetic", "--samples", "24", "--batch", "12", "--dtype", "f64"]
# The strategy of declared.cpp as a file.
FILE = """grid = "data=2 y=2"
[[layer]]
match = "conv"
output = "N@data H@y"
[[layer]]
match = "fc"
output = "N@data"
"""


def output(*words, mistake="", **more):
    """Runs the program, and returns all that it printed."""
    return declared(*words, variables={"MISTAKE": mistake}, **more).text


def train(*words, ranks=4):
    """Trains on threads, and returns the results and the output."""
    text = output("train", *DATA, *words, "--ranks", ranks, "--no-test", "--json", "train.json")
    return read_json("train.json"), text


def trains():
    """Training and evaluation with the declared strategy, with others and with none."""
    write("s.toml", FILE)
    own, text = train("--save", "w.h5")
    given, _ = train("--strategy", "s.toml")
    check("train takes the declared strategy", 'strategy   declared, grid "data=2 y=2"' in text and
          own["strategy"] == "declared", text)
    check("with the losses, bytes and memory of the file", all(own[key] == given[key] for key in (
        "losses", "measured_bytes", "measured_memory", "predicted_memory")), (own, given))
    changed, text = train("--grid", "data=3 y=2", ranks=6)
    check("--grid changes it", 'grid "data=3 y=2"' in text and changed["measured_bytes"] != own["measured_bytes"], text)
    serial, text = train("--strategy", "none", ranks=1)
    check("--strategy none leaves it out", 'from the command line, grid ""' in text, text)
    samples, text = train("--strategy", "none", ranks=2)
    check("then samples are split over the ranks", 'grid "data=2"' in text, text)
    check("all train alike", all(abs(a - b) < 1e-12 for run in (given, changed, samples)
                                 for a, b in zip(run["losses"], serial["losses"])), (own, serial))
    text = output("train", *DATA, "--ranks", "3", status=2)
    check("another number of ranks is refused", "4 ranks" in text, text)
    evaluation = ["evaluate", "--data", "synthetic", "--samples", "24", "--dtype", "f64", "--load", "w.h5"]
    four, one = output(*evaluation, ranks=4), output(*evaluation, "--strategy", "none")
    test = lambda text: [line.split()[3] for line in text.splitlines() if line.startswith("test")]
    check("evaluate takes it, and none", "strategy   declared" in four and "strategy   from" in one and
          test(four) == test(one) != [], four + one)


def predicts():
    """Verbs that predict."""
    named = output("explain", "--strategy", "s.toml")
    check("explain", output("explain") == named and "N@data C H@y W" in named, named)
    check("explain with a rule", "N@data C@y" in output("explain", "--rule", "fc: N@data C@y"))
    output("compare", "--json", "own.json")
    output("compare", "--strategies", "declared", "s.toml", "none", "--json", "both.json")
    alone, (own, given, serial) = (read_json(path)["strategies"] for path in ("own.json", "both.json"))
    check("compare prices it as the file", alone[0]["name"] == own["name"] == "declared" and
          alone[0]["seconds"] == own["seconds"] == given["seconds"] != serial["seconds"] and serial["ranks"] == 1,
          (alone, own, given))
    text = output("compare", "--ranks", "2", "4", "8", "--grid", "data={} y=2")
    check("compare puts it on grids", "strategy declared on data={} y=2" in text, text)
    text = output("compare", "--strategy", "none", "--ranks", "1", "2", "--grid", "data={}", "y={}")
    check("or no strategy", "none on y={}" in text, text)
    text = output("compare", "--strategy", "none", "--ranks", "2", "4")
    check("which alone shards samples", "strategy data={}" in text, text)
    text = output("simulate", "--out", "replay")
    check("simulate", "declared-net on 4 ranks" in text, text)
    text = output("plan", "--ranks", "4", "--best", "1", "--out", "p")
    check("plan searches for another", os.path.exists("p-1.toml"), text)


def scales():
    """The verbs scale and report."""
    words = ["--steps", "2", "--repeats", "1", "--batch", "12", "--out", "scale.json"]
    output("scale", "--ranks", "1", "4", *words)
    runs = {(each["strategy"], each["ranks"]) for each in read_json("scale.json")["runs"]}
    check("scale runs it on its ranks, and the serial program", runs == {("declared", 4), ("serial", 1)}, runs)
    os.remove("scale.json")
    output("scale", "--ranks", "1", "2", "--strategy", "none", "--grid", "data={}", *words)
    runs = {(each["strategy"], each["ranks"]) for each in read_json("scale.json")["runs"]}
    check("scale without it", runs == {("none on data={}", 1), ("none on data={}", 2)}, runs)
    if REPORTS:
        output("report", "scale.json", "--out", "page.html")
        check("report", "none on data={}" in read("page.html"))


def mistakes():
    """Mistakes in the declaration."""
    text = output("explain", status=2, mistake="grid")
    check("a wrong grid", text.startswith("partita: ") and text.count("\n") == 1 and '"data=2 y="' in text, text)
    text = output("train", "--ranks", "4", *DATA, status=2, mistake="rule")
    check("a rule that matches nothing", text.count("\n") == 1 and "nonv" in text, text)
    text = output("explain", status=2, mistake="no function")
    check("no function", text ==
          "partita: partita::main has an empty function for its strategy; give it a function that "
          "returns a Strategy\n", text)


run_parts(trains, predicts, scales, mistakes)
