"""Tests the verbs calibrate, compare and plan: a measured machine can be read again, its times are used only where they
belong, the parts of a predicted time sum to it, and compare reports times that cannot be used and strategies that do
not fit. Arguments: the launcher build/mpiexec and the program build/partita."""

import os
import pty
import re
import subprocess
import sys

from checks import MACHINES, Program, check, read, read_json, refused, run_parts, write

partita = Program(sys.argv[2], sys.argv[1], timeout=100)
SMALL = ["--model", "lenet5", "--width", "0.25", "--batch", "8"]
QUICK = ["--kernels", ""]
SAMPLES = 'grid = "data=2"\n[[layer]]\nmatch = "*"\noutput = "N@data"\n'
STAGES = 'stages = 2\n[schedule]\nkind = "1f1b"\nmicrobatches = 4\n'
FOUR = SAMPLES.replace('"data=2"', '"data=2"\nstages = 2\n[schedule]\nmicrobatches = 4')
MEASURED = r"kernels +\S+ \(\d of \d\): (\d+) measured"
PARTS = ["compute", "halo", "redistribution", "product", "collective", "gradients", "transfer", "bubble", "optimizer"]


def compare(*arguments, strategies=("samples.toml", "stages.toml"), **more):
    """Compares strategies for the small model."""
    return partita("compare", *SMALL, *arguments, "--strategies", *strategies, **more)


def refuses(name, arguments, *patterns, ranks=0):
    """Checks that a command is refused."""
    refused(name, partita(*arguments, ranks=ranks, status=2), *patterns)


def used(text):
    """Returns the number of layers that use measured times and the number of all layers."""
    return tuple(map(int, re.search(r"kernels  (\d+) of (\d+) layers use measured times", text).groups()))


def calibrated():
    """Calibrates for three strategies, and again."""
    for path, text in (("samples.toml", SAMPLES), ("stages.toml", STAGES), ("four.toml", FOUR)):
        write(path, text)
    arguments = ["calibrate", *SMALL, *QUICK, "--out", "here.toml", "--strategies", "samples.toml", "stages.toml",
                 "four.toml"]
    first = partita(*arguments, ranks=2).out
    counts = [int(n) for n in re.findall(MEASURED, first)]
    check(f"every strategy adds kernels: {counts}", len(counts) == 3 and min(counts) > 0, first)
    machine, times = read("here.toml"), read("here.toml.times")
    check("every constant states that it was measured", machine.count("measured: 2 ranks") >= 10 and
          '[[level]]' in machine, machine)
    check("times name a machine", times.splitlines()[0].endswith(re.search('name = "(.*)"', machine).group(1)), times)
    again = partita(*arguments, ranks=2).out
    check("none is measured twice", re.findall(MEASURED, again) == ["0"] * 3 and
          read("here.toml.times") == times, again)
    write("here.toml.times", times.replace("1 thread", "9 threads", 1))
    other = partita(*arguments, ranks=2).out
    check("times of another machine are replaced", "has times of another machine" in other and
          "it will be replaced" in other and "9 threads" not in read("here.toml.times"), other)
    write("here.toml", machine)
    write("here.toml.times", times)


