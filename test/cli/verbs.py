"""Tests the verbs as a user types them: what they print and write, and that files can be read again.
Arguments: the launcher build/mpiexec and the program build/partita."""

import json
import os
import re
import sys
import xml.etree.ElementTree

from checks import ROOT, STRATEGIES, Program, check, read, read_json, run_parts, write

partita = Program(sys.argv[2], sys.argv[1], errors="replace")
SMALL = ["--data", "synthetic", "--samples", "64", "--batch", "16", "--dtype", "f64"]


def printed(*arguments, **more):
    """Runs a verb that prints no message, and returns what it prints."""
    ran = partita(*arguments, **more)
    assert ran.err == "", ran
    return ran.out


def last(text, word):
    """Returns the last line that begins with a word."""
    return [line for line in text.splitlines() if line.startswith(word)][-1]


def drawing(path):
    """Returns the root of an SVG file."""
    return xml.etree.ElementTree.fromstring(read(path))


def versions_and_help():
    """The version, and the help of some verbs."""
    version = printed("--version")
    check("version", re.fullmatch(r"partita \d+\.\d+\.\d+ \(.*\(MPI \d\.\d\)\)\n", version), version)
    check("each process prints the version", printed("--version", ranks=3) == 3 * version)
    check("help lists the verbs", all(verb in printed("--help") for verb in ("train", "evaluate", "explain")))
    check("help of schedule", "--microbatches" in printed("schedule", "--help"))
    for verb in ("train", "evaluate", "explain"):
        check(f"help of {verb}", "--strategy" in printed(verb, "--help"))


def schedules():
    """The verb schedule, and the files that it writes and reads."""
    made = json.loads(printed("schedule", "--kind", "zb-v", "--stages", "4", "--microbatches", "8", "--csv-out",
                              "s.csv", "--svg", "s.svg", "--json", "/dev/stdout"))
    text = printed("schedule", "--csv-in", "s.csv", "--json", "s.json")
    found = read_json("s.json")
    check("--json FILE of schedule writes the file beside the text", "bubble" in text)
    old = partita("schedule", "--csv-in", "s.csv", "--json")
    check("--json without a file prints JSON, and one note", json.loads(old.out) == found and old.err ==
          "note: --json without a file prints to standard output; --json /dev/stdout says so\n", old.err)
    check("a schedule can be read again from its file", {**made, "kind": "s.csv"} == found)
    check("no bubble with 4 activations per stage", made["bubble_rate"] == 0 and
          [stage["peak_activations"] for stage in made["per_stage"]] == [4, 4, 4, 4], made)
    check("one bar per action", sum(g.tag.endswith("}g") for g in drawing("s.svg")) == 4 * 8 * 6)
    check("every kind is listed", printed("schedule", "--kinds").count("p stages and microbatches") == 12)


def explanations():
    """The verb explain."""
    explained = printed("explain", "--grid", "data=2 y=2", "--rule", "*: N@data H@y", "--picture")
    for part in ("conv1 = conv(image)", "halo x   H 1+1", "N@data C H@y W", "all_reduce(data,y)", "total per step"):
        check(f"explain shows '{part}'", part in explained, explained)
    twice = printed("explain", "--grid", "data=2 y=2", "--rule", "*: N@data H@y", "--picture", ranks=2)
    # Pieces of the two outputs may stand anywhere in each other.
    check("each process prints what explain says", sorted(twice) == sorted(2 * explained), twice)
    check("a drawing to standard output", "</svg>" in printed("explain", "--svg", "/dev/stdout"))
    evaluation = printed("explain", "--evaluation", "--grid", "data=2", "--rule", "*: N@data")
    check("an evaluation has no backward", not re.search(r"\bd[xwy]\b|gradients|optimizer", evaluation), evaluation)


def memory_that_is_taken():
    """The allocator takes more than the peak; a limit between the two makes steps give memory back."""
    model = ["--model", "googlenet", "--batch", "8"]
    text = printed("explain", *model)
    peak = int(re.search(r"^peak memory: .* \((\d+) bytes\)", text, re.M)[1])
    check("what is taken", re.search(r"^memory taken: [\d.]+ MiB, as released memory is kept .* size$", text, re.M), text)
    limited = printed("explain", *model, "--memory-limit", str(peak))
    check("a limit below it", re.search(r"^memory taken: .*; to stay within .*, each step gives memory back", limited,
                                        re.M), limited)


