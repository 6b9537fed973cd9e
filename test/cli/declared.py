"""Tests the verbs of a program that declares its strategy in C++: they take it where the command line names no
strategy, --grid and --rule change it, and --strategy takes another or none. Arguments: the launcher build/mpiexec, the
program that declared.cpp makes, and the file of Chart.js, or "" for a build without the verb report."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

LAUNCHER, PROGRAM = map(os.path.abspath, sys.argv[1:3])
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


def check(name, holds, shown=""):
    print(f"{'ok  ' if holds else 'FAIL'} {name}", flush=True)
    assert holds, shown


def run(*words, ranks=0, status=0, mistake="", folder=None):
    command = ([LAUNCHER, "-n", str(ranks)] if ranks else []) + [PROGRAM, *words]
    ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100, check=False,
                         env={**os.environ, "MISTAKE": mistake})
    assert ran.returncode == status, f"{command}: status {ran.returncode}\n{ran.stdout}{ran.stderr}"
    return ran.stdout + ran.stderr


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


def train(folder, *words, ranks=4):
    path = folder / "train.json"
    text = run("train", *DATA, *words, "--ranks", str(ranks), "--no-test", "--json", str(path))
    return read(path), text


def trains(folder, file):
    own, text = train(folder, "--save", str(folder / "w.h5"))
    given, _ = train(folder, "--strategy", file)
    check("train takes the declared strategy", 'strategy   declared, grid "data=2 y=2"' in text and own["strategy"] == "declared", text)
    check("with the losses, bytes and memory of the file", all(own[key] == given[key] for key in (
        "losses", "measured_bytes", "measured_memory", "predicted_memory")), (own, given))
    changed, text = train(folder, "--grid", "data=3 y=2", ranks=6)
    check("--grid changes its grid", 'grid "data=3 y=2"' in text and changed["measured_bytes"] != own["measured_bytes"], text)
    serial, text = train(folder, "--strategy", "none", ranks=1)
    check("--strategy none leaves it out", 'from the command line, grid ""' in text, text)
    samples, text = train(folder, "--strategy", "none", ranks=2)
    check("then samples are split over the ranks", 'grid "data=2"' in text, text)
    check("all train alike", all(abs(a - b) < 1e-12 for run in (given, changed, samples)
                                 for a, b in zip(run["losses"], serial["losses"])), (own, serial))
    text = run("train", *DATA, "--ranks", "3", status=2)
    check("another number of ranks is refused", "4 ranks" in text, text)
    evaluation = ["evaluate", "--data", "synthetic", "--samples", "24", "--dtype", "f64", "--load", str(folder / "w.h5")]
    four, one = run(*evaluation, ranks=4), run(*evaluation, "--strategy", "none")
    test = lambda text: [line.split()[3] for line in text.splitlines() if line.startswith("test")]
    check("evaluate takes it, and none", "strategy   declared" in four and "strategy   from" in one and test(four) == test(one) != [], four + one)


def predicts(folder, file):
    named = run("explain", "--strategy", file)
    check("explain", run("explain") == named and "N@data C H@y W" in named, named)
    check("explain with a rule", "N@data C@y" in run("explain", "--rule", "fc: N@data C@y"))
    paths = [folder / name for name in ("own.json", "both.json")]
    run("compare", "--json", str(paths[0]))
    run("compare", "--strategies", "declared", file, "none", "--json", str(paths[1]))
    alone, (own, given, serial) = (read(path)["strategies"] for path in paths)
    check("compare prices it as the file", alone[0]["name"] == own["name"] == "declared" and
          alone[0]["seconds"] == own["seconds"] == given["seconds"] != serial["seconds"] and serial["ranks"] == 1, (alone, own, given))
    text = run("compare", "--ranks", "2", "4", "8", "--grid", "data={} y=2")
    check("compare puts it on grids", "strategy declared on data={} y=2" in text, text)
    text = run("compare", "--strategy", "none", "--ranks", "1", "2", "--grid", "data={}", "y={}")
    check("or no strategy", "none on y={}" in text, text)
    text = run("compare", "--strategy", "none", "--ranks", "2", "4")
    check("which alone shards samples", "strategy data={}" in text, text)
    text = run("simulate", "--out", str(folder / "replay"))
    check("simulate", "declared-net on 4 ranks" in text, text)
    text = run("plan", "--ranks", "4", "--best", "1", "--out", str(folder / "p"))
    check("plan searches for another", (folder / "p-1.toml").exists(), text)


def scales(folder):
    out = folder / "scale.json"
    words = ["--steps", "2", "--repeats", "1", "--batch", "12", "--out", str(out)]
    run("scale", "--ranks", "1", "4", *words)
    runs = {(each["strategy"], each["ranks"]) for each in read(out)["runs"]}
    check("scale runs it on its ranks, and the serial program", runs == {("declared", 4), ("serial", 1)}, runs)
    out.unlink()
    run("scale", "--ranks", "1", "2", "--strategy", "none", "--grid", "data={}", *words)
    runs = {(each["strategy"], each["ranks"]) for each in read(out)["runs"]}
    check("scale without it", runs == {("none on data={}", 1), ("none on data={}", 2)}, runs)
    if REPORTS:
        page = folder / "page.html"
        run("report", str(out), "--out", str(page))
        check("report", "none on data={}" in page.read_text(encoding="utf-8"))


def mistakes():
    text = run("explain", status=2, mistake="grid")
    check("a wrong grid is one line", text.startswith("partita: ") and text.count("\n") == 1 and '"data=2 y="' in text, text)
    text = run("train", "--ranks", "4", *DATA, status=2, mistake="rule")
    check("a rule that matches nothing is one line", text.count("\n") == 1 and "nonv" in text, text)
    text = run("explain", status=2, mistake="no function")
    check("no function", text == "partita: partita::main has an empty function for its strategy; give it a function that "
          "returns a Strategy\n", text)


with tempfile.TemporaryDirectory() as made:
    files = pathlib.Path(made)
    strategy = files / "s.toml"
    strategy.write_text(FILE, encoding="utf-8")
    trains(files, str(strategy))
    predicts(files, str(strategy))
    scales(files)
    mistakes()