def priced():
    """Prices of the calibrated machine."""
    text = compare("--machine", "here.toml", "--json", "c.json").out
    check("all layers use measured times", used(text) == (26, 26), text)
    check("who wins, and why", re.search(r"(\S+) wins\n  (\S+) takes [\d.]+ % longer: \w+ \+[\d.]+ ms", text), text)
    report = read_json("c.json")
    check("the report's header", report["subject"] == "compare" and report["model"] == "lenet5" and
          report["batch"] == 8 and report["dtype"] == "f32" and
          set(report["conditions"]) >= {"processor", "cores", "threads", "backend", "measured"})
    rows = {row["name"]: row for row in report["strategies"]}
    check("one row per strategy", list(rows) == ["samples.toml", "stages.toml"])
    for name, row in rows.items():
        check(f"{name}: the parts sum to a step", list(row["parts"]) == PARTS and
              abs(sum(row["parts"].values()) / row["seconds"] - 1) < 1e-9, row["parts"])
        check(f"{name}: images per second and efficiency",
              abs(row["images_per_second"] * row["seconds"] / 8 - 1) < 1e-9 and row["ranks"] == 2 and
              0 < row["efficiency"] <= 2, row)
        check(f"{name}: memory by class", row["memory"]["predicted"] > 0 and row["memory"]["limit"] > 0 and
              set(row["memory"]["classes"]) == {"weights", "gradients", "optimizer", "activations", "halos",
                                                "workspace"})
        check(f"{name}: layers", len(row["layers"]) == 13 and
              all(layer["measured_kernels"] for layer in row["layers"]) and
              {"name", "kind", "stage", "forward", "backward_data", "backward_filter", "compute", "communication",
               "sums", "messages", "bytes", "memory"} <= set(row["layers"][0]))
        end, optimizer = max(span["end"] for stage in row["timeline"] for span in stage), row["parts"]["optimizer"]
        check(f"{name}: the timeline ends with the step, but for the loss of all stages",
              abs(end / row["seconds"] - 1) < 1e-9 or
              (len(row["timeline"]) > 1 and 0 < row["seconds"] - end <= optimizer), (end, row["seconds"], optimizer))
        check(f"{name}: nothing was run", "measured" not in row and "error" not in row)
    check("only stages have a bubble", rows["samples.toml"]["parts"]["bubble"] ==
          0 < rows["stages.toml"]["parts"]["bubble"])
    four = compare("--machine", "here.toml", strategies=["four.toml"]).out
    check("a strategy with more ranks uses measured times too", used(four) == (13, 13), four)
    write("same.toml", SAMPLES)
    same = compare(strategies=["same.toml", "samples.toml", "stages.toml"]).out
    check("equal strategies do not win", "same.toml and samples.toml take the same time\n  stages.toml takes" in
          same and "wins" not in same, same)
    check("stages", "stages of stages.toml: image to " in same, same)
    write("folded.toml", '[schedule]\nkind = "v-half"\nmicrobatches = 4\n' + "".join(
        f'[[group]]\nlayers = ["{first}", "{last}"]\n' for first, last in
        (("image", "conv1"), ("tanh1", "conv2"), ("tanh2", "fc1"), ("tanh3", "loss"))))
    folded = compare(strategies=["folded.toml"]).out
    check("several groups of layers per stage", "groups of folded.toml: image to conv1 on stage 0 | "
          "tanh1 to conv2 on stage 1 | tanh2 to fc1 on stage 1 | tanh3 to loss on stage 0\n" in folded, folded)
    assumed = compare().out
    check("the default machine is two cores", "machine  two cores\n" in assumed and used(assumed) == (0, 26), assumed)


def left_aside():
    """Measured times that do not belong to the run."""
    times = read("here.toml.times")
    write("other.toml", read("here.toml"))
    write("other.toml.times", times.replace("1 thread", "9 threads", 1))
    text = compare("--machine", "other.toml").out
    check("times of another machine give a note and are not used",
          "note     other.toml.times is not used: its times come from" in text and used(text)[0] == 0, text)
    os.remove("other.toml.times")
    text = compare("--machine", "other.toml").out
    check("without times the machine's rates are used", "note" not in text and used(text)[0] == 0, text)
    exact = compare("--machine", "here.toml", "--dtype", "f64").out
    check("times of another data type are not used", used(exact)[0] == 0, exact)


def measured():
    """Strategies that are run, beside their prices."""
    text = compare("--machine", "here.toml", "--measure", *QUICK, "--json", "m.json", ranks=2).out
    check("measured and predicted", re.search(r"measured +spread +error", text) and "was not run" not in text, text)
    report = read_json("m.json")
    for row in report["strategies"]:
        check(f"{row['name']}: {row['error']:+.1%}", row["measured"]["seconds"] > 0 and
              row["measured"]["repeats"] >= 5 and
              abs(row["seconds"] / row["measured"]["seconds"] - 1 - row["error"]) < 1e-9, row["measured"])
    new = compare("--measure", *QUICK, ranks=2, strategies=["samples.toml"]).out
    check("kernels of a strategy that is run are measured first", used(new) == (13, 13), new)
    one = compare("--machine", "here.toml", "--measure", *QUICK, "--backend", "reference", "--json", "o.json",
                  ranks=1).out
    why = "was not run: it needs 2 ranks, but 1 was started; start it with `mpiexec -n 2` or with --ranks 2"
    check("a strategy with another number of ranks is not run, and the output says so", one.count(why) == 2 and
          "nothing was measured" in one, one)
    check("times of another backend are not used", used(one)[0] == 0, one)
    compare("--machine", "here.toml", "--backend", "reference", "--json", "p.json")
    efficiencies = [[row["efficiency"] for row in read_json(name)["strategies"]] for name in ("o.json", "p.json")]
    check("its efficiencies are those without --measure", efficiencies[0] == efficiencies[1] and
          read_json("o.json")["conditions"]["measured"] is False, efficiencies)
    some = compare("--measure", *QUICK, ranks=2, strategies=["samples.toml", "four.toml"]).out
    check("strategies that are not run do not use the new times", used(some) == (13, 26) and
          "times (samples.toml 13 of 13, four.toml 0 of 13), the others" in some, some)
    two = compare("--machine", "here.toml", "--measure", *QUICK, "--threads", "2", ranks=1).out
    check("times of another number of threads are not used", "--measure runs on \"2 threads on" in two and
          used(two)[0] == 0, two)