def convolutions_of_cudnn():
    """What cuDNN runs on a card that its properties describe; in a build without CUDA, why it cannot be said."""
    ran = partita("explain", "--model", "unet3d", "--batch", "64", "--dtype", "bf16", "--device", "cuda",
                  "--properties", ROOT / "test/support/h100-properties.json", "--workspace", "64MiB", status=None)
    if re.search(r"CUDA +not in this build", printed("info")):
        check("a build without CUDA says so", ran.status == 2 and "this build cannot compute on GPUs" in ran.err, ran)
        return
    check("cuDNN runs all convolutions", re.search(r"^cuDNN runs (\d+) of \1 convolutions on rank 0$", ran.out, re.M),
          ran)
    check("some need more workspace than there is", re.search(
        r"need more than the workspace of 64\.0 MiB leaves for [1-9]\d* of them, up to [\d.]+ [MG]iB \(\w+, \w+ N=64 ",
        ran.out), ran)
    check("the default suffices", "need more" not in printed(
        "explain", "--model", "resnet50", "--batch", "32", "--dtype", "bf16", "--device", "cuda", "--properties",
        ROOT / "test/support/h100-properties.json"))


def attention_of_cudnn():
    """Which layers of attention cuDNN is asked for, and why not for others; in a build without CUDA it says nothing."""
    if re.search(r"CUDA +not in this build", printed("info")):
        return
    on_card = ["--model", "gpt", "--batch", "8", "--device", "cuda", "--properties",
               ROOT / "test/support/h100-properties.json"]
    rounded = printed("explain", *on_card, "--dtype", "bf16")
    check("cuDNN is asked for all", "cuDNN is asked for the attention of 4 of 4 layers on rank 0" in rounded, rounded)
    by_partita = r"^a kernel of Partita computes (the backward of )?\w+, since .* add to results"
    in_ring = [*on_card, "--dtype", "bf16", "--strategy", ROOT / "examples/strategies/gpt-ring.toml"]
    last_rank, first_rank = (printed("explain", *in_ring, "--rank", rank) for rank in (7, 0))
    check("not in a ring", re.findall(by_partita, last_rank, re.M) == [""] * 4
          and "attention of 0 of 4 layers" in last_rank, last_rank)
    check("nor its backward where the queries meet their own keys alone",
          re.findall(by_partita, first_rank, re.M) == ["the backward of "] * 4, first_rank)
    check("not in f32", "since cuDNN's engines take bf16 and f16" in printed("explain", *on_card))


def names_of_files():
    """Links, standard output, and names that are not valid UTF-8."""
    os.symlink("real.svg", "link.svg")
    for there in ("which does not exist", "which exists"):
        printed("explain", "--svg", "link.svg")
        check(f"a link stays a link, and the file behind it, {there}, is written", os.path.islink("link.svg") and
              os.path.getsize("real.svg") > 0)
    results, strategy = "caf\udce9.json", "caf\udce9.toml"  # not valid UTF-8
    with open(results, "w", encoding="utf-8") as file:
        partita("explain", "--svg", "/dev/stdout", stdout=file)
    text = read(results)
    check("standard output can be a file", text.startswith("<svg") and "</svg>" in text and
          text.endswith(printed("explain")), text[:200])
    os.remove(results)  # no JSON, so --json would not replace it
    write(strategy, 'grid = "data=2"\n')
    printed("train", *SMALL, "--no-test", "--strategy", strategy, "--json", results, ranks=2)
    printed("compare", "--strategies", strategy, "--json", results)
    check("the name of a file need not be UTF-8", "\ufffd" in read(results))


