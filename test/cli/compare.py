"""The verbs calibrate and compare: a machine is measured and read again, its times are used where they belong, prices have parts
that sum to them, and what cannot be used or does not fit is told. Arguments: the launcher build/mpiexec and the program
build/partita."""

import json
import os
import pty
import re
import subprocess
import sys
import tempfile

LAUNCHER, PROGRAM = map(os.path.abspath, sys.argv[1:3])
SMALL = ["--model", "lenet5", "--width", "0.25", "--batch", "8"]
QUICK = ["--kernels", ""]
SAMPLES = 'grid = "data=2"\n[[layer]]\nmatch = "*"\noutput = "N@data"\n'
STAGES = 'stages = 2\n[schedule]\nkind = "1f1b"\nmicrobatches = 4\n'
FOUR = SAMPLES.replace('"data=2"', '"data=2"\nstages = 2\n[schedule]\nmicrobatches = 4')
MEASURED = r"kernels +\S+ \(\d of \d\): (\d+) measured"
PARTS = ["compute", "halo", "redistribution", "product", "collective", "gradients", "transfer", "bubble", "optimizer"]


def check(name, holds, shown=""):
    print(f"{'ok  ' if holds else 'FAIL'} {name}", flush=True)
    assert holds, shown


def run(folder, *arguments, ranks=0, status=0):
    command = ([LAUNCHER, "-n", str(ranks)] if ranks else []) + [PROGRAM, *arguments]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100, check=False)
    assert result.returncode == status, f"{command}: status {result.returncode}\n{result.stdout}{result.stderr}"
    return result


def read(folder, name):
    with open(os.path.join(folder, name), encoding="utf-8") as file:
        return file.read()


def write(folder, name, text):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
        file.write(text)


def compare(folder, *arguments, strategies=("samples.toml", "stages.toml"), **more):
    return run(folder, "compare", *SMALL, *arguments, "--strategies", *strategies, **more)


def used(text):
    """(layers by measured times, all)"""
    return tuple(map(int, re.search(r"kernels  (\d+) of (\d+) layers by measured times", text).groups()))


def calibrated(folder):
    arguments = ["calibrate", *SMALL, *QUICK, "--out", "here.toml", "--strategies", "samples.toml", "stages.toml", "four.toml"]
    first = run(folder, *arguments, ranks=2).stdout
    counts = [int(n) for n in re.findall(MEASURED, first)]
    check(f"every strategy has work of its own: {counts}", len(counts) == 3 and min(counts) > 0, first)
    machine, times = read(folder, "here.toml"), read(folder, "here.toml.times")
    check("every constant says that it was measured", machine.count("measured: 2 ranks") >= 10 and '[[level]]' in machine, machine)
    check("times of the machine", times.splitlines()[0].endswith(re.search('name = "(.*)"', machine).group(1)), times)
    again = run(folder, *arguments, ranks=2).stdout
    check("nothing is measured twice", re.findall(MEASURED, again) == ["0"] * 3 and
          read(folder, "here.toml.times") == times, again)
    write(folder, "here.toml.times", times.replace("1 thread", "9 threads", 1))
    other = run(folder, *arguments, ranks=2).stdout
    check("times of another machine are not added to", "held times of" in other and "begins anew" in other and
          "9 threads" not in read(folder, "here.toml.times"), other)
    write(folder, "here.toml", machine)
    write(folder, "here.toml.times", times)


