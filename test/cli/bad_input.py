"""Tests errors of the user: each gives one clear line on standard error, printed once, and exit status 2; nothing is
written. Arguments: the launcher build/mpiexec and the program build/partita."""

import gzip
import os
import pathlib
import shutil
import sys

from checks import Program, ended, finish, refuses, write

partita = Program(sys.argv[2], sys.argv[1], status=None)
DATA = "/usr/share/datasets/fashion-mnist"


def bad(name, ranks, arguments, *patterns, prepare=None, verb="train"):
    """Runs a verb on ranks, with synthetic data if no others are named. A verb that needs no ranks prints its error on
    each."""
    data = [] if "--data" in arguments or verb != "train" else ["--data", "synthetic"]
    refuses(f"{verb}: {name}", lambda: partita(verb, *data, *arguments, ranks=ranks), *patterns, prepare=prepare,
            copies=1 if verb in ("train", "evaluate", "calibrate") else ranks)


def strategy(text):
    """Makes a strategy file."""
    return lambda: write("s.toml", text)


def properties(text):
    """Makes a file of a card's properties."""
    return lambda: write("p.json", text)


def csv(text):
    """Makes a file with a schedule."""
    return lambda: write("s.csv", text)


def copy_data(cut, name="train-images-idx3-ubyte.gz"):
    """Copies Fashion-MNIST, with one file cut off."""
    def prepare():
        """Copies the files."""
        shutil.copytree(DATA, ".", dirs_exist_ok=True)
        os.truncate(name, cut)
    return prepare


def small_idx(labels):
    """Makes twenty black images under the names of Fashion-MNIST, with labels 0 but for those given."""
    def prepare():
        """Writes the files."""
        numbers = bytes(labels.get(i, 0) for i in range(20))
        images = bytes.fromhex("00000803000000140000001c0000001c") + bytes(20 * 784)
        for part in ("train", "t10k"):
            pathlib.Path(f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(images))
            pathlib.Path(f"{part}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(bytes.fromhex("0000080100000014") +
                                                                                   numbers))
    return prepare


def checkpoint():
    """Saves a checkpoint of a short training."""
    partita("train", "--data", "synthetic", "--samples", 8, "--batch", 8, "--no-test", "--save", "w.h5", status=0)


S = ["--strategy", "s.toml"]
RULE = 'grid = "data=2"\n[[layer]]\nmatch = "{}"\noutput = "{}"\n'
OUT = ["--json", "r.json", "--save", "w.h5"]

bad("missing data", 2, ["--data", "fashion-mnist", "--data-dir", "nowhere", *OUT], "nowhere")
bad("truncated data", 2, ["--data", "fashion-mnist", "--data-dir", ".", *OUT], "train-images",
    prepare=copy_data(500000))
bad("truncated test data", 2, ["--data", "fashion-mnist", "--data-dir", ".", *OUT], "t10k-images",
    prepare=copy_data(500000, "t10k-images-idx3-ubyte.gz"))
IDX = ["--data", "fashion-mnist", "--data-dir", ".", "--batch", "4", *OUT]
bad("a wrong label", 2, IDX, r"^partita: sample 5 of '\./train-labels-idx1-ubyte\.gz' has the label 77, but the model "
    r"predicts 10 classes \(labels 0 to 9\); correct the label, or use a model that predicts 78$",
    prepare=small_idx({5: 77}))
bad("wrong labels", 1, IDX, "sample 5 of .* has the label 10, the first of 2 such labels, but the model predicts 10 "
    "classes", prepare=small_idx({5: 10, 7: 77}))
bad("a wrong label behind one that is ignored", 2, [*IDX, "--ignore-label", "77"], "sample 6 of .* has the label 55, "
    "but the model", prepare=small_idx({5: 77, 6: 55}))
bad("a label that is no number", 1, ["--ignore-label", "x"], "--ignore-label x: a label is a whole number of 32 bits")
bad("an ignored label without classes", 2, ["--model", "cosmoflow", "--ignore-label", "255"], "'cosmoflow' predicts "
    "values and no classes; leave it out")
