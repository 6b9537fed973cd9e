"""Tests `simulate`: SimGrid replays the messages of a step on a platform made from the machine file, and must take as
long as the price says. Argument: build/partita. With PARTITA_LONG in the environment also the large cases. Needs
smpirun (libsimgrid-dev)."""

import os
import pathlib
import re
import shutil
import sys

from checks import MACHINES, Program, check, read, read_json, refused, run_parts, write

partita = Program(sys.argv[1], timeout=300)
LONG = "PARTITA_LONG" in os.environ
H100 = read(MACHINES / "dgx-h100.toml")
ABCI = read(MACHINES / "abci.toml")
LASSEN = read(MACHINES / "lassen.toml")
ONE_LINK = re.sub(r"(?m)^links .*", 'links = { links = 1, from = "test" }', H100)
HALF_BUSY = re.sub(r"(?m)^fan-out .*", 'fan-out = { ratio = 2, from = "test" }', H100)
assert ONE_LINK != H100 != HALF_BUSY

VGG = ["--model", "vgg16", "--batch", "1024"]
RESNET = ["--model", "resnet50", "--size", "224", "--classes", "1000", "--batch", "256"]
LENET = ["--model", "lenet5", "--batch", "64"]
MLP = "--model mlp --channels 4096 --size 1 --classes 4096 --widths 4096 4096 4096 --batch 2048".split()
PIPELINE = """grid = "data=2"
stages = 8
[schedule]
kind = "{}"
microbatches = 32
[[layer]]
match = "*"
output = "N@data"
"""


def on(grid, *rules):
    """The options for a grid and rules."""
    return ["--grid", grid, *(word for rule in rules for word in ("--rule", rule))]


def turning(grid):
    """Layers that want samples and features in turn: all-to-alls between them."""
    return on(grid, "*: C@c", "fc1: N@c", "fc3: N@c")


# name, machine, arguments, and whether it is one of the large cases
CASES = [
    ("a sum by levels, 64 ranks", H100, VGG + on("data=64", "*: N@data"), False),
    ("a sum by levels, 256 ranks", H100, VGG + on("data=256", "*: N@data"), False),
    ("a sum over one link of a node", ONE_LINK, VGG + on("data=64", "*: N@data"), False),
    ("half of the links busy", HALF_BUSY, VGG + on("data=64", "*: N@data"), False),
    ("nodes that are not full", H100, VGG + on("data=20", "*: N@data"), False),
    ("sums that cross nodes in different places", LASSEN, VGG + on("data=3 c=3", "*: N@data C@c"), False),
    ("small sums on nodes that are not full", ABCI, LENET + on("data=6", "*: N@data"), False),
    ("a rank alone on its node", H100, MLP + on("data=17", "*: N@data"), False),
    ("rings over all links", ABCI, VGG + on("data=64", "*: N@data"), False),
    ("rings over racks", ABCI, VGG + on("data=256", "*: N@data"), True),
    ("eight sums at once between nodes", H100, VGG + on("data=8 c=8", "*: N@data C@c"), False),
    ("eight sums at once inside nodes", H100, VGG + on("c=8 data=8", "*: N@data C@c"), False),
    ("four sums share a link", ONE_LINK, VGG + on("data=16 c=4", "*: N@data C@c"), False),
    ("products and four sums over racks", ABCI, VGG + on("data=64 c=4", "*: N@data C@c"), True),
    ("all-to-alls, 16 ranks", H100, MLP + turning("c=16"), False),
    ("all-to-alls, 64 ranks on one link", ONE_LINK, MLP + turning("c=64"), False),
    ("all-to-alls, 256 ranks", H100, MLP + turning("c=256"), True),
    ("halos of rows, more ranks than rows", H100, RESNET + on("y=16", "*: H@y"), False),
    ("halos of rows, ABCI", ABCI, RESNET + on("y=16", "*: H@y"), False),
    ("halos in two dimensions", H100, RESNET + on("y=8 x=8", "*: H@y W@x"), False),
    ("halos on one link", ONE_LINK, RESNET + on("y=8 x=8", "*: H@y W@x"), False),
    ("halos of 256 ranks", H100, RESNET + on("y=4 x=8 data=8", "*: N@data H@y W@x"), True),
    ("panels of products", H100, MLP + on("data=8 c=8", "*: N@data C@c"), False),
    ("stages, 1f1b", H100, RESNET + ["--strategy", "1f1b"], False),
    ("stages on one link", ONE_LINK, RESNET + ["--strategy", "1f1b"], False),
    ("stages, zb-h1", H100, RESNET + ["--strategy", "zb-h1"], False),
    ("stages, chimera", H100, RESNET + ["--strategy", "chimera"], False),
]


def simulate(machine, arguments, status=0, variables=None):
    """Returns the results in JSON, and the text."""
    words = [*arguments]
    if "--strategy" in words:  # stages compute, since transfers go on behind that; other cases only communicate
        at = words.index("--strategy") + 1
        words[at] = write(f"{words[at]}.toml", PIPELINE.format(words[at]))
    else:
        words += ["--scale-compute", "0.001"]
    ran = partita("simulate", "--machine", write("machine.toml", machine), "--out", "replay", "--json", "results.json",
                  *words, status=status, variables=variables)
    return (read_json("results.json") if status == 0 else None), ran.text


def smpirun(text):
    """Writes a program that takes the place of smpirun. Returns the variables with which it is found."""
    os.makedirs("programs", exist_ok=True)
    pathlib.Path(write("programs/smpirun", f"#!/bin/sh\n{text}\n")).chmod(0o755)
    return {"PATH": f"{os.getcwd()}/programs:{os.environ['PATH']}"}