def limited():
    """Limits of memory, and the changes that would keep them."""
    none = compare("--memory-limit", "20KiB", "--json", "l.json", status=2)
    text = none.out
    row = read_json("l.json")["strategies"][0]
    missing, held = row["memory"]["missing"], row["memory"]["predicted"]
    check("how much is missing, on which rank, and the largest class", missing == held - (20 << 10) and
          re.search(rf"samples.toml does not fit: rank 0 holds {held / 1024:.1f} KiB \(weights .*\), "
                    f"{missing / 1024:.1f} KiB more than "
                    r"the limit of 20.0 KiB; the largest part is \w+", text), text)
    started = compare("--memory-limit", "20KiB", "--measure", *QUICK, ranks=2, status=2)
    check("under a launcher the error is printed once", started.err == none.err, started.err)
    check("every strategy is reported", "stages.toml does not fit: rank " in text and
          none.err == "partita: no strategy fits in 20.0 KiB per rank\n", none.err)
    check("if nothing makes it fit, the closest changes",
          "no change that was tried makes it fit; the closest are\n    " in text, text)
    some = f"{held - 1}B"
    text = compare("--memory-limit", some, "--json", "l.json", strategies=["samples.toml"], status=2).out
    change, kept = re.search(r"it would fit with\n    (.*): ([\d.]+) KiB per rank on \d ranks?, [\d.]+ samples/s",
                             text).groups()
    first = read_json("l.json")["strategies"][0]["remedies"][0]
    check("changes that would make it fit", first["change"] == change and f"{first['memory'] / 1024:.1f}" == kept and
          first["missing"] == 0 and first["memory"] < held, text)
    write("done.toml", 'optimizer = "sharded"\n' + SAMPLES)
    shared = compare("--memory-limit", some, strategies=["samples.toml", "done.toml"]).out
    check("a named change makes it fit", 'optimizer = "sharded": ' in text and
          "done.toml does not fit" not in shared and "done.toml wins" in shared, text + shared)
    write("tight.toml", re.sub(r"\nmemory += {.*?}", '\nmemory = { MiB = 1, from = "a test" }',
                               read(MACHINES / "two-cores.toml")))
    more = ["--model", "lenet5", "--width", "0.25", "--batch", "256"]
    bound = partita("compare", *more, "--machine", "tight.toml", "--strategies", "samples.toml", "--json", "l.json",
                    status=2).out
    check("the memory of the --machine file is the limit",
          "more than the limit of 1.0 MiB; the largest part" in bound and
          read_json("l.json")["strategies"][0]["memory"]["limit"] == 1 << 20, bound)
    for verb in ("explain", "train"):
        refuses(f"{verb} has the same limit", [verb, *more, "--machine", "tight.toml"],
                "more than the memory limit of 1.0 MiB", "it would fit with ")
    write("again.toml", 'stages = 2\n[schedule]\nkind = "gpipe"\nmicrobatches = 8\n[[layer]]\nmatch = "*"\nrecompute '
          '= true\n')
    wide = ["--model", "lenet5", "--batch", "256", "--memory-limit", "5MiB"]
    partita("explain", *wide, "--strategy", "again.toml")
    write("kept.toml", read("again.toml").replace("true", "false"))
    partita("compare", *wide, "--strategies", "kept.toml", "--json", "l.json", status=2)
    remedies = [each for each in read_json("l.json")["strategies"][0]["remedies"] if each["missing"] == 0]
    check("something makes it fit", len(remedies) > 0)
    for verb, ranks in (("explain", 0), ("train", 2)):
        refuses(f"{verb} names the same changes as compare", [verb, *wide, "--strategy", "kept.toml"], "5.0 MiB",
                *(re.escape(f"{each['change']}: {each['memory'] / (1 << 20):.1f} MiB per rank")
                  for each in remedies[:3]), ranks=ranks)
    large = partita("compare", "--model", "resnet50", "--batch", "2048", "--strategies", "samples.toml", "--json",
                    "l.json").out
    memory = read_json("l.json")["strategies"][0]["memory"]
    check("the memory of the default machine is no limit", memory["predicted"] > 12 << 30 and
          memory["limit"] is None and memory["missing"] == 0 and "does not fit" not in large, large)
    text = partita("plan", *SMALL, "--ranks", "4", "--kinds", "none", "--best", "2", "--out", "planned").out
    kinds = re.findall(r"^(samples alone|samples and space|samples and channels|samples and stages) +([\d.]+) "
                       r"+(-?[\d.]+) %", text, re.M)
    best = float(re.search(r"^planned-1.toml +([\d.]+)", text, re.M)[1])
    check("plain strategies beside the best", len(kinds) == 4 and
          all(abs(float(ms) / best - 1 - float(longer) / 100) < 2e-3 for _, ms, longer in kinds), text)
    changes = re.findall(r"^(bandwidth|latency|arithmetic) ([x/]) 1.5 +(.*)$", text, re.M)
    check("six changes of the machine", len(changes) == 6 and all("fastest" in says for _, _, says in changes), text)
    priced = partita("compare", *SMALL, "--strategies", "planned-1.toml").out
    check("the plan costs what compare says of its file", f" {best:.3f} " in priced, text + priced)
    refuses("plan reports it too", ["plan", *SMALL, "--ranks", "2", "--memory-limit", "1KiB"],
            "does not fit 2 ranks .* KiB more than "
            "the limit of 1.0 KiB; .*no change that was tried makes it fit; the closest are the grid")