def training():
    """Training, its results and its checkpoint."""
    trained = printed("train", *SMALL, "--grid", "data=2 y=2", "--rule", "*: N@data H@y", "--epochs", "2", "--save",
                      "w.h5", "--json", "r.json", "--optimizer", "adamw", ranks=4)
    report = read_json("r.json")
    check("results of every epoch", [epoch["epoch"] for epoch in report["epochs"]] == [1, 2])
    check("one loss per step", len(report["losses"]) == 8)
    check("bytes as predicted", report["predicted_bytes"] == report["measured_bytes"] > 0)
    evaluated = printed("evaluate", *SMALL, "--load", "w.h5", "--json", "e.json", ranks=3)
    check("an evaluation has no optimizer", "sgd" not in evaluated and "adamw" in trained, evaluated)
    again = read_json("e.json")
    check("a checkpoint gives the same test loss on another grid",
          abs(again["test"]["loss"] - report["test"]["loss"]) < 1e-9, last(trained, "test") + last(evaluated, "test"))
    write("cut.toml", 'grid = "data=2"\n[schedule]\nkind = "zb-h1"\nmicrobatches = 3\n[[layer]]\nmatch = "*"\noutput '
          '= "N@data"\n')
    check("explain of microbatches", "in 3 microbatches of 6 samples or one less" in
          printed("explain", "--strategy", "cut.toml", "--batch", "16"))
    microbatched = printed("train", *SMALL, "--strategy", "cut.toml", "--steps", "2", "--json", "e.json", ranks=2)
    report = read_json("e.json")
    check("microbatches move the predicted bytes", report["predicted_bytes"] == report["measured_bytes"] > 0 and
          report["predicted_memory"] == report["measured_memory"], microbatched)
    resumed = printed("train", *SMALL, "--load", "w.h5", "--epochs", "3", "--optimizer", "adamw", ranks=2)
    check("training continues with epoch 3", "epoch 3" in resumed and "epoch 2" not in resumed, resumed)
    for limit, steps in (("--epochs", "2"), ("--steps", "5")):
        done = printed("train", *SMALL, "--load", "w.h5", limit, steps, "--optimizer", "adamw", ranks=2)
        check(f"nothing is left for {limit}", "note       nothing is left to train: 8 steps were done before this "
              f"run, and {limit} "
              f"{steps} includes them; give a larger number\n" in done and "epoch" not in done.replace("--epochs", ""),
              done)
    check("no other files were written", sorted(os.listdir()) == ["cut.toml", "e.json", "r.json", "w.h5"])


def stages():
    """Strategies with stages."""
    staged = ["--strategy", STRATEGIES / "fashion-cnn-pipeline.toml"]
    check("explain of stages", all(part in printed("explain", *staged, "--batch", "16", "--rank", "5") for part in
                                   ("on 3 stages (7 ranks)", 'stage 1, ranks 4 to 5, grid "c=2": conv2 to pool2',
                                    'stage 2, rank 6, grid "": fc1 to loss', "== stage 2 ==", "y to 1")))
    table = printed("explain", *staged, "--batch", "16", "--svg", "s.svg", ranks=3)
    check("explain has one row per stage", all(part in table for part in (
        "stage  actions        busy        idle  peak activations\n",
        "\n    0       18          12           6                 3\n", "\n    0 |FFF....BBFBB.BB.BB|\n")), table)
    drawn = drawing("s.svg")
    check("explain draws one bar per action", sum(g.tag.endswith("}g") for g in drawn) == 3 * 4 * 2)
    legend = ("forward", "backward", "number in a bar: its microbatch; darker: a later group of the stage")
    check("the drawing has a legend", all(text in [t.text for t in drawn] for text in legend))
    few = "the strategy asks for 4 microbatches, but the batch has 3 samples; each is a microbatch"
    statistics = "batch normalization computes its statistics for each of the {} microbatches, not for the whole batch"
    check("batch normalization", f"note: {statistics.format(3)}\n" in printed("explain", *staged, "--batch", "3"))
    check("explain of more microbatches than samples", f"note: {few}\n" in printed("explain", *staged, "--batch", "3"))
    check("train with more microbatches than samples", f"note       {few}\n" in printed("train", "--data", "synthetic",
                                                                                        "--samples", "3", "--batch",
                                                                                        "3", *staged, "--steps", "1",
                                                                                        "--no-test", ranks=7))
    piped = printed("train", *SMALL, *staged, "--steps", "4", "--json", "r.json", "--trace", "t.json", ranks=7)
    report = read_json("r.json")
    check("stages move and hold the predicted bytes", report["predicted_bytes"] == report["measured_bytes"] > 0 and
          report["predicted_memory"] == report["measured_memory"], piped)
    events = read_json("t.json")["traceEvents"]
    rows = {event["tid"] for event in events if event["ph"] == "X" and event["pid"] == 0}
    check("one row per rank in the trace", rows == set(range(7)), rows)
    check("three steps with 2 transfers per microbatch and boundary",
          sum(event["ph"] == "s" for event in events) == 3 * 4 * 2 * 2)
    check("no time below 0", all(event.get("ts", 0) >= 0 and event.get("dur", 0) >= 0 for event in events))
    write("cut.toml", '[schedule]\nkind = "v-half"\nmicrobatches = 3\n' + "".join(
            f'[[group]]\nlayers = ["{first}", "{last}"]\n' for first, last in
            (("image", "bn1"), ("relu1", "bn2"), ("relu2", "pool2"), ("fc1", "loss"))))
    folded = printed("explain", "--strategy", "cut.toml", "--batch", "16")
    alone = printed("schedule", "--kind", "v-half", "--stages", "2", "--microbatches", "3", "--filter-memory", "1")
    check("explain prints the schedule as the verb schedule does", all(  # except that it counts transfers and updates
        re.sub(r"^( +\d) +18 ", r"\1       34 ", line) in folded for line in alone.splitlines()), alone + folded)
    check("explain of two groups per stage", "on 2 stages (2 ranks)" in folded and
          "== stage 1, group 2 ==" in folded and 'stage 0, rank 0, grid "": image to bn1 (group 0), fc1 to loss '
          '(group 3)' in folded and "on stage 1" in folded and "on stage 3" not in folded, folded)
    printed("train", *SMALL, "--strategy", "cut.toml", "--steps", "3", "--trace", "t.json", "--no-test", ranks=2)
    events = read_json("t.json")["traceEvents"]
    check("both groups of a stage are predicted", {event["args"]["group"] for event in events if event["ph"] == "X" and
                                                   event["pid"] == 1 and event["tid"] == 0} == {0, 3})
    check("no other files were written", sorted(os.listdir()) == ["cut.toml", "r.json", "s.svg", "t.json"])