bad("too few weights of classes", 1, ["--class-weights", "1", "2"], "2 weights of classes for 10 classes")
bad("too much smoothing", 1, ["--label-smoothing", "1"], "smoothing is 1; it must be at least 0 and less than 1")
GPT = ["--model", "gpt", "--layers", "1", "--hidden", "8", "--heads", "2", "--sequence", "8"]
bad("no room for any place", 2, [*GPT, "--experts", "4", "--capacity", "0"],
    r"layer 'block1_dispatch' \(dispatch\): capacity is 0; it must be more than 0: 1 gives each expert its even share")
bad("more choices than experts", 2, [*GPT, "--experts", "4", "--choices", "5"],
    "a place chooses 5 of 4 experts; it must choose 1 to 4")
bad("experts that ranks cannot divide", 2, [*GPT, "--experts", "3", "--grid", "data=2", "--rule", "*_expert_*: C@data"],
    "layer 'block1_expert_up' .* output \"N C@data L\" splits a group of channels; shard C over axes that divide the 3 "
    "groups, or leave it whole")
bad("options without experts", 1, [*GPT, "--choices", "2"], "--choices: it is an option of experts; give --experts 2")
bad("experts of a model without places", 1, ["--experts", "2"], "fashion-cnn has no experts; leave it out")
bad("unknown verb", 4, [], "no verb 'trian'", "did you mean 'train'", verb="trian")
bad("option before the verb", 3, ["3"], "no verb '--batch'", verb="--batch")
bad("explain", 3, ["--grid", "data=0"], "column 6", verb="explain")
bad("folder for a file", 2, ["--save", ".", "--json", "r.json"], "--save .", "folder")
bad("huge batch", 1, ["--batch", "9223372036854775807"], "2147483648 or less")
bad("unknown device", 1, ["--device", "gpu"], "no device 'gpu'", "'cuda:0'")
bad("a card without a number", 1, ["--device", "cuda:x"], "no device 'cuda:x'")
bad("unknown transport", 1, ["--device", "cuda", "--transport", "tcp"], "no transport 'tcp'", "'nccl'")
bad("kernels of the CPU on a GPU", 1, ["--device", "cuda", "--backend", "reference"], "--backend reference",
    "kernels of the CPU")
if not os.environ.get("PARTITA_DEVICE"):  # else there is a card
    bad("no card", 2, ["--device", "cuda"], "CUDA cannot find a card|this build cannot compute on GPUs")
    for verb in ("explain", "calibrate"):
        bad(f"{verb} without a card", 1, ["--model", "lenet5", "--device", "cuda"],
            "this machine has no card|CUDA cannot find a card|this build cannot compute on GPUs", verb=verb)
bad("no properties", 1, ["--model", "lenet5", "--device", "cuda", "--properties", "p.json"],
    "--properties p.json: the file is empty", verb="explain", prepare=properties(""))
bad("properties of no card", 1, ["--model", "lenet5", "--device", "cuda", "--properties", "p.json"],
    r"--properties p\.json: it does not describe a card|this build cannot compute on GPUs", verb="explain",
    prepare=properties("[]"))
DLRM = ["--model", "dlrm", "--rows", "9", "--samples", "8", "--batch", "8"]
bad("dropout of everything", 1, [*GPT, "--dropout", "1"], r"layer 'drop' \(dropout\): rate is 1; it must be in \[0, 1\)")
bad("scores without an embedding", 1, ["--model", "vit", "--tied"], "--tied: vit has no embedding whose table its "
    "scores could share")
TIED = [*GPT, "--tied", *S]
bad("another layout of a tied table", 2, TIED, r"layer 'scores' \(linear\): s\.toml, line \d+, column \d+: weights = "
    r"\"C@t\": they are the table of 'embedding', which is \"V C\"; leave the key out",
    prepare=strategy('grid = "t=2"\n[[layer]]\nmatch = "scores"\nweights = "C@t"\n'))
