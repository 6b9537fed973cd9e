"""Tests --options FILE and --write-options FILE: files are read, written and refused as a user meets them.
Arguments: the launcher build/mpiexec and the program build/partita."""

import os
import re
import sys

from checks import Program, check, read, read_json, refused, run_parts, succeeded, write

partita = Program(sys.argv[2], sys.argv[1], status=None)
SMALL = 'data = "synthetic"\nsamples = 16\nbatch = 8\n'


def settings(text):
    """Writes a file of options, and returns its name."""
    return write("run.toml", text)


def bad(name, text, message, ranks=1):
    """Checks that train prints one line about a place of the file, and nothing else."""
    ran = partita("train", "--options", settings(text), ranks=ranks)
    check(name, ran.status == 2 and ran.err == f"partita: run.toml, {message}\n", ran)


def results(*arguments, ranks=1):
    """Trains, and returns the results."""
    succeeded(f"train {' '.join(arguments)}", partita("train", *arguments, "--json", "r.json", ranks=ranks))
    return read_json("r.json")


def reading():
    """Files that are read, and what wins over them."""
    settings(SMALL + 'dtype = "f64"\nseed = 7\nno-test = true\nrate = 1e-3\nrule = ["*: N@data", "fc*: N C"]\ngrid = '
             '"data=2"\n')
    found = results("--options", "run.toml", ranks=2)
    check("a file gives all options", found["batch"] == 8 and found["dtype"] == "f64" and found["seed"] == 7 and
          found["grid"] == "data=2" and "test" not in found and found["epochs"][0]["samples"] == 16, found)
    found = results("--options=run.toml", "--batch", "4", "--no-test=false", ranks=2)
    check("the command line wins, also over a switch", found["batch"] == 4 and "test" in found, found)
    ran = partita("explain", "--options", "run.toml")
    check("a file of another verb is read, with one note", ran.status == 0 and "N@data" in ran.out and
          ran.err == "note: run.toml: the verb explain does not use these keys: data, samples, seed, no-test\n", ran)
    succeeded("help beside a file", partita("calibrate", "--options", settings('out = ""\nbatch = 8\n'), "--help",
                                            ranks=2), "--options FILE")


def every_verb():
    """Files for each verb."""
    write("mlp.toml", 'model = "mlp"\n')
    for verb, text, part in [("explain", 'model = "mlp"\nwhy = "loss"\n', "loss"),
                             ("compare", 'model = "mlp"\nbatch = 8\n', "ms"),
                             ("plan", 'model = "mlp"\nranks = 1\nbest = 1\nkinds = ["none"]\nout = "found"\n',
                              "found-1.toml"),
                             ("schedule", 'kind = "gpipe"\nstages = 2\nno-draw = true\n', "gpipe"),
                             ("info", 'json = "info.json"\n', "Partita")]:
        succeeded(f"{verb} with a file", partita(verb, "--options", settings(text)), part)
    check("info wrote what its file names", read_json("info.json")["subject"] == "info")
    refused("evaluate with a file", partita("evaluate", "--options", settings(SMALL + 'load = "none.h5"\n'), ranks=2),
            r"none\.h5")
    ran = partita("compare", "--options", settings('model = "mlp"\nbatch = 8\nmeasure = true\njson = "c.json"\n'),
                  ranks=2)
    check("compare runs the strategies that its file says to measure", ran.status == 0 and
          read_json("c.json")["conditions"]["measured"], ran)
    text = 'ranks = [1, 2]\nsteps = 1\nrepeats = 1\nbatch = 8\nmodel = "mlp"\nwidths = [8, 8]\nout = "s.json"\n'
    ran = partita("scale", "--options", settings(text))
    check("scale with options of its own and of train", ran.status == 0 and os.path.exists("s.json"), ran)
    ran = partita("report", "--options", settings('file = ["s.json"]\nout = "page.html"\n'))
    check("report with a file", (ran.status == 0 and os.path.exists("page.html")) or "without Chart.js" in ran.err, ran)


