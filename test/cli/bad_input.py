"""Tests errors of the user: each gives one clear line on standard error, printed once, and exit status 2; nothing is
written. Arguments: the launcher build/mpiexec and the program build/partita."""

import gzip
import os
import re
import shutil
import subprocess
import sys
import tempfile

LAUNCHER, PROGRAM = map(os.path.abspath, sys.argv[1:3])
DATA = "/usr/share/datasets/fashion-mnist"
failures = []


def run(ranks, *arguments, folder):
    command = [LAUNCHER, "-n", str(ranks), PROGRAM, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


def files(folder):
    return sorted(os.path.join(base, name) for base, _, names in os.walk(folder) for name in names)


def expect(name, ranks, arguments, *patterns, prepare=lambda folder: None, verb="train"):
    """Runs `partita VERB` in a new folder. It must print exactly one error line, and that must match all patterns. A
    verb that needs no ranks prints it on each."""
    with tempfile.TemporaryDirectory() as folder:
        prepare(folder)
        before = files(folder)
        data = [] if "--data" in arguments or verb != "train" else ["--data", "synthetic"]
        result = run(ranks, verb, *data, *arguments, folder=folder)
        # Open MPI's launcher adds paragraphs of its own between horizontal rules.
        ours = re.sub(r"^-{60,}\n.*?^-{60,}\n", "", result.stderr, flags=re.M | re.S)
        lines = [line for line in ours.splitlines() if line.strip()]
        problems = []
        if result.returncode != 2:
            problems.append(f"exit status {result.returncode}")
        count = 1 if verb in ("train", "evaluate", "calibrate") else ranks
        if len(lines) != count or len(set(lines)) != 1:
            problems.append(f"{len(lines)} lines on standard error")
        problems += [f"no '{p}'" for p in patterns if not lines or not re.search(p, lines[0])]
        if files(folder) != before:
            problems.append(f"wrote {sorted(set(files(folder)) - set(before))}")
        print(f"{'ok  ' if not problems else 'FAIL'} {name}: {lines[0] if lines else ''}")
        if problems:
            failures.append(name)
            print("     " + "; ".join(problems) + "\n" + result.stdout + result.stderr)


def strategy(text):
    def prepare(folder):
        with open(os.path.join(folder, "s.toml"), "w", encoding="utf-8") as out:
            out.write(text)
    return prepare


def properties(text):
    def write(folder):
        with open(os.path.join(folder, "p.json"), "w", encoding="utf-8") as file:
            file.write(text)
    return write


def copy_data(cut, name="train-images-idx3-ubyte.gz"):
    def prepare(folder):
        for file in os.listdir(DATA):
            shutil.copy(os.path.join(DATA, file), folder)
        path = os.path.join(folder, name)
        with open(path, "r+b") as file:
            file.truncate(cut)
    return prepare


def small_idx(labels):
    """Twenty black images under the names of Fashion-MNIST, with labels 0 but for those given."""
    def prepare(folder):
        numbers = bytes(labels.get(i, 0) for i in range(20))
        for part in ("train", "t10k"):
            for name, content in ((f"{part}-images-idx3-ubyte.gz", bytes.fromhex("00000803000000140000001c0000001c") + bytes(20 * 784)),
                                  (f"{part}-labels-idx1-ubyte.gz", bytes.fromhex("0000080100000014") + numbers)):
                with gzip.open(os.path.join(folder, name), "wb") as file:
                    file.write(content)
    return prepare


def checkpoint(folder):
    run(1, "train", "--data", "synthetic", "--samples", "8", "--batch", "8", "--no-test", "--save", "w.h5", folder=folder)


S = ["--strategy", "s.toml"]
RULE = 'grid = "data=2"\n[[layer]]\nmatch = "{}"\noutput = "{}"\n'
OUT = ["--json", "r.json", "--save", "w.h5"]

expect("missing data", 2, ["--data", "fashion-mnist", "--data-dir", "nowhere", *OUT], "nowhere")
expect("truncated data", 2, ["--data", "fashion-mnist", "--data-dir", ".", *OUT], "train-images", prepare=copy_data(500000))
expect("truncated test data", 2, ["--data", "fashion-mnist", "--data-dir", ".", *OUT], "t10k-images",
       prepare=copy_data(500000, "t10k-images-idx3-ubyte.gz"))
IDX = ["--data", "fashion-mnist", "--data-dir", ".", "--batch", "4", *OUT]
expect("a wrong label", 2, IDX, r"^partita: sample 5 of '\./train-labels-idx1-ubyte\.gz' has the label 77, but the model predicts 10 classes "
       r"\(labels 0 to 9\); correct the label, or use a model that predicts 78$", prepare=small_idx({5: 77}))
expect("wrong labels", 1, IDX, r"sample 5 of .* has the label 10, the first of 2 such labels, but the model predicts 10 classes", prepare=small_idx({5: 10, 7: 77}))
expect("unknown verb", 4, [], "no verb 'trian'", "did you mean 'train'", verb="trian")
expect("option before the verb", 3, ["3"], "no verb '--batch'", verb="--batch")
expect("explain", 3, ["--grid", "data=0"], "column 6", verb="explain")
expect("folder for a file", 2, ["--save", ".", "--json", "r.json"], "--save .", "folder")
expect("huge batch", 1, ["--batch", "9223372036854775807"], "2147483648 or less")
expect("unknown device", 1, ["--device", "gpu"], "no device 'gpu'", "'cuda:0'")
expect("a card without a number", 1, ["--device", "cuda:x"], "no device 'cuda:x'")
expect("unknown transport", 1, ["--device", "cuda", "--transport", "tcp"], "no transport 'tcp'", "'nccl'")
expect("kernels of the CPU on a GPU", 1, ["--device", "cuda", "--backend", "reference"], "--backend reference", "kernels of the CPU")
if not os.environ.get("PARTITA_DEVICE"):  # else there is a card
    expect("no card", 2, ["--device", "cuda"], "CUDA cannot find a card|this build cannot compute on GPUs")
    for verb in ("explain", "calibrate"):
        expect(f"{verb} without a card", 1, ["--model", "lenet5", "--device", "cuda"],
               "this machine has no card|CUDA cannot find a card|this build cannot compute on GPUs", verb=verb)
expect("no properties", 1, ["--model", "lenet5", "--device", "cuda", "--properties", "p.json"], "--properties p.json: the file is empty",
       verb="explain", prepare=properties(""))
expect("properties of no card", 1, ["--model", "lenet5", "--device", "cuda", "--properties", "p.json"],
       r"--properties p\.json: it does not describe a card|this build cannot compute on GPUs", verb="explain",
       prepare=properties("[]"))
expect("unknown optimizer", 1, ["--optimizer", "adma"], "did you mean 'adam'")
expect("learning rate of 0", 1, ["--rate", "0"], "learning rate is 0")
expect("unknown kind of optimizer state", 2, S, r"s\.toml, line 2", "sharded", prepare=strategy('grid = "data=2"\noptimizer = "adam"\n'))
expect("unknown axis in a dropped word", 2, S, "no axis 'nosuch'", "column 3", prepare=strategy('grid = "data=2"\n[[layer]]\nmatch = "*"\noutput = "H@nosuch"\n'))
expect("unknown axis in a pattern's weights", 2, S, "weights = ", "no axis 'nosuch'", prepare=strategy('grid = "data=2"\n[[layer]]\nmatch = "conv*"\nweights = "V@nosuch"\n'))
expect("unreadable strategy", 2, ["--strategy", "none.toml"], r"none\.toml", "No such file")
expect("bad TOML", 2, S, r"s\.toml, line 2, column \d+", prepare=strategy('grid = "data=2"\n[[layer\n'))
expect("unknown key", 2, S, r"s\.toml, line 4, column 1", "did you mean 'output'", prepare=strategy(RULE.format("*", "N").replace("output", "outptu")))
expect("wrong type", 2, S, r"s\.toml, line 1", "text in quotes", prepare=strategy("grid = 4\n"))
expect("bad grid", 2, S, r"s\.toml, line 1", "column 6", prepare=strategy('grid = "data=0"\n'))
expect("unknown layer", 2, S, r"s\.toml, line 2", "did you mean 'conv2'", prepare=strategy(RULE.format("conf2", "N@data")))
expect("pattern without match", 2, S, r"match = \"res\*\"", prepare=strategy(RULE.format("res*", "N@data")))
expect("unknown axis", 2, S, "conv1", "no axis 'dta'", "did you mean 'data'", prepare=strategy(RULE.format("conv1", "N@dta")))
expect("unknown dimension", 2, S, "conv1", "no dimension 'D'", "N C H W", prepare=strategy(RULE.format("conv1", "D@data")))
expect("dimension that no layer has", 2, S, "dimension D", prepare=strategy(RULE.format("conv*", "D@data")))
expect("axis twice", 2, S, "used twice", "column 10", prepare=strategy(RULE.format("conv1", "N@data H@data")))
expect("cannot run", 2, S, "'conv1'", "weights", "kernel's H",
       prepare=strategy('grid = "data=2"\n[[layer]]\nmatch = "conv1"\nweights = "H@data"\n'))
expect("recomputed loss", 2, S, "'loss'", "line 2", "recompute", prepare=strategy('grid = "data=2"\n[[layer]]\nmatch = "loss"\nrecompute = true\n'))
expect("recompute as text", 2, S, "line 4", "true or false", prepare=strategy('grid = "data=2"\n[[layer]]\nmatch = "*"\nrecompute = "yes"\n'))
expect("memory limit", 2, ["--memory-limit", "1MiB", "--data", "synthetic"], "rank 0", "activations", "more than the memory limit of 1.0 MiB")
expect("bad memory limit", 1, ["--memory-limit", "4 gigs"], "write a number of bytes, or a number with the unit KB")
for size in ("0", "-1", "0.5", "1e30", "1e999", "nan"):
    expect(f"memory limit {size}", 1, [f"--memory-limit={size}"], f"--memory-limit {size}: it must be 1 B or more and less than 4194304 TiB; leave the option out")
expect("explain: no such layer", 1, ["--why", "conv*"], "^partita: --why conv\\*: the model '.*' has no such layer", verb="explain")
expect("model too small", 1, ["--model", "resnet18", "--size", "-3"], "-3")
expect("volumes missing", 2, ["--model", "unet3d", "--data", "hdf5", "--data-dir", "nowhere"], "nowhere/training.h5")
expect("other targets", 1, ["--model", "unet3d", "--size", "32", "--data", "fashion-mnist"], "samples", "C=1 H=28 W=28")
expect("moved labels", 1, ["--model", "unet3d", "--size", "8", "--data", "synthetic", "--flip"], "--flip", "spatial dimensions")
expect("pending sum", 2, S, "'relu1'", "pending sum", prepare=strategy(RULE.format("relu1", "sum@data")))
STAGES = '[[group]]\nlayers = ["image", "{}"]\n[[group]]\nlayers = ["{}", "{}"]\n'
expect("stage of unknown layers", 2, S, r"s\.toml, line 1", "'pol1'", "did you mean 'pool1'", prepare=strategy(STAGES.format("pol1", "conv2", "loss")))
expect("stages with a gap", 2, S, r"s\.toml, line 3", "'conv2' would be in no group", prepare=strategy(STAGES.format("pool1", "bn2", "loss")))
expect("stages that overlap", 2, S, r"s\.toml, line 3", "'relu1' is in group 0 already", "'conv2'", prepare=strategy(STAGES.format("pool1", "relu1", "loss")))
expect("stages that end early", 2, S, r"s\.toml, line 3", "'loss' would be in no group", prepare=strategy(STAGES.format("pool1", "conv2", "fc2")))
expect("stages in another order", 2, S, r"s\.toml, line 1", "in the model's order", r"'image' \(s\.toml, line 3, column 1\)",
       prepare=strategy('[[group]]\nlayers = ["conv2", "loss"]\n[[group]]\nlayers = ["image", "pool1"]\n'))
expect("[[stages]]", 2, S, r"s\.toml, line 1", "'stages' is", r"\[\[group\]\]",
       prepare=strategy(STAGES.format("pool1", "conv2", "loss").replace("group", "stages")))
expect("stage of one layer", 2, S, r"s\.toml, line 2", r"for 'image' alone write layers = \[.image., .image.\]",
       prepare=strategy('[[group]]\nlayers = "image"\n'))
expect("grid beside those of stages", 2, [*S, "--grid", "data=2"], r"s\.toml, line 3", 'its own grid, "y=2"', '"data=2"',
       prepare=strategy(STAGES.format("pool1", "conv2", "loss") + 'grid = "y=2"\n'))
expect("stage without layers", 2, S, r"s\.toml, line 1", "first layer", prepare=strategy('[[group]]\ngrid = "y=2"\n'))
expect("ranks of stages", 3, S, "2 stages have 2 ranks", "3 were started", "mpiexec -n 2", prepare=strategy(STAGES.format("pool1", "conv2", "loss")))
expect("microbatches", 2, S, r"s\.toml, line 3", "1 to 65536", prepare=strategy('grid = "data=2"\n[schedule]\nmicrobatches = 0\n'))
expect("unknown schedule", 2, S, r"s\.toml, line 3", "did you mean '1f1b'", prepare=strategy('grid = "data=2"\n[schedule]\nkind = "1f1d"\n'))
expect("schedule of several groups", 2, S, "'zb-v'", "2 groups of layers (a|per) stage", r"\[\[group\]\]",
       prepare=strategy('grid = "data=2"\n[schedule]\nkind = "zb-v"\nmicrobatches = 4\n'))
expect("algorithm", 2, S, "'conv1'", "algorithm", prepare=strategy('grid = "data=2"\n[[layer]]\nmatch = "conv1"\nalgorithm = "summa"\n'))
expect("ranks", 3, S, "2 ranks", "3 were started", "mpiexec -n 2", prepare=strategy(RULE.format("*", "N@data")))
expect("a word without an option", 2, ["batch", "3"], r"^partita: the word 'batch' belongs to no option \(did you mean '--batch'\?\); --help shows how to write the command$")
expect("another word without an option", 1, ["--batch", "8", "foo"], "the word 'foo' belongs to no option; --help")
expect("a word without an option, of schedule", 1, ["4"], "the word '4' belongs to no option; --help", verb="schedule")
expect("an option that the optimizer does not use", 2, ["--beta1", "0.5"], r"^partita: --beta1 is used by adam, adamw and lamb, but the optimizer is sgd; leave it out or "
       "choose another --optimizer$")
expect("another option that the optimizer does not use", 1, ["--optimizer", "adam", "--nesterov", "--ranks", "2"], "--nesterov is used by sgd, but the optimizer is adam", verb="plan")
expect("unknown option", 2, ["--bacth", "3"], "did you mean '--batch'")
expect("bad number", 1, ["--batch", "many"], "batch")
expect("zero batch", 1, ["--batch", "0"], "1 or more")
expect("bad dtype", 1, ["--dtype", "f31"], "f31", "f64")
expect("backend without dtype", 1, ["--backend", "onednn", "--dtype", "f64"], "reference")
expect("unknown model", 1, ["--model", "fashion-cn"], "did you mean 'fashion-cnn'")
expect("unknown data", 1, ["--data", "cifar"], "fashion-mnist")
expect("unwritable results", 2, ["--json", "nowhere/r.json"], "nowhere", "No such file")
expect("a seed below zero", 2, ["--seed", "-1"], r"^partita: --seed -1: it must be 0 or more$")
expect("two outputs of one name", 2, ["--save", "r.out", "--json", "./r.out"], r"--json and --save both name r\.out")
expect("a name that is too long", 1, ["--json", "r" * 300], "its name is longer than 239 bytes")
expect("a name that is too long, of explain", 1, ["--svg", "r" * 300], "its name is longer than 239 bytes", verb="explain")
expect("a checkpoint in place of a device", 1, ["--save", "/dev/null"], "--save /dev/null: it is not seekable; pass a regular file")
expect("results that would overwrite the strategy", 2, ["--strategy", "s.toml", "--json", "s.toml"], r"--strategy and --json both name s\.toml",
       prepare=strategy(RULE.format("*", "N")))
expect("a shift that leaves nothing", 1, ["--shift", "28"], "--shift 28: an image's H is 28")
expect("a huge image", 1, ["--size", "2147483648", "--memory-limit", "4GiB"], r"layer 'image' \(input\): a tensor of N=1 C=1 H=2147483648 W=2147483648 has more than 2\^48 elements",
       verb="explain")
expect("a huge model", 1, ["--width", "1e18"], "a model's width is 1e.18", verb="explain")
expect("ranks of very many stages", 1, ["--strategy", "s.toml"], "together have more than 1048576 ranks", verb="explain",
       prepare=strategy('grid = "data=16777216"\nstages = 3\n'))
expect("missing checkpoint", 2, ["--load", "w.h5", "--json", "r.json"], r"w\.h5")
expect("damaged checkpoint", 2, ["--load", "s.toml", "--json", "r.json"], r"s\.toml", prepare=strategy(RULE.format("*", "N")))

expect("another seed", 2, ["--load", "w.h5", "--batch", "8", "--seed", "2"], r"w\.h5", 'seed: "1"', '"2"', prepare=checkpoint)
expect("another model", 1, ["--load", "w.h5", "--batch", "8", "--width", "0.5"],
       r'w\.h5 has another model: "conv1 = conv\(image\) 32 filters[^"]*", here it is "conv1 = conv\(image\) 16 filters[^"]*"; add --new-run', prepare=checkpoint)
expect("another data set", 2, ["--load", "w.h5", "--batch", "8", "--samples", "24", "--epochs", "2"], "8 samples", "24", prepare=checkpoint)
expect("size of real data", 1, ["--data", "fashion-mnist", "--samples", "9"], "synthetic")

def csv(text):
    def prepare(folder):
        with open(os.path.join(folder, "s.csv"), "w", encoding="utf-8") as out:
            out.write(text)
    return prepare


C = ["--csv-in", "s.csv"]
expect("schedule: kind", 1, ["--kind", "zb-h3"], "did you mean 'zb-h1'", verb="schedule")
expect("schedule: odd chimera", 1, ["--kind", "chimera", "--stages", "3"], "even number of stages", verb="schedule")
expect("schedule: times", 1, ["--times", "1,2"], "F,B,W,COMM", verb="schedule")
expect("schedule: endless times", 1, ["--kind", "zb-v", "--times", "inf,1,1,0"], "an action is inf", verb="schedule")
expect("schedule: times of a file", 1, [*C, "--times=-1,1,1,0"], "an action is -1", verb="schedule", prepare=csv("0F0,0B0\n"))
expect("schedule: negative group", 1, C, r"s\.csv, line 1, cell 1", "group -1", verb="schedule", prepare=csv("-1F0,0F0,0B0\n"))
expect("schedule: too many", 1, ["--kind", "interleaved", "--microbatches", "2000000000"], "1 to 65536", verb="schedule")
expect("schedule: no file", 1, C, r"s\.csv", "No such file", verb="schedule")
expect("schedule: unknown action", 1, C, r's\.csv, line 2, cell 3: "1X0": there is no action X; there are F, B, I, W and R$',
       verb="schedule", prepare=csv("0F0,0B0\n1F0,,1X0\n"))
expect("schedule: empty line", 1, C, r"s\.csv, line 2: an empty line is a stage without actions", verb="schedule",
       prepare=csv("0F0,0B0\n\n1F0,1B0\n"))
expect("schedule: missing microbatch", 1, C, r"^partita: s\.csv, line 2: stage 1: 1F1 is missing$", verb="schedule",
       prepare=csv("0F0,0F1,0B0,0B1\n1F0,1B0,1B1\n"))
expect("schedule: cycle", 1, C,
       r"^partita: s\.csv, line 1, cell 3: the stages wait for each other: stage 0 at 0B0 for 1B0, stage 1 at 1F1 for 0F1$",
       verb="schedule", prepare=csv("0F0,,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n"))
expect("schedule: order", 1, C, r"^partita: s\.csv, line 2, cell 2: stage 1: 1B0 comes before 1F0, which it needs$", verb="schedule",
       prepare=csv("0F0,0B0\n,1B0,1F0\n"))
expect("schedule: memory of a file", 1, [*C, "--memory-limit", "1"], r"^partita: s\.csv, line 1: stage 0: it holds up to 2, ",
       verb="schedule", prepare=csv("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"))
expect("schedule: memory", 1, ["--kind", "gpipe", "--memory-limit", "4"], "holds up to 8", "limit of 4", verb="schedule")
expect("schedule: file and kind", 1, [*C, "--kind", "gpipe"], "--kind cannot be combined with --csv-in", verb="schedule", prepare=csv("0F0,0B0\n"))
expect("explain: unwritable drawing", 2, ["--svg", "nowhere/x.svg"], "--svg nowhere/x.svg", "No such file", verb="explain")
for option in (["--strategy", "s.toml"], ["--grid", "data=2"], ["--rule", "*: N"]):
    expect(f"plan: {option[0]}", 1, ["--ranks", "2", *option], f"no option '{option[0]}'", verb="plan")
expect("plan: none among kinds", 1, ["--ranks", "2", "--kinds", "none", "1f1b"], "--kinds none 1f1b", "cannot be combined", verb="plan")
expect("plan: a file of the default name", 1, ["--ranks", "1", "--best", "2", "--model", "mlp"], r"^partita: plan-2\.toml exists; give another prefix with --out PREFIX, or replace it "
       "with --out plan$", verb="plan", prepare=lambda folder: open(os.path.join(folder, "plan-2.toml"), "w", encoding="utf-8").close())
expect("plan: no rule", 1, ["--ranks", "2", "--why-not", "rubbish"], '--why-not "rubbish": write', verb="plan")
expect("plan: no such layer", 1, ["--ranks", "2", "--why-not", "conv9: N C"], "no layer of the model '.*' is called 'conv9'", verb="plan")
expect("plan: none examined", 1, ["--ranks", "2", "--examine", "0"], "candidates to examine is 0", verb="plan")
expect("calibrate: memory limit", 1, ["--memory-limit", "1GiB"], "no option '--memory-limit'", verb="calibrate")
expect("compare: --strategy and --strategies", 1, ["--strategy", "s.toml", "--strategies", "s.toml"], "--strategy s.toml cannot be combined with --strategies",
       verb="compare", prepare=strategy(RULE.format("*", "N@data")))
expect("plan: fits nowhere", 1, ["--model", "lenet5", "--ranks", "2", "--memory-limit", "1KiB"], "does not fit 2 ranks", "weights .* activations",
       "more than the limit of 1.0 KiB", "the closest are .* above the limit", verb="plan")
expect("plan: too many ranks", 1, ["--ranks", "2147483647"], "the number of ranks is 2147483647; it must be 1 to 1048576", verb="plan")
expect("schedule: unwritable", 1, ["--svg", "nowhere/x.svg"], "nowhere", verb="schedule")

print(f"{len(failures)} failed")
sys.exit(1 if failures else 0)
