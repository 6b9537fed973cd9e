"""Tests `plan` as a user runs it: what it prints is what it writes, curves over numbers of ranks, limits and notes.
Argument: build/partita."""

import glob
import os
import re
import sys

from checks import MACHINES, Program, check, read_json, run_parts, write

partita = Program(sys.argv[1], timeout=120)
H100 = ["--machine", MACHINES / "dgx-h100.toml"]


def printed(verb, *arguments, status=0):
    """Runs a verb, and returns all that it printed."""
    return partita(verb, *arguments, status=status).text


def compared(model, path):
    """Returns ms/step, MiB sent and MiB held that compare prints of a strategy."""
    text = printed("compare", *model, "--strategies", path)
    words = re.search(rf"^{re.escape(path)} +(.*)$", text, re.M)[1].split()
    return words[1], words[-2], words[-1]


def planned(text, path):
    """Returns the words of a line of plan."""
    return re.search(rf"{re.escape(path)} +(.*)$", text, re.M)[1].split()


def one():
    """One number of ranks."""
    model = ["--model", "resnet18", "--batch", "64", *H100]
    text = printed("plan", *model, "--ranks", "12", "--best", "3", "--out", "one")
    for path in sorted(glob.glob("one-*.toml")):
        words = planned(text, path)
        check(f"{path} costs what was printed", (words[0], words[3], words[2]) == compared(model, path), text)
    rows = {row[0]: float(row[1]) for row in re.findall(r"^(samples[a-z ]*?) {2,}([0-9.]+) ", text, re.M)}
    check("plain strategies of four kinds", len(rows) == 4, text)
    staged = ('grid = "data=6"\nstages = 2\n[schedule]\nkind = "zb-h1"\nmicrobatches = %d\n'
              '[[layer]]\nmatch = "*"\noutput = "N@data"\n')
    for microbatches in (1, 2, 8):
        write("hand.toml", staged % microbatches)
        by_hand = float(compared(model, "hand.toml")[0])
        check(f"no pipeline of {microbatches} microbatches is faster than the one that is shown",
              rows["samples and stages"] <= by_hand + 5e-4, f"{rows} {by_hand}")


def joined_axes():
    """A strategy keeps axes apart if a layer cannot run on the joined ones: 2.5d needs three."""
    model = ["--model", "lenet5", "--batch", "64", "--machine", MACHINES / "lassen.toml"]
    text = printed("plan", *model, "--ranks", "64", "--kinds", "none", "--best", "1", "--out", "apart")
    words = planned(text, "apart-1.toml")
    check("it costs what was printed", (words[0], words[3], words[2]) == compared(model, "apart-1.toml"), text)


def nothing_left():
    """Where messages rule: written strategies leave nothing to choose, and ranks may repeat the work of others."""
    model = ["--model", "mlp", "--batch", "256", "--channels", "1024", "--size", "1", "--classes", "1000",
             "--widths", "4096", "4096", "--machine", MACHINES / "frontier.toml"]
    text = printed("plan", *model, "--ranks", "24", "--best", "12", "--out", "left")
    paths = sorted(glob.glob("left-*.toml"))
    check("several strategies", len(paths) > 5, text)
    for path in paths:
        words = planned(text, path)
        check(f"{path} costs what was printed", (words[0], words[3], words[2]) == compared(model, path), text)
    write("repeated.toml", 'grid = "c=8 data=3"\n[[layer]]\nmatch = "*"\noutput = "C@c"\n')
    best, by_hand = float(planned(text, "left-1.toml")[0]), float(compared(model, "repeated.toml")[0])
    check("8 of 24 ranks that work alone are not faster than what was found", best <= by_hand + 5e-4,
          f"{best} {by_hand}")


def curve():
    """Several numbers of ranks."""
    model = ["--model", "resnet18", "--batch", "64", *H100]
    text = printed("plan", *model, "--ranks", "1", "4", "8", "--best", "2", "--out", "c")
    alone = None
    for ranks in (1, 4, 8):
        path = f"c-{ranks}-1.toml"
        words = planned(text, path)
        check(f"{path} costs what was printed", (words[0], words[4], words[3]) == compared(model, path), text)
        alone = alone or float(words[0])
        check("its efficiency", abs(float(words[1].rstrip("%")) - 100 * alone / float(words[0]) / ranks) <= 0.51, text)
    check("files of the second-best too", os.path.exists("c-8-2.toml"), os.listdir())
    text = printed("plan", "--model", "mlp", "--widths", "8", "--batch", "4", "--ranks", "2", "4000000", "--out", "m")
    check("a number of ranks that cannot be is a note",
          "note     4000000 ranks: the number of ranks is 4000000; it must be" in text, text)
    text = printed("plan", "--model", "mlp", "--ranks", "8", "4", status=2)
    check("numbers ascend", "--ranks 8 4: write each number once, in ascending order" in text, text)
    text = printed("plan", "--model", "mlp", "--ranks", "4", "8", "--why-not", "*: N C", status=2)
    check("strategies and --why-not", "--why-not prices one strategy, so it needs one number of --ranks" in text, text)
    write("plan-8-1.toml", "")
    text = printed("plan", "--model", "mlp", "--ranks", "4", "8", status=2)
    check("no file is replaced that was not named", "plan-8-1.toml exists; give another prefix with --out PREFIX" in
          text, text)
    check("and none is written", not os.path.exists("plan-4-1.toml"))