def refusals():
    """Files with mistakes."""
    keys = "; the keys are the long names of options, which --help lists"
    bad("unknown key", "batch = 8\n\nbacth = 3\n",
        f"line 3, column 1: there is no option 'bacth' (did you mean 'batch'?){keys}")
    bad("on 3 ranks, once", "bacth = 3\n",
        f"line 1, column 1: there is no option 'bacth' (did you mean 'batch'?){keys}", ranks=3)
    bad("a table", "[train]\nbatch = 3\n",
        f"line 1, column 2: there is no option 'train' (did you mean 'trace'?){keys}")
    for value, text in (("many", 'batch = "many"\n'), ("1.5", "batch = 1.5\n")):
        bad("a bad number", text, f"line 1, column 9: the argument ('{value}') for option '--batch' is invalid; write "
            "a whole number")
    bad("a switch as a number", "flip = 1\n", "line 1, column 8: 'flip' must be true or false")
    bad("a value as a switch", "batch = true\n", "line 1, column 9: 'batch' must be a number or a text in quotes, not "
        "true or false")
    bad("an array for one value", "batch = [1, 2]\n", "line 1, column 9: 'batch' takes one value, not an array")
    bad("an array of arrays", 'rule = [["a"]]\n', "line 1, column 9: 'rule' must be a number or a text in quotes")
    bad("a date", "seed = 2026-11-24\n", "line 1, column 8: 'seed' must be a number or a text in quotes")
    bad("a file in a file", 'options = "other.toml"\n',
        "line 1, column 1: 'options' belongs on the command line, not into a file of options")
    refused("a value that is refused later", partita("train", "--options", settings("\nbatch = 0\n"), ranks=1),
            r"^partita: --batch 0: it must be 1 or more \(--batch is from run\.toml, line 2, column 1\)$")
    for text, place in (("batch = 8\n\0\nepochs = 3\n", "line 2, column 1"), ("\0" * 40, "line 1, column 1")):
        bad(f"a NUL byte in {place}", text, f"{place}: a NUL byte, which TOML does not allow; the file is damaged, or "
            "not a text: write it again")
    for option in ("--strategy", "--machine", "--options"):
        for name, text, part in (("a NUL byte", 'grid = "data=2 y=2"\n\0\n',
                                  r"run\.toml, line 2, column 1: a NUL byte"),
                                 ("a key of 40,000 parts", ".".join(["a"] * 40000) + " = 1\n",
                                  r"run\.toml, line 1, column 32: a key of more than 16 parts")):
            ran = partita("explain", option, settings(text))
            refused(f"{option}: {name}", ran, f"^partita: {part}")
            check(f"{option}: {name}: nothing else is printed", ran.out == "", ran.out)
    for line, message in (("rate = -0.1", "--rate -0.1: the learning rate is -0.1; it must be more than 0"),
                          ('optimizer = "adma"',
                           "--optimizer adma: there is no optimizer 'adma' (did you mean 'adam'?)"),
                          ("momentum = 1.5", "--momentum 1.5: the momentum is 1.5; it must be in [0, 1)"),
                          ("warm-up = -1", "--warm-up -1: the warm-up is -1 steps; it must be 0 or more"),
                          ('dtype = "f31"', "--dtype f31: "), ('decay = "square"', "--decay square: "),
                          ('device = "gpu"', "--device gpu: "),
                          ('transport = "tcp"', "--transport tcp: "),
                          ('grid = "data=0"', '--grid data=0: grid "data=0", column 6: '),
                          ("size = -3", "--size -3: "), ("width = 1e18", "--width 1e+18: "),
                          ("classes = -1", "--classes -1: "),
                          ('model = "lenet"', "--model lenet: there is no built-in model 'lenet'"),
                          ('model = "mlp"\nwidths = [8, -8]',
                           "--widths 8 -8: a hidden layer's width is -8; it must be 1 to 2147483648")):
        ran = partita("train", "--options", settings(SMALL + "\n" + line + "\n"), ranks=1)
        place = f"({message.split()[0]} is from run.toml, line {6 if 'widths' in line else 5}, column 1)"
        refused(f"a bad value of a file: {line}", ran, "^partita: " + re.escape(message), re.escape(place))
    refused("a number below zero among several", partita("explain", "--model", "mlp", "--widths", "8", "-8"),
            "--widths 8 -8: a hidden layer's width is -8")
    words = ["--data", "synthetic", "--samples", "16", "--batch", "8", "--no-test", "--kernels="]
    succeeded("--kernels= is an empty folder", partita("train", *words, ranks=1))
    refused("--json=", partita("train", "--json=", ranks=1), "--json is empty; give a value, or leave it out")
    refused("not TOML", partita("train", "--options", settings("batch = \n"), ranks=1),
            r"^partita: run\.toml, line 1, column 9: ")
    for name, words, part in [("missing", ["--options", "none.toml"],
                               "--options none.toml: it cannot be read: No such file or directory"),
                              ("a folder", ["--options", "."], "--options .: it cannot be read: Is a directory"),
                              ("no name", ["--options"], "--options needs the name of a file, e.g. --options run.toml"),
                              ("empty name", ["--options", ""],
                               "--options needs the name of a file, e.g. --options run.toml"),
                              ("two files", ["--options", "a", "--options=b"],
                               "--options is given twice; write all options into one file")]:
        ran = partita("train", *words, ranks=2)
        check(f"options file: {name}", ran.status == 2 and ran.err == f"partita: {part}\n", ran)