def prices_hold():
    """Simulations take as long as the prices say."""
    for name, machine, arguments, large in CASES:
        if large and not LONG:
            continue
        content, text = simulate(machine, arguments)
        off = content["simulated"] / content["predicted"] - 1
        check(f"{name}: {content['ranks']} ranks, {content['predicted'] * 1e3:.3f} ms, simulated {off:+.1%}",
              abs(off) <= 0.02, text)


ONE_NODE = """name = "test"
memory = { TiB = 1, from = "test" }
memory-bandwidth = { "TB/s" = 100, from = "test" }
kernel = { ns = 1, from = "test" }
arithmetic = { "Tflop/s" = 100000, from = "test" }
efficiency.others = { Gflop = [1], share = [1], from = "test" }
[[level]]
name = "node"
latency = { ns = 1, from = "test" }
bandwidth = { "GB/s" = 4, from = "test" }
overlap = { share = 0, from = "test" }
"""


def sums_of_stages():
    """Sums of gradients that take as long as the step: the last backward sends before it sums, and the sums do not wait
    until the other stage has taken that."""
    for kind, microbatches in ((kind, m) for kind in ("1f1b", "gpipe", "zb-h1") for m in (1, 2)):
        text = PIPELINE.format(kind).replace("data=2", "data=16").replace("stages = 8", "stages = 2")
        text = text.replace("microbatches = 32", f"microbatches = {microbatches}")
        partita("simulate", "--machine", MACHINES / "dgx-h100.toml", "--out", "replay", "--json", "results.json",
                "--strategy", write("once.toml", text), "--model", "vgg16", "--batch", "128")
        content = read_json("results.json")
        off = content["simulated"] / content["predicted"] - 1
        check(f"sums of two stages, {kind}, {microbatches} microbatches: simulated {off:+.1%}", abs(off) < 0.01, content)


def outputs_that_all_ranks_need():
    """An output that every rank of the next stage needs goes out once per rank; its gradient comes back once."""
    text = PIPELINE.format("1f1b").replace("data=2", "c=4").replace("N@data", "C@c").replace("stages = 8", "stages = 4")
    partita("simulate", "--machine", MACHINES / "lassen.toml", "--out", "replay", "--json", "results.json", "--strategy",
            write("whole.toml", text.replace("microbatches = 32", "microbatches = 1")), *MLP)
    content = read_json("results.json")
    off = content["simulated"] / content["predicted"] - 1
    check(f"outputs that all ranks need: simulated {off:+.1%}", abs(off) < 0.01, content)


def large_messages():
    """Messages of more than 2^31 - 1 bytes take bytes / bandwidth. Only communication takes time on this machine."""
    for width in (8192, 32768, 40000):  # messages of 0.3, 4 and 6 GiB
        layers = f"--model mlp --channels 1 --size 1 --classes 1 --widths {width} {width} --batch 2 --dtype f64".split()
        content, text = simulate(ONE_NODE, layers + on("data=2", "*: N@data"))
        weights = width * width + 4 * width + 1
        right = 8 * weights / 4e9  # a ring of two: each rank sends half of the bytes, twice
        check(f"a sum of {weights * 8 / 2**30:.1f} GiB takes {content['simulated']:.4f} s, right: {right:.4f} s",
              abs(content["simulated"] / right - 1) < 1e-3, text)


def a_large_difference_is_noted():
    """A replacement of smpirun that prints a wrong time."""
    words = MLP + on("data=2", "*: N@data")
    _, text = simulate(H100, words, variables=smpirun("echo 'Simulated time: 9e15 seconds.'"))
    check("a wrong simulation is noted", "note: the simulation and the price differ by a factor of" in text, text)
    _, text = simulate(H100, words)
    check("a right one is not", "note:" not in text, text)


def a_wrong_machine_is_noticed():
    """The cases can fail: with one link instead of eight, the simulation is far from the price of eight."""
    eight, _ = simulate(H100, VGG + on("data=16", "*: N@data"))
    one, _ = simulate(ONE_LINK, VGG + on("data=16", "*: N@data"))
    check("one link takes longer", one["simulated"] > 1.5 * eight["predicted"], (one, eight))


def without_simgrid():
    """Without smpirun, the files are written, and the command to run is printed."""
    os.mkdir("no-programs")
    content, text = simulate(H100, MLP + on("data=2", "*: N@data"), variables={"PATH": os.path.abspath("no-programs")})
    check("no smpirun", content["simulated"] is None and "smpirun -np 2" in text and "libsimgrid-dev" in text, text)


def errors():
    """A folder that cannot be made, too many ranks, and a simulation that fails."""
    write("file", "")
    refused("a file in the folder's place", partita("simulate", "--out", "file", status=2), "the folder cannot be made")
    _, text = simulate(H100, MLP + on("data=2048", "*: N@data"), status=2)
    check("too many ranks", "takes at most 1024" in text, text)
    _, text = simulate(H100, MLP + on("data=2", "*: N@data"), status=3, variables=smpirun("echo boom >&2\nexit 3"))
    check("smpirun fails", "smpirun ended with status 3" in text and "boom" in text, text)


assert shutil.which("smpirun"), "this test needs smpirun; on Debian: apt-get install libsimgrid-dev"
run_parts(without_simgrid, errors, large_messages, a_large_difference_is_noted, a_wrong_machine_is_noticed, prices_hold,
          sums_of_stages, outputs_that_all_ranks_need)