def reasons():
    """Beside each group of layers stands the second-best layout. What holds too much, or is faster but of another kind,
    says so."""
    def rows(*args, ranks=64, machine="dgx-h100"):
        """Plans for some ranks. Returns the output, and the rows of the second-best layouts."""
        text = partita("plan", "--ranks", str(ranks), "--machine", MACHINES / f"{machine}.toml", "--kinds", "none",
                       "--out", "why", *args).out
        table = text.split("the second best for them\n")[1].split("\n\n")[0]
        return text, [re.search(r"^(.+?) +(\d+)  (.+?)  +([^:]+: ([-+]?[\d.]+) %.*)$", line).groups()
                      for line in table.splitlines()]

    text, found = rows("--model", "alexnet", "--batch", "256", "--memory-limit", "95MiB")
    check("each layer is in one group", sum(int(layers) for _, layers, *_ in found) == 22, text)
    check("a layout that does not fit", sum(says.endswith("; does not fit") for *_, says, _ in found) == 1, text)
    check("without a limit every layout fits", "does not fit" not in rows("--model", "alexnet", "--batch", "256")[0])
    text, found = rows("--model", "fashion-cnn", "--batch", "32", ranks=16, machine="frontier")
    faster = [says for *_, says, longer in found if float(longer) <= -0.2]
    check("a faster layout is of another kind, and says so", faster and all(
        re.search(r"; this is of another kind \([a-z, ]+\)$", says) for says in faster), text)


def planned():
    """The files that plan writes use plain names of axes, and compare predicts the times that plan printed."""
    table = partita("plan", "--model", "fashion-cnn", "--batch", "64", "--ranks", "4", "--out", "found").out
    files = re.findall(r"^(found-\d\.toml) +([\d.]+) ", table, re.M)
    check("three strategies", [name for name, _ in files] == [f"found-{n}.toml" for n in (1, 2, 3)], table)
    partita("compare", "--model", "fashion-cnn", "--batch", "64", "--json", "c.json", "--strategies",
            *[name for name, _ in files])
    for (name, ms), row in zip(files, read_json("c.json")["strategies"]):
        check(f"{name} has the predicted time that plan printed", f"{1e3 * row['seconds']:.3f}" == ms and
              row["ranks"] == 4, (ms, row["seconds"]))
    for name, _ in files:
        text, cut = read(name), {}
        axes = re.findall(r"(\w+)=", re.search('grid = "(.*)"', text).group(1))
        outputs = " ".join(re.findall('output = "(.*)"', text))  # weights may be divided in any way
        for dim, over in re.findall(r"(\w)@\(?([\w,]+)", outputs):
            for axis in over.split(","):
                cut.setdefault(axis, set()).add(dim)
        usual = {"data": {"N"}, "c": {"C"}, "z": {"D"}, "y": {"H"}, "x": {"W"}}
        check(f"{name} names axes after the dimensions that they shard: {cut}", set(cut) <= set(axes) and
              all(usual[axis] == dims if axis in usual else axis[0] == "p" and
                  len(dims) > 1 for axis, dims in cut.items()), text)
        check(f"{name}: axes that are always used together are joined",
              not any(text.count(f"{a},{b}") == len(re.findall(rf"\b{a}\b[,)\" ]", text)) > 0
                      for a, b in zip(axes, axes[1:])), text)