bad("a tied table on two grids", 3, TIED, "its weights are the table of 'embedding', but the grids of the two are "
    "\"a=2\" and \"a=1\"; give both the same grid",
    prepare=strategy('[[group]]\nlayers = ["tokens", "positions"]\ngrid = "a=1"\n[[group]]\n'
                     'layers = ["block1_norm1", "loss"]\ngrid = "a=2"\n[schedule]\nkind = "1f1b"\n'))
bad("dropout of another model", 1, ["--model", "mlp", "--dropout", "0.1"], "--dropout 0.1: mlp has no dropout that a size")
bad("more to guess than there is", 1, [*GPT, "--ignore-label", "-100", "--mask-tokens", "1.5"],
    "--mask-tokens 1.5: the share of tokens to guess is 1.5")
bad("a loss of all labels where few tokens are to be guessed", 1, [*GPT, "--mask-tokens", "0.15"],
    "the loss 'loss' ignores no label, but most tokens are not to be guessed; give --ignore-label -100")
bad("a label of hidden tokens that is a token", 1, [*GPT, "--ignore-label", "3", "--mask-tokens", "0.15"],
    "the label 3 of tokens that are not guessed is a token")
bad("images without tokens to guess", 1, ["--ignore-label", "-100", "--mask-tokens", "0.15"],
    "has no sequences of tokens, of which some could be")
bad("a separator that is no token", 1, [*GPT, "--separator", "999"], "--separator 999: the separator 999 is no token of "
    "the data set 'synthetic', which has the tokens 0 to")
bad("a negative separator", 1, [*GPT, "--separator", "-1"], "--separator -1: it must be a token, 0 or more")
bad("a separator of images", 1, ["--separator", "3"], "--segments: the model 'fashion-cnn' reads no text; leave it out")
bad("segments that no data set has", 2, ["--model", "gpt", "--segments", "--data", "text", "--data-dir", __file__],
    "the samples of the data set 'text' have one input, but the model reads 2: 'tokens', 'segments'")
bad("whole attention of heads that ranks cannot divide", 3, [*GPT, *S], "layer 'block1_attention'", '"whole"',
    "cannot be cut over", prepare=strategy('grid = "l=3"\n[[layer]]\nmatch = "*_attention"\noutput = "L@l"\n'
                                           'algorithm = "whole"\n'))
bad("tables of another model", 1, ["--model", "mlp", "--tables", "3"], "--tables 3: mlp has no tables; leave it out")
bad("no rows", 1, ["--model", "dlrm", "--rows", "-1"], "--rows -1: rows is -1; it must be 1 to")
bad("an extent of tables", 1, ["--model", "dlrm", "--size", "9"], "--size 9: dlrm has no extent; leave it out")
bad("a data set of one input", 2, ["--model", "dlrm", "--data", "fashion-mnist"], "the samples of the data set "
    "'fashion-mnist' have one input, but the model reads 2: 'categories', 'dense'; use a data set with these")
bad("categories that are flipped", 2, [*DLRM, "--flip"], r"the model reads 2 inputs \('categories', 'dense'\); leave")
bad("text for tables", 2, [*DLRM[:4], "--data", "text", "--data-dir", "."], "the model 'dlrm' has no input of tokens")
bad("columns that are not the output's", 2, [*DLRM, *S], "layer 'tables'", 'weights "V C@data L" cut dimension C over',
    prepare=strategy('grid = "data=2"\n[[layer]]\nmatch = "tables"\nweights = "C@data"\n'))
bad("unknown optimizer", 1, ["--optimizer", "adma"], "did you mean 'adam'")
bad("learning rate of 0", 1, ["--rate", "0"], "learning rate is 0")
bad("unknown kind of optimizer state", 2, S, r"s\.toml, line 2", "sharded",
    prepare=strategy('grid = "data=2"\noptimizer = "adam"\n'))
bad("unknown axis in a dropped word", 2, S, "no axis 'nosuch'", "column 3",
    prepare=strategy('grid = "data=2"\n[[layer]]\nmatch = "*"\noutput = "H@nosuch"\n'))