def priced(folder):
    text = compare(folder, "--machine", "here.toml", "--json", "c.json").stdout
    check("all layers by measured times", used(text) == (26, 26), text)
    check("who wins, and why", re.search(r"(\S+) wins\n  (\S+) takes [\d.]+ % more: \w+ \+[\d.]+ ms", text), text)
    report = json.loads(read(folder, "c.json"))
    check("what it says of itself", report["subject"] == "compare" and report["model"] == "lenet5" and report["batch"] == 8 and
          report["dtype"] == "f32" and set(report["conditions"]) >= {"processor", "cores", "threads", "backend", "measured"})
    rows = {row["name"]: row for row in report["strategies"]}
    check("a row a strategy", list(rows) == ["samples.toml", "stages.toml"])
    for name, row in rows.items():
        check(f"{name}: the parts sum to a step", list(row["parts"]) == PARTS and
              abs(sum(row["parts"].values()) / row["seconds"] - 1) < 1e-9, row["parts"])
        check(f"{name}: images a second, efficiency", abs(row["images_per_second"] * row["seconds"] / 8 - 1) < 1e-9 and
              row["ranks"] == 2 and 0 < row["efficiency"] <= 2, row)
        check(f"{name}: memory by class", row["memory"]["predicted"] > 0 and row["memory"]["limit"] > 0 and
              set(row["memory"]["classes"]) == {"weights", "gradients", "optimizer", "activations", "halos", "workspace"})
        check(f"{name}: layers", len(row["layers"]) == 13 and all(layer["measured_kernels"] for layer in row["layers"]) and
              {"name", "kind", "stage", "forward", "backward_data", "backward_filter", "compute", "communication", "sums",
               "messages", "bytes", "memory"} <= set(row["layers"][0]))
        ends = [span["end"] for stage in row["timeline"] for span in stage]
        check(f"{name}: the timeline ends with the step", abs(max(ends) / row["seconds"] - 1) < 1e-9, row["seconds"])
        check(f"{name}: nothing was run", "measured" not in row and "error" not in row)
    check("a bubble in stages alone", rows["samples.toml"]["parts"]["bubble"] == 0 < rows["stages.toml"]["parts"]["bubble"])
    four = compare(folder, "--machine", "here.toml", strategies=["four.toml"]).stdout
    check("so are those of more ranks than measured", used(four) == (13, 13), four)
    write(folder, "same.toml", SAMPLES)
    same = compare(folder, strategies=["same.toml", "samples.toml", "stages.toml"]).stdout
    check("what takes as long does not win", "same.toml and samples.toml take as long as each other\n  stages.toml takes" in same and
          "wins" not in same, same)
    check("stages", "stages of stages.toml: image to " in same, same)
    write(folder, "folded.toml", '[schedule]\nkind = "v-half"\nmicrobatches = 4\n' + "".join(
        f'[[group]]\nlayers = ["{first}", "{last}"]\n' for first, last in
        (("image", "conv1"), ("tanh1", "conv2"), ("tanh2", "fc1"), ("tanh3", "loss"))))
    folded = compare(folder, strategies=["folded.toml"]).stdout
    check("several groups of layers a stage", "groups of layers on the stages of folded.toml: image to conv1 on 0 | tanh1 to conv2 on 1 | "
          "tanh2 to fc1 on 1 | tanh3 to loss on 0\n" in folded, folded)
    assumed = compare(folder).stdout
    check("without a machine two cores", "machine  two cores\n" in assumed and used(assumed) == (0, 26), assumed)


def left_aside(folder):
    times = read(folder, "here.toml.times")
    write(folder, "other.toml", read(folder, "here.toml"))
    write(folder, "other.toml.times", times.replace("1 thread", "9 threads", 1))
    text = compare(folder, "--machine", "other.toml").stdout
    check("times of another machine are noted, not used", "note     other.toml.times is not used: its times are of" in text and
          used(text)[0] == 0, text)
    os.remove(os.path.join(folder, "other.toml.times"))
    text = compare(folder, "--machine", "other.toml").stdout
    check("without times the machine's rates", "note" not in text and used(text)[0] == 0, text)
    exact = compare(folder, "--machine", "here.toml", "--dtype", "f64").stdout
    check("times are of a data type", used(exact)[0] == 0, exact)


def measured(folder):
    text = compare(folder, "--machine", "here.toml", "--measure", *QUICK, "--json", "m.json", ranks=2).stdout
    check("measured beside predicted", re.search(r"measured +spread +error", text) and "was not run" not in text, text)
    report = json.loads(read(folder, "m.json"))
    for row in report["strategies"]:
        check(f"{row['name']}: {row['error']:+.1%}", row["measured"]["seconds"] > 0 and row["measured"]["repeats"] >= 5 and
              abs(row["seconds"] / row["measured"]["seconds"] - 1 - row["error"]) < 1e-9, row["measured"])
    new = compare(folder, "--measure", *QUICK, ranks=2, strategies=["samples.toml"]).stdout
    check("what is run is measured first", used(new) == (13, 13), new)
    one = compare(folder, "--machine", "here.toml", "--measure", *QUICK, "--backend", "reference", "--json", "o.json", ranks=1).stdout
    check("what has other ranks is not run, and says so", one.count(
        "was not run: it has 2 ranks, 1 was started; start it with mpiexec -n 2") == 2 and "nothing was measured" in one, one)
    check("nor are times of another backend used", used(one)[0] == 0, one)
    compare(folder, "--machine", "here.toml", "--backend", "reference", "--json", "p.json")
    efficiencies = [[row["efficiency"] for row in json.loads(read(folder, name))["strategies"]] for name in ("o.json", "p.json")]
    check("efficiencies are as without --measure then", efficiencies[0] == efficiencies[1] and
          json.loads(read(folder, "o.json"))["conditions"]["measured"] is False, efficiencies)
    some = compare(folder, "--measure", *QUICK, ranks=2, strategies=["samples.toml", "four.toml"]).stdout
    check("what is not run is priced without what is measured", used(some) == (13, 26) and
          "times (samples.toml 13 of 13, four.toml 0 of 13), the others" in some, some)
    two = compare(folder, "--machine", "here.toml", "--measure", *QUICK, "--threads", "2", ranks=1).stdout
    check("nor those of other threads", "those of --measure are of \"2 threads on" in two and used(two)[0] == 0, two)