# Real networks with the fast backend: compares the memory that the allocator handed out with the plan.
NETWORKS = {"resnet18": (4, ["--size", "64", "--width", "0.25", "--classes", "10", "--batch", "8"],
                         "resnet18-channels"), "resnet50": (4,
                                                            ["--size", "64", "--width", "0.25", "--classes", "10",
                                                             "--batch", "8"], "resnet50-spatial-channels"),
            "unet3d": (4, ["--size", "16", "--width", "0.25", "--batch", "2"], "unet3d-spatial"),
            "cosmoflow": (4, ["--size", "32", "--width", "0.25", "--batch", "2"], "cosmoflow-spatial"),
            "mesh-tangling": (4, ["--size", "128", "--width", "0.25", "--batch", "2"], "mesh-tangling-stationary-w"),
            "dlrm": (4, ["--rows", "500", "--batch", "16"], "dlrm-tables"),
            "vgg16": (4, ["--size", "64", "--width", "0.25", "--classes", "10", "--batch", "4"], "vgg16-spatial"),
            "googlenet": (1, ["--size", "64", "--width", "0.25", "--classes", "10", "--batch", "4"], None)}


def memory_of_networks():
    """The memory and bytes of real networks are those of the plan."""
    for model, (ranks, size, strategy) in NETWORKS.items():
        chosen = ["--strategy", STRATEGIES / f"{strategy}.toml"] if strategy else []
        text = printed("train", "--model", model, *size, *chosen, "--data", "synthetic", "--samples", "16", "--rate",
                       "0.001", "--kernels", "", "--no-test", "--json", "r.json", ranks=ranks)
        report = read_json("r.json")
        ratio = report["measured_memory"] / report["predicted_memory"]
        check(f"memory of {model} is within 2 % of the plan: {ratio:.4f}", abs(ratio - 1) <= 0.02)
        check(f"bytes of {model} as predicted", report["predicted_bytes"] == report["measured_bytes"])
        check(f"{model} has an accuracy if it has labels", ("accuracy" in text) == (model != "cosmoflow"), text)


run_parts(versions_and_help, schedules, explanations, memory_that_is_taken, convolutions_of_cudnn, attention_of_cudnn, names_of_files,
          training, stages, memory_of_networks, apart=True)