bad("unknown axis in a pattern's weights", 2, S, "weights = ", "no axis 'nosuch'",
    prepare=strategy('grid = "data=2"\n[[layer]]\nmatch = "conv*"\nweights = "V@nosuch"\n'))
bad("unreadable strategy", 2, ["--strategy", "none.toml"], r"none\.toml", "No such file")
bad("bad TOML", 2, S, r"s\.toml, line 2, column \d+", prepare=strategy('grid = "data=2"\n[[layer\n'))
bad("unknown key", 2, S, r"s\.toml, line 4, column 1", "did you mean 'output'",
    prepare=strategy(RULE.format("*", "N").replace("output", "outptu")))
bad("wrong type", 2, S, r"s\.toml, line 1", "text in quotes", prepare=strategy("grid = 4\n"))
bad("bad grid", 2, S, r"s\.toml, line 1", "column 6", prepare=strategy('grid = "data=0"\n'))
bad("unknown layer", 2, S, r"s\.toml, line 2", "did you mean 'conv2'", prepare=strategy(RULE.format("conf2", "N@data")))
bad("pattern without match", 2, S, r"match = \"res\*\"", prepare=strategy(RULE.format("res*", "N@data")))
bad("unknown axis", 2, S, "conv1", "no axis 'dta'", "did you mean 'data'",
    prepare=strategy(RULE.format("conv1", "N@dta")))
bad("unknown dimension", 2, S, "conv1", "no dimension 'D'", "N C H W", prepare=strategy(RULE.format("conv1", "D@data")))
bad("dimension that no layer has", 2, S, "dimension D", prepare=strategy(RULE.format("conv*", "D@data")))
bad("axis twice", 2, S, "used twice", "column 10", prepare=strategy(RULE.format("conv1", "N@data H@data")))
bad("cannot run", 2, S, "'conv1'", "weights", "kernel's H",
    prepare=strategy('grid = "data=2"\n[[layer]]\nmatch = "conv1"\nweights = "H@data"\n'))
bad("recomputed loss", 2, S, "'loss'", "line 2", "recompute",
    prepare=strategy('grid = "data=2"\n[[layer]]\nmatch = "loss"\nrecompute = true\n'))
bad("recompute as text", 2, S, "line 4", "true or false",
    prepare=strategy('grid = "data=2"\n[[layer]]\nmatch = "*"\nrecompute = "yes"\n'))
bad("memory limit", 2, ["--memory-limit", "1MiB", "--data", "synthetic"], "rank 0", "activations",
    "more than the memory limit of 1.0 MiB")
bad("bad memory limit", 1, ["--memory-limit", "4 gigs"], "write a number of bytes, or a number with the unit KB")
for size in ("0", "-1", "0.5", "1e30", "1e999", "nan"):
    bad(f"memory limit {size}", 1, [f"--memory-limit={size}"],
        f"--memory-limit {size}: it must be 1 B or more and less than 4194304 TiB; leave the option out")
bad("no such layer", 1, ["--why", "conv*"], "^partita: --why conv\\*: the model '.*' has no such layer", verb="explain")
bad("model too small", 1, ["--model", "resnet18", "--size", "-3"], "-3")
bad("volumes missing", 2, ["--model", "unet3d", "--data", "hdf5", "--data-dir", "nowhere"], "nowhere/training.h5")
bad("other targets", 1, ["--model", "unet3d", "--size", "32", "--data", "fashion-mnist"], "samples", "C=1 H=28 W=28")
bad("moved labels", 1, ["--model", "unet3d", "--size", "8", "--data", "synthetic", "--flip"], "--flip",
    "spatial dimensions")
bad("pending sum", 2, S, "'relu1'", "pending sum", prepare=strategy(RULE.format("relu1", "sum@data")))
STAGES = '[[group]]\nlayers = ["image", "{}"]\n[[group]]\nlayers = ["{}", "{}"]\n'
bad("stage of unknown layers", 2, S, r"s\.toml, line 1", "'pol1'", "did you mean 'pool1'",
    prepare=strategy(STAGES.format("pol1", "conv2", "loss")))