def progress():
    """On a terminal, plan counts grids, candidates and strategies on one line. It ends that line even if there are
    fewer candidates than it announced."""
    terminal, theirs = pty.openpty()
    partita("plan", *SMALL, "--ranks", "1", "--out", "one", stdout=subprocess.DEVNULL, stderr=theirs)
    os.close(theirs)
    text = os.read(terminal, 1 << 16).decode()
    check("grids and strategies are counted too", re.search(r"\r\d+ of \d+ grids estimated ", text) and
          re.search(r"\r(\d+) of \1 strategies improved +\r\n$", text), text)
    done, most = map(int, re.findall(r"\r(\d+) of (\d+) candidates examined ", text)[-1])
    check(f"{done} of at most {most} candidates, and the line ends", done < most and text.count("\n") == 1, text)


def refusals():
    """Files that cannot be used."""
    start = ["compare", *SMALL, "--strategies", "samples.toml", "--machine"]
    refuses("a missing machine file", [*start, "nowhere.toml"], "nowhere.toml", "cannot be read")
    write("odd.toml", "name = 3\n")
    refuses("a file that is not a machine file", [*start, "odd.toml"], "odd.toml, line 1")
    times = read("here.toml.times")
    write("cut.toml", read("here.toml"))
    for damaged, pattern in ((times[:-9], "truncated"), (times + "1 2 three\n", "four times in seconds"), ("", "empty"),
                             ("a\nb\n", "no kernel times")):
        write("cut.toml.times", damaged)
        refuses("damaged times", [*start, "cut.toml"], "cut.toml.times", pattern)
    write("alien.toml", 'grid = "data=2"\n[[layer]]\nmatch = "res5*"\noutput = "N@data"\n')
    files = ["--strategies", "samples.toml", "alien.toml"]
    refuses("a strategy for another model", ["compare", *SMALL, *files], "alien.toml, line 2",
            "res5.* matches no layer of the model 'lenet5'")
    refuses("under a launcher", ["compare", *SMALL, *files, "--measure", *QUICK], "alien.toml, line 2", ranks=2)
    write("two.toml", read("here.toml").replace("[[level]]\n", '[[level]]\nranks = { ranks = 2, from = "a test" }\n'))
    refuses("more ranks than the machine", ["compare", *SMALL, "--strategies", "four.toml", "--machine", "two.toml"],
            "four.toml: the strategy has 4 ranks, but the machine .* holds 2")
    refuses("no strategy file", ["compare", *SMALL, "--strategies", "none.toml"], "none.toml", "cannot be read")
    refuses("a machine file that cannot be written", ["calibrate", *SMALL, "--out", "nowhere/m.toml"],
            "--out nowhere/m.toml", ranks=2)
    refuses("JSON that cannot be written", ["compare", *SMALL, "--json", "nowhere/c.json"], "--json nowhere/c.json")
    refuses("scale without a machine file", ["scale", *SMALL, "--ranks", "1", "--machine", "none.toml"], "none.toml")


def scaled():
    """Predictions beside the times that scale measures."""
    words = ["scale", *SMALL, "--ranks", "1", "2", "--steps", "3", "--repeats", "1", "--machine", "here.toml", "--out",
             "s.json"]
    partita(*words, "--csv", "s.csv")
    runs = read_json("s.json")["runs"]
    check("scale predicts the times that it measures", all(row["predicted"] > 0 for row in runs), runs)
    text = partita(*words).out
    check("scale prints the error", len(re.findall(r"[+-][\d.]+%$", text, re.M)) == 2, text)
    compare("--machine", "here.toml", "--json", "c.json", strategies=["samples.toml"])
    price = read_json("c.json")["strategies"][0]["seconds"]
    check("scale predicts what compare predicts", abs(runs[1]["predicted"] / price - 1) < 1e-9, (runs, price))


run_parts(calibrated, priced, left_aside, measured, limited, reasons, planned, progress, refusals, scaled)