def limited(folder):
    none = compare(folder, "--memory-limit", "20KiB", "--json", "l.json", status=2)
    text = none.stdout
    row = json.loads(read(folder, "l.json"))["strategies"][0]
    missing, held = row["memory"]["missing"], row["memory"]["predicted"]
    check("how much is missing, on which rank and in which class", missing == held - (20 << 10) and re.search(
        rf"samples.toml does not fit: rank 0 holds {held / 1024:.1f} KiB \(weights .*\), {missing / 1024:.1f} KiB more than "
        r"20.0 KiB; most of it is \w+", text), text)
    started = compare(folder, "--memory-limit", "20KiB", "--measure", *QUICK, ranks=2, status=2)
    check("under a launcher too, once", started.stderr == none.stderr, started.stderr)
    check("of all strategies", "stages.toml does not fit: rank " in text and
          none.stderr == "partita: none of the strategies fits 20.0 KiB a rank\n", none.stderr)
    check("what is nearest where nothing fits", "nothing that was tried makes it fit; the nearest are\n    " in text, text)
    some = f"{held - 1}B"
    text = compare(folder, "--memory-limit", some, "--json", "l.json", strategies=["samples.toml"], status=2).stdout
    change, kept = re.search(r"it would fit with\n    (.*): ([\d.]+) KiB a rank on \d ranks?, [\d.]+ samples/s", text).groups()
    first = json.loads(read(folder, "l.json"))["strategies"][0]["remedies"][0]
    check("what would make it fit", first["change"] == change and f"{first['memory'] / 1024:.1f}" == kept and
          first["missing"] == 0 and first["memory"] < held, text)
    write(folder, "done.toml", 'optimizer = "sharded"\n' + SAMPLES)
    shared = compare(folder, "--memory-limit", some, strategies=["samples.toml", "done.toml"]).stdout
    check("what is named fits when it is done", 'optimizer = "sharded": ' in text and "done.toml does not fit" not in shared and
          "done.toml wins" in shared, text + shared)
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../examples/machines/two-cores.toml"), encoding="utf-8") as file:
        write(folder, "tight.toml", re.sub(r"\nmemory += {.*?}", '\nmemory = { MiB = 1, from = "a test" }', file.read()))
    more = ["--model", "lenet5", "--width", "0.25", "--batch", "256"]
    bound = run(folder, "compare", *more, "--machine", "tight.toml", "--strategies", "samples.toml", "--json", "l.json",
                status=2).stdout
    check("the memory of a machine that is named", "more than 1.0 MiB; most of it" in bound and
          json.loads(read(folder, "l.json"))["strategies"][0]["memory"]["limit"] == 1 << 20, bound)
    for verb in ("explain", "train"):
        refused(folder, f"{verb} by the same limit", [verb, *more, "--machine", "tight.toml"],
                "more than the memory limit of 1.0 MiB", "it would fit with ")
    write(folder, "again.toml", 'stages = 2\n[schedule]\nkind = "gpipe"\nmicrobatches = 8\n[[layer]]\nmatch = "*"\nrecompute = true\n')
    wide = ["--model", "lenet5", "--batch", "256", "--memory-limit", "5MiB"]
    run(folder, "explain", *wide, "--strategy", "again.toml")
    write(folder, "kept.toml", read(folder, "again.toml").replace("true", "false"))
    run(folder, "compare", *wide, "--strategies", "kept.toml", "--json", "l.json", status=2)
    remedies = [each for each in json.loads(read(folder, "l.json"))["strategies"][0]["remedies"] if each["missing"] == 0]
    check("something makes it fit", len(remedies) > 0)
    for verb, ranks in (("explain", 0), ("train", 2)):
        refused(folder, f"{verb} names what compare names", [verb, *wide, "--strategy", "kept.toml"], "5.0 MiB",
                *(re.escape(f"{each['change']}: {each['memory'] / (1 << 20):.1f} MiB a rank") for each in remedies[:3]), ranks=ranks)
    large = run(folder, "compare", "--model", "resnet50", "--batch", "2048", "--strategies", "samples.toml", "--json", "l.json").stdout
    memory = json.loads(read(folder, "l.json"))["strategies"][0]["memory"]
    check("that of the assumed one is none", memory["predicted"] > 12 << 30 and memory["limit"] is None and memory["missing"] == 0 and
          "does not fit" not in large, large)
    result = run(folder, "plan", *SMALL, "--ranks", "2", "--memory-limit", "1KiB", status=2)
    check("plan says so too", len(result.stderr.splitlines()) == 1 and re.search(
        r"fits 2 ranks .* KiB more than the limit of 1.0 KiB; .*nothing that was tried makes it fit; the nearest are the grid",
        result.stderr), result.stderr)