def limits():
    """Limits of time, and strategies that change statistics."""
    model = ["--model", "resnet18", "--batch", "64", *H100]
    text = printed("plan", *model, "--ranks", "16", "--best", "1", "--out", "t", "--time-limit", "1e-6")
    check("what a limit of time left out", re.search(r"note     --time-limit 1e-06: the search ended early; \d+ "
                                                     "candidates not examined, "
                                                     "of at least [0-9.]+ ms by estimate; groups of layers of 1 "
                                                     "strategy may have faster layouts", text), text)
    check("and no search goes on after it", re.search(r"samples and stages +-  --time-limit left no time to search it",
                                                      text), text)
    check("no limit, no note", "time-limit" not in printed("plan", *model, "--ranks", "2", "--best", "1", "--out", "t"))
    check("a negative limit", "--time-limit -1: it must be 0" in printed("plan", *model, "--ranks", "2", "--time-limit",
                                                                         "-1", status=2))
    small = ["--model", "resnet18", "--batch", "64", "--size", "64", *H100, "--ranks", "2", "--best", "3",
             "--memory-limit", "120MiB"]
    text = printed("plan", *small, "--out", "k")
    changes = "batch normalization computes its statistics for each of the"
    check("plans say that they change statistics", changes in text and
          "--keep-batch-norm leaves such strategies out" in text, text)
    text = printed("plan", *small, "--out", "k", "--keep-batch-norm")
    check("with --keep-batch-norm none of the strategies does", changes not in text and
          "microbatches" not in text.split("beside")[0], text)
    text = printed("plan", *model, "--ranks", "2", "--keep-batch-norm", "--batch-norm", "local", status=2)
    check("statistics that strategies always change",
          "--keep-batch-norm: layer 'bn_conv1' computes its statistics over a part" in text, text)


def causes():
    """Single causes cost what the parts of their layers add up to."""
    def of(*words, grid="data=64", rule="*: N@data", batch="512"):
        """Returns the causes of a case with their seconds, the row of compare and the layers of explain."""
        case = [*words, "--batch", batch, *H100, "--grid", grid, "--rule", rule]
        text = printed("compare", *case, "--json", "c.json")
        printed("explain", *case, "--json", "e.json")
        row, layers = read_json("c.json")["strategies"][0], read_json("e.json")["layers"]
        for cause in row.get("causes", []):
            check(f"{cause['what']} is printed", f"{cause['what']} {1e3 * cause['seconds']:.3f} ms" in text, text)
        return {each["what"]: each["seconds"] for each in row.get("causes", [])}, row, layers

    def near(found, expected):
        """Returns whether a cause costs what is expected."""
        return found is not None and abs(found - expected) < 1e-9 * expected

    for how, name in (("synchronized", "synchronized batch normalization of 53 layers"),
                      ("local", "running statistics of batch normalization of 53 layers")):
        found, row, layers = of("--model", "resnet50", "--batch-norm", how)
        sums = sum(each["cost"]["communication"] for each in layers if each["kind"] == "batch_norm")
        check(f"{name} cost what they communicate", near(found.get(name), sums) and sums > 0.05 * row["seconds"], found)
        check("the gradients are those of the table", any(what.startswith("sums of gradients (") and
                                                          near(seconds, row["parts"]["gradients"])
                                                          for what, seconds in found.items()), found)
    found, row, layers = of("--model", "vgg16", grid="y=8", rule="*: H@y", batch="8")
    first = layers[1]["cost"]["communication"]
    check("the halo of one layer", near(found.get(f"halos of {layers[1]['name']}"), first) or
          first < 0.05 * row["seconds"], (found, first))
    found, row, _ = of("--model", "vgg16", grid="data=32", batch="24")
    check("ranks without samples", near(found.get("8 of 32 ranks without samples"), row["seconds"] / 4), found)
    found, *_ = of("--model", "lenet5", grid="data=1", batch="64")
    check("one rank has no causes", not found, found)


run_parts(one, joined_axes, nothing_left, curve, limits, causes)
