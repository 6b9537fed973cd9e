"""Tests the verbs as a user types them: what they print and write, and that files can be read again.
Arguments: the launcher build/mpiexec and the program build/partita."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

LAUNCHER, PROGRAM = map(os.path.abspath, sys.argv[1:3])
SMALL = ["--data", "synthetic", "--samples", "64", "--batch", "16", "--dtype", "f64"]


def run(ranks, *arguments):
    command = ([LAUNCHER, "-n", str(ranks)] if ranks else []) + [PROGRAM, *arguments]
    result = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=60, check=False)
    assert result.returncode == 0, f"{command}: status {result.returncode}\n{result.stdout}{result.stderr}"
    assert result.stderr == "", f"{command}: {result.stderr}"
    return result.stdout


def check(name, holds, shown=""):
    print(f"{'ok  ' if holds else 'FAIL'} {name}")
    assert holds, shown


def last(text, word):
    return [line for line in text.splitlines() if line.startswith(word)][-1]


version = run(0, "--version")
check("version", re.fullmatch(r"partita \d+\.\d+\.\d+ \(.*\(MPI \d\.\d\)\)\n", version), version)
check("each process prints the version", run(3, "--version") == 3 * version)
check("help lists the verbs", all(verb in run(0, "--help") for verb in ("train", "evaluate", "explain")))
check("help of schedule", "--microbatches" in run(0, "schedule", "--help"))
STRATEGIES = pathlib.Path(__file__).resolve().parents[2] / "examples/strategies"
with tempfile.TemporaryDirectory() as folder:
    csv, svg = (os.path.join(folder, name) for name in ("s.csv", "s.svg"))
    made = json.loads(run(0, "schedule", "--kind", "zb-v", "--stages", "4", "--microbatches", "8", "--csv-out", csv, "--svg", svg,
                          "--json", "/dev/stdout"))
    found = os.path.join(folder, "s.json")
    text = run(0, "schedule", "--csv-in", csv, "--json", found)
    read = json.loads(pathlib.Path(found).read_text(encoding="utf-8"))
    check("--json FILE of schedule writes the file beside the text", "bubble" in text)
    old = subprocess.run([PROGRAM, "schedule", "--csv-in", csv, "--json"], capture_output=True, text=True, timeout=60, check=True)
    check("--json without a file prints JSON, and one note", json.loads(old.stdout) == read and old.stderr ==
          "note: --json without a file prints to standard output; --json /dev/stdout says so\n", old.stderr)
    check("a schedule can be read again from its file", {**made, "kind": csv} == read)
    check("no bubble with 4 activations per stage", made["bubble_rate"] == 0 and
          [stage["peak_activations"] for stage in made["per_stage"]] == [4, 4, 4, 4], made)
    with open(svg, encoding="utf-8") as file:
        drawn = xml.etree.ElementTree.fromstring(file.read())
    check("one bar per action", sum(g.tag.endswith("}g") for g in drawn) == 4 * 8 * 6)
check("every kind is listed", run(0, "schedule", "--kinds").count("p stages and microbatches") == 12)
for verb in ("train", "evaluate", "explain"):
    check(f"help of {verb}", "--strategy" in run(0, verb, "--help"))
explained = run(0, "explain", "--grid", "data=2 y=2", "--rule", "*: N@data H@y", "--picture")
for part in ("conv1 = conv(image)", "halo x   H 1+1", "N@data C H@y W", "all_reduce(data,y)", "total per step"):
    check(f"explain shows '{part}'", part in explained, explained)
twice = run(2, "explain", "--grid", "data=2 y=2", "--rule", "*: N@data H@y", "--picture")
# Pieces of the two outputs may stand anywhere in each other.
check("each process prints what explain says", sorted(twice) == sorted(2 * explained), twice)
check("a drawing to standard output", "</svg>" in run(0, "explain", "--svg", "/dev/stdout"))
with tempfile.TemporaryDirectory() as folder:
    real, link, results = (os.path.join(folder, name) for name in ("real.svg", "link.svg", "caf\udce9.json"))
    os.symlink("real.svg", link)
    for there in ("which does not exist", "which exists"):
        run(0, "explain", "--svg", link)
        check(f"a link stays a link, and the file behind it, {there}, is written", os.path.islink(link) and os.path.getsize(real) > 0)
    with open(results, "w", encoding="utf-8") as file:
        subprocess.run([PROGRAM, "explain", "--svg", "/dev/stdout"], stdout=file, timeout=60, check=True)
    text = pathlib.Path(results).read_text(encoding="utf-8")
    check("standard output can be a file", text.startswith("<svg") and "</svg>" in text and text.endswith(
        run(0, "explain")), text[:200])
    os.remove(results)  # no JSON, so --json would not replace it
    strategy = os.path.join(folder, "caf\udce9.toml")  # not valid UTF-8
    pathlib.Path(strategy).write_text('grid = "data=2"\n', encoding="utf-8")
    run(2, "train", *SMALL, "--no-test", "--strategy", strategy, "--json", results)
    run(0, "compare", "--strategies", strategy, "--json", results)
    check("the name of a file need not be UTF-8", "\ufffd" in pathlib.Path(results).read_text(encoding="utf-8"))
evaluation = run(0, "explain", "--evaluation", "--grid", "data=2", "--rule", "*: N@data")
check("explain of an evaluation has no backward", not re.search(r"\bd[xwy]\b|gradients|optimizer", evaluation), evaluation)

with tempfile.TemporaryDirectory() as folder:
    saved, results, other = (os.path.join(folder, name) for name in ("w.h5", "r.json", "e.json"))
    trained = run(4, "train", *SMALL, "--grid", "data=2 y=2", "--rule", "*: N@data H@y", "--epochs", "2", "--save", saved,
                  "--json", results, "--optimizer", "adamw")
    with open(results, encoding="utf-8") as file:
        report = json.load(file)
    check("results of every epoch", [epoch["epoch"] for epoch in report["epochs"]] == [1, 2])
    check("one loss per step", len(report["losses"]) == 8)
    check("bytes as predicted", report["predicted_bytes"] == report["measured_bytes"] > 0)
    evaluated = run(3, "evaluate", *SMALL, "--load", saved, "--json", other)
    check("an evaluation has no optimizer", "sgd" not in evaluated and "adamw" in trained, evaluated)
    with open(other, encoding="utf-8") as file:
        again = json.load(file)
    check("a checkpoint gives the same test loss on another grid", abs(again["test"]["loss"] - report["test"]["loss"]) < 1e-9,
          last(trained, "test") + last(evaluated, "test"))
    cut = os.path.join(folder, "cut.toml")
    with open(cut, "w", encoding="utf-8") as file:
        file.write('grid = "data=2"\n[schedule]\nkind = "zb-h1"\nmicrobatches = 3\n[[layer]]\nmatch = "*"\noutput = "N@data"\n')
    check("explain of microbatches", "in 3 microbatches of 6 samples or one less" in
          run(0, "explain", "--strategy", cut, "--batch", "16"))
    microbatched = run(2, "train", *SMALL, "--strategy", cut, "--steps", "2", "--json", other)
    with open(other, encoding="utf-8") as file:
        report = json.load(file)
    check("microbatches move the predicted bytes", report["predicted_bytes"] == report["measured_bytes"] > 0 and
          report["predicted_memory"] == report["measured_memory"], microbatched)
    os.remove(cut)
    trace = os.path.join(folder, "t.json")
    staged = ["--strategy", str(STRATEGIES / "fashion-cnn-pipeline.toml")]
    check("explain of stages", all(part in run(0, "explain", *staged, "--batch", "16", "--rank", "5") for part in
                                   ("on 3 stages (7 ranks)", 'stage 1, ranks 4 to 5, grid "c=2": conv2 to pool2',
                                    'stage 2, rank 6, grid "": fc1 to loss', "== stage 2 ==", "y to 1")))
    drawing = os.path.join(folder, "s.svg")
    table = run(3, "explain", *staged, "--batch", "16", "--svg", drawing)
    check("explain has one row per stage", all(part in table for part in (
        "stage  actions        busy        idle  peak activations\n",
        "\n    0       18          12           6                 3\n", "\n    0 |FFF....BBFBB.BB.BB|\n")), table)
    with open(drawing, encoding="utf-8") as file:
        drawn = xml.etree.ElementTree.fromstring(file.read())
    check("explain draws one bar per action", sum(g.tag.endswith("}g") for g in drawn) == 3 * 4 * 2)
    check("the drawing has a legend", all(text in [t.text for t in drawn] for text in
                               ("forward", "backward", "number in a bar: its microbatch; darker: a later group of the stage")))
    os.remove(drawing)
    few = "the strategy asks for 4 microbatches, but the batch has 3 samples; each is a microbatch"
    statistics = "batch normalization computes its statistics for each of the {} microbatches, not for the whole batch"
    check("explain of batch normalization", f"note: {statistics.format(3)}\n" in run(0, "explain", *staged, "--batch", "3"))
    check("explain of more microbatches than samples", f"note: {few}\n" in run(0, "explain", *staged, "--batch", "3"))
    check("train with more microbatches than samples", f"note       {few}\n" in
          run(7, "train", "--data", "synthetic", "--samples", "3", "--batch", "3", *staged, "--steps", "1", "--no-test"))
    piped = run(7, "train", *SMALL, *staged, "--steps", "4", "--json", other, "--trace", trace)
    with open(other, encoding="utf-8") as file:
        report = json.load(file)
    check("stages move and hold the predicted bytes", report["predicted_bytes"] == report["measured_bytes"] > 0 and
          report["predicted_memory"] == report["measured_memory"], piped)
    with open(trace, encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    rows = {event["tid"] for event in events if event["ph"] == "X" and event["pid"] == 0}
    check("one row per rank in the trace", rows == set(range(7)), rows)
    check("three steps with 2 transfers per microbatch and boundary", sum(event["ph"] == "s" for event in events) == 3 * 4 * 2 * 2)
    check("no time below 0", all(event.get("ts", 0) >= 0 and event.get("dur", 0) >= 0 for event in events))
    with open(cut, "w", encoding="utf-8") as file:
        file.write('[schedule]\nkind = "v-half"\nmicrobatches = 3\n' + "".join(
            f'[[group]]\nlayers = ["{first}", "{last}"]\n' for first, last in
            (("image", "bn1"), ("relu1", "bn2"), ("relu2", "pool2"), ("fc1", "loss"))))
    folded = run(0, "explain", "--strategy", cut, "--batch", "16")
    alone = run(0, "schedule", "--kind", "v-half", "--stages", "2", "--microbatches", "3", "--filter-memory", "1")
    check("explain prints the schedule as the verb schedule does", all(  # except that it counts transfers and updates
        re.sub(r"^( +\d) +18 ", r"\1       34 ", line) in folded for line in alone.splitlines()), alone + folded)
    check("explain of two groups per stage", "on 2 stages (2 ranks)" in folded and "== stage 1, group 2 ==" in folded and
          'stage 0, rank 0, grid "": image to bn1 (group 0), fc1 to loss (group 3)' in folded and "on stage 1" in folded and
          "on stage 3" not in folded, folded)
    run(2, "train", *SMALL, "--strategy", cut, "--steps", "3", "--trace", trace, "--no-test")
    with open(trace, encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    check("both groups of a stage are predicted", {event["args"]["group"] for event in events if event["ph"] == "X" and
                                                   event["pid"] == 1 and event["tid"] == 0} == {0, 3})
    os.remove(cut)
    os.remove(trace)
    resumed = run(2, "train", *SMALL, "--load", saved, "--epochs", "3", "--optimizer", "adamw")
    check("training continues with epoch 3", "epoch 3" in resumed and "epoch 2" not in resumed, resumed)
    for limit, steps in (("--epochs", "2"), ("--steps", "5")):
        done = run(2, "train", *SMALL, "--load", saved, limit, steps, "--optimizer", "adamw")
        check(f"nothing is left for {limit}", f"note       nothing is left to train: 8 steps were done before this run, and {limit} "
              f"{steps} includes them; give a larger number\n" in done and "epoch" not in done.replace("--epochs", ""), done)
    check("no other files were written", sorted(os.listdir(folder)) == ["e.json", "r.json", "w.h5"])

# Real networks with the fast backend: compares the memory that the allocator handed out with the plan.
NETWORKS = {"resnet18": (4, ["--size", "64", "--width", "0.25", "--classes", "10", "--batch", "8"], "resnet18-channels"),
            "resnet50": (4, ["--size", "64", "--width", "0.25", "--classes", "10", "--batch", "8"], "resnet50-spatial-channels"),
            "unet3d": (4, ["--size", "16", "--width", "0.25", "--batch", "2"], "unet3d-spatial"),
            "cosmoflow": (4, ["--size", "32", "--width", "0.25", "--batch", "2"], "cosmoflow-spatial"),
            "mesh-tangling": (4, ["--size", "128", "--width", "0.25", "--batch", "2"], "mesh-tangling-stationary-w"),
            "vgg16": (4, ["--size", "64", "--width", "0.25", "--classes", "10", "--batch", "4"], "vgg16-spatial"),
            "googlenet": (1, ["--size", "64", "--width", "0.25", "--classes", "10", "--batch", "4"], None)}
with tempfile.TemporaryDirectory() as folder:
    for model, (ranks, size, strategy) in NETWORKS.items():
        results = os.path.join(folder, "r.json")
        chosen = ["--strategy", str(STRATEGIES / f"{strategy}.toml")] if strategy else []
        text = run(ranks, "train", "--model", model, *size, *chosen, "--data", "synthetic", "--samples", "16", "--rate", "0.001", "--kernels", "",
                   "--no-test", "--json", results)
        with open(results, encoding="utf-8") as file:
            report = json.load(file)
        ratio = report["measured_memory"] / report["predicted_memory"]
        check(f"memory of {model} is within 2 % of the plan: {ratio:.4f}", abs(ratio - 1) <= 0.02)
        check(f"bytes of {model} as predicted", report["predicted_bytes"] == report["measured_bytes"])
        check(f"{model} has an accuracy if it has labels", ("accuracy" in text) == (model != "cosmoflow"), text)