def planned(folder):
    """What plan writes says what it means, and costs what plan says."""
    table = run(folder, "plan", "--model", "fashion-cnn", "--batch", "64", "--ranks", "4", "--out", "found").stdout
    files = re.findall(r"^(found-\d\.toml) +([\d.]+) ", table, re.M)
    check("three strategies", [name for name, _ in files] == [f"found-{n}.toml" for n in (1, 2, 3)], table)
    run(folder, "compare", "--model", "fashion-cnn", "--batch", "64", "--json", "c.json", "--strategies", *[name for name, _ in files])
    for (name, ms), row in zip(files, json.loads(read(folder, "c.json"))["strategies"]):
        check(f"{name} costs what plan says", f"{1e3 * row['seconds']:.3f}" == ms and row["ranks"] == 4, (ms, row["seconds"]))
    for name, _ in files:
        text, cut = read(folder, name), {}
        axes = re.findall(r"(\w+)=", re.search('grid = "(.*)"', text).group(1))
        for dim, over in re.findall(r"(\w)@\(?([\w,]+)", text):
            for axis in over.split(","):
                cut.setdefault(axis, set()).add(dim)
        usual = {"data": {"N"}, "c": {"C"}, "z": {"D"}, "y": {"H"}, "x": {"W"}}
        check(f"{name} has axes after what they cut: {cut}", set(cut) <= set(axes) and all(
            usual[axis] == dims if axis in usual else axis[0] == "p" and len(dims) > 1 for axis, dims in cut.items()), text)
        check(f"{name}: axes that stand together are one", not any(
            text.count(f"{a},{b}") == len(re.findall(rf"\b{a}\b[,)\" ]", text)) > 0 for a, b in zip(axes, axes[1:])), text)


def progress(folder):
    """On a terminal plan counts candidates on a line that it ends, though fewer were there than it was to examine."""
    terminal, theirs = pty.openpty()
    subprocess.run([PROGRAM, "plan", *SMALL, "--ranks", "1", "--out", "one"], cwd=folder, stdout=subprocess.DEVNULL, stderr=theirs,
                   timeout=100, check=True)
    os.close(theirs)
    text = os.read(terminal, 1 << 16).decode()
    done, most = map(int, re.search(r"\r(\d+) of (\d+) candidates examined\r\n$", text).groups())
    check(f"{done} of at most {most} candidates, and the line is ended", done < most and text.count("\n") == 1, text)


def refused(folder, name, arguments, *patterns, ranks=0):
    result = run(folder, *arguments, ranks=ranks, status=2)
    lines = result.stderr.splitlines()
    check(f"refused: {name}: {lines[-1]}", len(lines) == 1 and all(re.search(p, lines[0]) for p in patterns), result.stderr)