def writing():
    """Files that --write-options writes, which are read again."""
    given = "--data synthetic --samples 16 --batch 8 --dtype f64 --optimizer adam --no-test --epsilon 1e-300".split()
    given += ["--seed", "18446744073709551615", "--kernels", "", "--rule", "conv*: N", "--rule", "*: N C"]
    succeeded("options are written", partita("train", *given, "--write-options", "a.toml", ranks=1))
    first = read("a.toml")
    for line in ("batch = 8", "rate = 0.001", "# momentum = 0.9", "beta1 = 0.9", "no-test = true", "flip = false",
                 "epsilon = 1e-300", 'kernels = ""', 'rule = ["conv*: N", "*: N C"]', "# strategy = FILE",
                 'seed = "18446744073709551615"'):
        check(f"the file has the line {line}", line in first.replace("'", '"').splitlines(), first)
    check("the file has the help texts", "# samples per step, over all ranks\n" in first, first)
    succeeded("what was written is read", partita("train", "--options", "a.toml", "--write-options", "b.toml", ranks=2))
    check("write, read and write again gives the same file", read("b.toml") == first, read("b.toml"))
    for model in ("lenet5", "mlp", "fashion-cnn"):  # the first two have no batch normalization
        small = ["--model", model, "--size", "16", "--width", "0.125", "--data", "synthetic", "--samples", "8",
                 "--batch", "8", "--no-test"]
        partita("train", *small, "--write-options", "m.toml", ranks=1)
        for verb in ("train", "explain"):
            ran = partita(verb, "--options", "m.toml")
            check(f"{verb} reads it for {model}", ran.status == 0 and (ran.err == "" or verb == "explain"), ran)
    ran = partita("train", "--options", "a.toml", "--write-options", "a.toml", ranks=1)
    check("a file may replace itself", ran.status == 0 and read("a.toml") == first, ran)
    write_c = ["train", *given, "--write-options", "c.toml"]
    for name, words, part in (("a run that is refused", ["--rate", "0"], "--rate 0: the learning rate is 0"),
                              ("a value that TOML cannot hold", ["--rule", "*: N@\udcd2a\udc83"],
                               "the values must be valid UTF-8")):
        refused(name, partita(*write_c, *words, ranks=1), part)
        check("no file is written", not os.path.exists("c.toml"))
    refused("two outputs of one name", partita(*write_c, "--json", "c.toml", ranks=2),
            r"--json and --write-options both name c\.toml")


run_parts(reading, every_verb, refusals, writing)