bad("stages with a gap", 2, S, r"s\.toml, line 3", "'conv2' would be in no group",
    prepare=strategy(STAGES.format("pool1", "bn2", "loss")))
bad("stages that overlap", 2, S, r"s\.toml, line 3", "'relu1' is in group 0 already", "'conv2'",
    prepare=strategy(STAGES.format("pool1", "relu1", "loss")))
bad("stages that end early", 2, S, r"s\.toml, line 3", "'loss' would be in no group",
    prepare=strategy(STAGES.format("pool1", "conv2", "fc2")))
bad("stages in another order", 2, S, r"s\.toml, line 1", "in the model's order",
    r"'image' \(s\.toml, line 3, column 1\)", prepare=strategy('[[group]]\nlayers = ["conv2", '
                                                               '"loss"]\n[[group]]\nlayers = ["image", "pool1"]\n'))
bad("[[stages]]", 2, S, r"s\.toml, line 1", "'stages' is", r"\[\[group\]\]",
    prepare=strategy(STAGES.format("pool1", "conv2", "loss").replace("group", "stages")))
bad("stage of one layer", 2, S, r"s\.toml, line 2", r"for 'image' alone write layers = \[.image., .image.\]",
    prepare=strategy('[[group]]\nlayers = "image"\n'))
bad("grid beside those of stages", 2, [*S, "--grid", "data=2"], r"s\.toml, line 3", 'its own grid, "y=2"', '"data=2"',
    prepare=strategy(STAGES.format("pool1", "conv2", "loss") + 'grid = "y=2"\n'))
bad("stage without layers", 2, S, r"s\.toml, line 1", "first layer", prepare=strategy('[[group]]\ngrid = "y=2"\n'))
bad("ranks of stages", 3, S, "2 stages have 2 ranks", "3 were started", "mpiexec -n 2",
    prepare=strategy(STAGES.format("pool1", "conv2", "loss")))
bad("microbatches", 2, S, r"s\.toml, line 3", "1 to 65536",
    prepare=strategy('grid = "data=2"\n[schedule]\nmicrobatches = 0\n'))
bad("unknown schedule", 2, S, r"s\.toml, line 3", "did you mean '1f1b'",
    prepare=strategy('grid = "data=2"\n[schedule]\nkind = "1f1d"\n'))
bad("schedule of several groups", 2, S, "'zb-v'", "2 groups of layers (a|per) stage", r"\[\[group\]\]",
    prepare=strategy('grid = "data=2"\n[schedule]\nkind = "zb-v"\nmicrobatches = 4\n'))
bad("algorithm", 2, S, "'conv1'", "algorithm", prepare=strategy('grid = "data=2"\n[[layer]]\nmatch = '
                                                                '"conv1"\nalgorithm = "summa"\n'))
bad("ranks", 3, S, "2 ranks", "3 were started", "mpiexec -n 2", prepare=strategy(RULE.format("*", "N@data")))
bad("a word without an option", 2, ["batch", "3"],
    r"^partita: the word 'batch' belongs to no option \(did you mean '--batch'\?\); --help shows how to write the "
    "command$")
bad("another word without an option", 1, ["--batch", "8", "foo"], "the word 'foo' belongs to no option; --help")
bad("a word without an option, of schedule", 1, ["4"], "the word '4' belongs to no option; --help", verb="schedule")
bad("an option that the optimizer does not use", 2, ["--beta1", "0.5"],
    r"^partita: --beta1 is used by adam, adamw and lamb, but the optimizer is sgd; leave it out or "
    "choose another --optimizer$")
bad("another option that the optimizer does not use", 1, ["--optimizer", "adam", "--nesterov", "--ranks", "2"],
    "--nesterov is used by sgd, but the optimizer is adam", verb="plan")