def refusals(folder):
    start = ["compare", *SMALL, "--strategies", "samples.toml", "--machine"]
    refused(folder, "no machine", [*start, "nowhere.toml"], "nowhere.toml", "cannot be read")
    write(folder, "odd.toml", "name = 3\n")
    refused(folder, "no machine file", [*start, "odd.toml"], "odd.toml, line 1")
    times = read(folder, "here.toml.times")
    write(folder, "cut.toml", read(folder, "here.toml"))
    for damaged, pattern in ((times[:-9], "truncated"), (times + "1 2 three\n", "four times in seconds"), ("", "empty"),
                             ("a\nb\n", "no kernel times")):
        write(folder, "cut.toml.times", damaged)
        refused(folder, "damaged times", [*start, "cut.toml"], "cut.toml.times", pattern)
    write(folder, "alien.toml", 'grid = "data=2"\n[[layer]]\nmatch = "res5*"\noutput = "N@data"\n')
    files = ["--strategies", "samples.toml", "alien.toml"]
    refused(folder, "a strategy of another model", ["compare", *SMALL, *files], "alien.toml, line 2", "res5.* matches no layer of the model 'lenet5'")
    refused(folder, "the same on ranks", ["compare", *SMALL, *files, "--measure", *QUICK], "alien.toml, line 2", ranks=2)
    write(folder, "two.toml", read(folder, "here.toml").replace("[[level]]\n", '[[level]]\nranks = { ranks = 2, from = "a test" }\n'))
    refused(folder, "more ranks than the machine", ["compare", *SMALL, "--strategies", "four.toml", "--machine", "two.toml"],
            "four.toml: the strategy has 4 ranks, but the machine .* holds 2")
    refused(folder, "no strategy file", ["compare", *SMALL, "--strategies", "none.toml"], "none.toml", "cannot be read")
    refused(folder, "where nothing can be written", ["calibrate", *SMALL, "--out", "nowhere/m.toml"], "--out nowhere/m.toml",
            ranks=2)
    refused(folder, "JSON where nothing can be written", ["compare", *SMALL, "--json", "nowhere/c.json"], "--json nowhere/c.json")
    refused(folder, "scale without its machine", ["scale", *SMALL, "--ranks", "1", "--machine", "none.toml"], "none.toml")


def scaled(folder):
    run(folder, "scale", *SMALL, "--ranks", "1", "2", "--steps", "3", "--repeats", "1", "--machine", "here.toml", "--out", "s.json",
        "--csv", "s.csv")
    runs = json.loads(read(folder, "s.json"))["runs"]
    check("scale predicts beside what it measures", all(row["predicted"] > 0 for row in runs), runs)
    text = run(folder, "scale", *SMALL, "--ranks", "1", "2", "--steps", "3", "--repeats", "1", "--machine", "here.toml", "--out",
               "s.json").stdout
    check("and shows the error", len(re.findall(r"[+-][\d.]+%$", text, re.M)) == 2, text)
    prices = json.loads(run(folder, "compare", *SMALL, "--machine", "here.toml", "--strategies", "samples.toml", "--json",
                            "c.json").stdout and read(folder, "c.json"))["strategies"]
    check("as compare does", abs(runs[1]["predicted"] / prices[0]["seconds"] - 1) < 1e-9, (runs, prices[0]["seconds"]))


with tempfile.TemporaryDirectory() as made:
    for file, text_of in (("samples.toml", SAMPLES), ("stages.toml", STAGES), ("four.toml", FOUR)):
        write(made, file, text_of)
    calibrated(made)
    priced(made)
    left_aside(made)
    measured(made)
    limited(made)
    planned(made)
    progress(made)
    refusals(made)
    scaled(made)
    run(made, "calibrate", *SMALL, *QUICK, "--out", "three.toml", ranks=3)
    check("an odd number of ranks", re.search('verb = "all_reduce"\nranks = 3', read(made, "three.toml")))
    run(made, "calibrate", *SMALL, *QUICK, "--out", "one.toml")
    check("one rank has no network to measure", "one rank alone measures no network" in read(made, "one.toml"))
    check("its times are found", used(compare(made, "--machine", "one.toml", strategies=["samples.toml"]).stdout)[1] == 13)
    run(made, "calibrate", *SMALL, *QUICK, "--dtype", "f64", "--out", "exact.toml", "--strategies", "samples.toml", ranks=2)
    exact_text = compare(made, "--machine", "exact.toml", "--dtype", "f64", strategies=["samples.toml"]).stdout
    check("times in f64", used(exact_text) == (13, 13), exact_text)