bad("unknown option", 2, ["--bacth", "3"], "did you mean '--batch'")
bad("bad number", 1, ["--batch", "many"], "batch")
bad("zero batch", 1, ["--batch", "0"], "1 or more")
bad("bad dtype", 1, ["--dtype", "f31"], "f31", "f64")
bad("backend without dtype", 1, ["--backend", "onednn", "--dtype", "f64"], "reference")
bad("unknown model", 1, ["--model", "fashion-cn"], "did you mean 'fashion-cnn'")
bad("unknown data", 1, ["--data", "cifar"], "fashion-mnist")
bad("unwritable results", 2, ["--json", "nowhere/r.json"], "nowhere", "No such file")
bad("a seed below zero", 2, ["--seed", "-1"], r"^partita: --seed -1: it must be 0 or more$")
bad("two outputs of one name", 2, ["--save", "r.out", "--json", "./r.out"], r"--json and --save both name r\.out")
bad("a name that is too long", 1, ["--json", "r" * 300], "its name is longer than 239 bytes")
bad("a name that is too long, of explain", 1, ["--svg", "r" * 300], "its name is longer than 239 bytes", verb="explain")
bad("a checkpoint in place of a device", 1, ["--save", "/dev/null"],
    "--save /dev/null: it is not seekable; pass a regular file")
bad("results that would overwrite the strategy", 2, ["--strategy", "s.toml", "--json", "s.toml"],
    r"--strategy and --json both name s\.toml", prepare=strategy(RULE.format("*", "N")))
bad("a shift that leaves nothing", 1, ["--shift", "28"], "--shift 28: an image's H is 28")
bad("a huge image", 1, ["--size", "2147483648", "--memory-limit", "4GiB"],
    r"layer 'image' \(input\): a tensor of N=1 C=1 H=2147483648 W=2147483648 has more than 2\^48 elements",
    verb="explain")
bad("a huge model", 1, ["--width", "1e18"], "a model's width is 1e.18", verb="explain")
bad("ranks of very many stages", 1, ["--strategy", "s.toml"], "together have more than 1048576 ranks", verb="explain",
    prepare=strategy('grid = "data=16777216"\nstages = 3\n'))
bad("missing checkpoint", 2, ["--load", "w.h5", "--json", "r.json"], r"w\.h5")
bad("damaged checkpoint", 2, ["--load", "s.toml", "--json", "r.json"], r"s\.toml",
    prepare=strategy(RULE.format("*", "N")))

bad("another seed", 2, ["--load", "w.h5", "--batch", "8", "--seed", "2"], r"w\.h5", 'seed: "1"', '"2"',
    prepare=checkpoint)
bad("another model", 1, ["--load", "w.h5", "--batch", "8", "--width", "0.5"],
    r'w\.h5 has another model: "conv1 = conv\(image\) 32 filters[^"]*", here it is "conv1 = conv\(image\) 16 '
    'filters[^"]*"; add --new-run', prepare=checkpoint)
bad("another data set", 2, ["--load", "w.h5", "--batch", "8", "--samples", "24", "--epochs", "2"], "8 samples", "24",
    prepare=checkpoint)
bad("size of real data", 1, ["--data", "fashion-mnist", "--samples", "9"], "synthetic")

C = ["--csv-in", "s.csv"]
bad("kind", 1, ["--kind", "zb-h3"], "did you mean 'zb-h1'", verb="schedule")
bad("odd chimera", 1, ["--kind", "chimera", "--stages", "3"], "even number of stages", verb="schedule")
bad("times", 1, ["--times", "1,2"], "F,B,W,COMM", verb="schedule")
bad("endless times", 1, ["--kind", "zb-v", "--times", "inf,1,1,0"], "an action is inf", verb="schedule")
bad("times of a file", 1, [*C, "--times=-1,1,1,0"], "an action is -1", verb="schedule", prepare=csv("0F0,0B0\n"))
bad("negative group", 1, C, r"s\.csv, line 1, cell 1", "group -1", verb="schedule", prepare=csv("-1F0,0F0,0B0\n"))
bad("too many", 1, ["--kind", "interleaved", "--microbatches", "2000000000"], "1 to 65536", verb="schedule")
bad("no file", 1, C, r"s\.csv", "No such file", verb="schedule")
bad("unknown action", 1, C, r's\.csv, line 2, cell 3: "1X0": there is no action X; there are F, B, I, W and R$',
    verb="schedule", prepare=csv("0F0,0B0\n1F0,,1X0\n"))
bad("empty line", 1, C, r"s\.csv, line 2: an empty line is a stage without actions", verb="schedule",
    prepare=csv("0F0,0B0\n\n1F0,1B0\n"))
bad("missing microbatch", 1, C, r"^partita: s\.csv, line 2: stage 1: 1F1 is missing$", verb="schedule",
    prepare=csv("0F0,0F1,0B0,0B1\n1F0,1B0,1B1\n"))
bad("cycle", 1, C, r"^partita: s\.csv, line 1, cell 3: the stages wait for each other: stage 0 at 0B0 for 1B0, stage "
    "1 at 1F1 for 0F1$", verb="schedule", prepare=csv("0F0,,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n"))
bad("order", 1, C, r"^partita: s\.csv, line 2, cell 2: stage 1: 1B0 comes before 1F0, which it needs$", verb="schedule",
    prepare=csv("0F0,0B0\n,1B0,1F0\n"))
bad("memory of a file", 1, [*C, "--memory-limit", "1"], r"^partita: s\.csv, line 1: stage 0: it holds up to 2, ",
    verb="schedule", prepare=csv("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"))
bad("memory", 1, ["--kind", "gpipe", "--memory-limit", "4"], "holds up to 8", "limit of 4", verb="schedule")
bad("file and kind", 1, [*C, "--kind", "gpipe"], "--kind cannot be combined with --csv-in", verb="schedule",
    prepare=csv("0F0,0B0\n"))
bad("unwritable drawing", 2, ["--svg", "nowhere/x.svg"], "--svg nowhere/x.svg", "No such file", verb="explain")
for option in (["--strategy", "s.toml"], ["--grid", "data=2"], ["--rule", "*: N"]):
    bad(option[0], 1, ["--ranks", "2", *option], f"no option '{option[0]}'", verb="plan")
bad("none among kinds", 1, ["--ranks", "2", "--kinds", "none", "1f1b"], "--kinds none 1f1b", "cannot be combined",
    verb="plan")
bad("a file of the default name", 1, ["--ranks", "1", "--best", "2", "--model", "mlp"],
    r"^partita: plan-2\.toml exists; give another prefix with --out PREFIX, or "
    "replace it with --out plan$", verb="plan", prepare=lambda: write("plan-2.toml", ""))
bad("no rule", 1, ["--ranks", "2", "--why-not", "rubbish"], '--why-not "rubbish": write', verb="plan")
bad("no such layer", 1, ["--ranks", "2", "--why-not", "conv9: N C"], "no layer of the model '.*' is called 'conv9'",
    verb="plan")
bad("none examined", 1, ["--ranks", "2", "--examine", "0"], "candidates to examine is 0", verb="plan")
bad("memory limit", 1, ["--memory-limit", "1GiB"], "no option '--memory-limit'", verb="calibrate")
bad("--strategy and --strategies", 1, ["--strategy", "s.toml", "--strategies", "s.toml"],
    "--strategy s.toml cannot be combined with --strategies", verb="compare",
    prepare=strategy(RULE.format("*", "N@data")))
bad("fits nowhere", 1, ["--model", "lenet5", "--ranks", "2", "--memory-limit", "1KiB"], "does not fit 2 ranks",
    "weights .* activations", "more than the limit of 1.0 KiB", "the closest are .* above the limit", verb="plan")
bad("too many ranks", 1, ["--ranks", "2147483647"], "the number of ranks is 2147483647; it must be 1 to 1048576",
    verb="plan")
bad("unwritable", 1, ["--svg", "nowhere/x.svg"], "nowhere", verb="schedule")
for nodes in ("0,0,1", "0,x", "0,1,"):
    ended(f"PARTITA_NODES={nodes}", partita("train", "--data", "synthetic", ranks=2, variables={"PARTITA_NODES": nodes}),
          2, "PARTITA_NODES is .*; write the node of each of the 2 ranks")

finish()
