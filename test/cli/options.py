"""Tests --options FILE and --write-options FILE: files are read, written and refused as a user meets them.
Arguments: the launcher build/mpiexec and the program build/partita."""

import json
import os
import subprocess
import sys
import tempfile

LAUNCHER, PROGRAM = map(os.path.abspath, sys.argv[1:3])
SMALL = 'data = "synthetic"\nsamples = 16\nbatch = 8\n'
failures = []


def check(name, holds, shown=""):
    print(f"{'ok  ' if holds else 'FAIL'} {name}")
    if not holds:
        failures.append(name)
        print(shown)


def run(ranks, *arguments):
    command = ([LAUNCHER, "-n", str(ranks)] if ranks else []) + [PROGRAM, *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return result.returncode, result.stdout, result.stderr


def write(text, path="run.toml"):
    with open(path, "w", encoding="utf-8") as out:
        out.write(text)
    return path


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def refused(name, text, message, verb="train", ranks=1, more=()):
    """The file gives one line on standard error, with this message, and exit status 2."""
    status, out, err = run(ranks, verb, "--options", write(text), *more)
    check(name, status == 2 and err == f"partita: {message}\n", f"status {status}\n{out}{err}")


def results(*arguments, ranks=1):
    status, out, err = run(ranks, "train", *arguments, "--json", "r.json")
    check(f"train {' '.join(arguments)}", status == 0 and err == "", out + err)
    return json.loads(read("r.json"))


def test_reading():
    write(SMALL + 'dtype = "f64"\nseed = 7\nno-test = true\nrate = 1e-3\nrule = ["*: N@data", "fc*: N C"]\ngrid = "data=2"\n')
    found = results("--options", "run.toml", ranks=2)
    check("a file gives all options", found["batch"] == 8 and found["dtype"] == "f64" and found["seed"] == 7 and found["grid"] == "data=2"
          and "test" not in found and found["epochs"][0]["samples"] == 16, found)
    found = results("--options=run.toml", "--batch", "4", "--no-test=false", ranks=2)
    check("the command line wins, also over a switch", found["batch"] == 4 and "test" in found, found)
    status, out, err = run(0, "explain", "--options", "run.toml")
    check("a file of another verb is read, with one note", status == 0 and "N@data" in out and
          err == "note: run.toml: the verb explain does not use these keys: data, samples, seed, no-test\n", out + err)
    status, out, err = run(2, "calibrate", "--options", write('out = ""\nbatch = 8\n'), "--help")
    check("help beside a file", status == 0 and "--options FILE" in out, out + err)


def test_every_verb():
    write('model = "mlp"\n', "mlp.toml")
    for verb, text, part in [("explain", 'model = "mlp"\nwhy = "loss"\n', "loss"), ("compare", 'model = "mlp"\nbatch = 8\n', "ms"),
                             ("plan", 'model = "mlp"\nranks = 1\nbest = 1\nkinds = ["none"]\nout = "found"\n', "found-1.toml"),
                             ("schedule", 'kind = "gpipe"\nstages = 2\nno-draw = true\n', "gpipe"), ("info", 'json = "info.json"\n', "Partita")]:
        status, out, err = run(0, verb, "--options", write(text))
        check(f"{verb} with a file", status == 0 and part in out and err == "", out + err)
    check("info wrote what its file names", json.loads(read("info.json"))["subject"] == "info")
    status, out, err = run(2, "evaluate", "--options", write(SMALL + 'load = "none.h5"\n'))
    check("evaluate with a file", status == 2 and "none.h5" in err, err)
    status, out, err = run(2, "compare", "--options", write('model = "mlp"\nbatch = 8\nmeasure = true\njson = "c.json"\n'))
    check("compare runs the strategies that its file says to measure", status == 0 and json.loads(read("c.json"))["conditions"]["measured"], out + err)
    status, out, err = run(0, "scale", "--options", write('ranks = [1, 2]\nsteps = 1\nrepeats = 1\nbatch = 8\nmodel = "mlp"\nwidths = [8, 8]\nout = "s.json"\n'))
    check("scale with options of its own and of train", status == 0 and os.path.exists("s.json"), out + err)
    status, out, err = run(0, "report", "--options", write('file = ["s.json"]\nout = "page.html"\n'))
    check("report with a file", (status == 0 and os.path.exists("page.html")) or "without Chart.js" in err, out + err)


def test_refused():
    refused("unknown key", "batch = 8\n\nbacth = 3\n", "run.toml, line 3, column 1: there is no option 'bacth' (did you mean 'batch'?); the keys are the long "
            "names of options, which --help lists")
    refused("unknown key on 3 ranks, once", "bacth = 3\n", "run.toml, line 1, column 1: there is no option 'bacth' (did you mean 'batch'?); the keys are the long "
            "names of options, which --help lists", ranks=3)
    refused("a table", "[train]\nbatch = 3\n", "run.toml, line 1, column 2: there is no option 'train' (did you mean 'trace'?); the keys are the long names of "
            "options, which --help lists")
    refused("a bad number", 'batch = "many"\n', "run.toml, line 1, column 9: the argument ('many') for option '--batch' is invalid; write a whole number")
    refused("a fraction", "batch = 1.5\n", "run.toml, line 1, column 9: the argument ('1.5') for option '--batch' is invalid; write a whole number")
    refused("a switch as a number", "flip = 1\n", "run.toml, line 1, column 8: 'flip' must be true or false")
    refused("a value as a switch", "batch = true\n", "run.toml, line 1, column 9: 'batch' must be a number or a text in quotes, not true or false")
    refused("an array for one value", "batch = [1, 2]\n", "run.toml, line 1, column 9: 'batch' takes one value, not an array")
    refused("an array of arrays", 'rule = [["a"]]\n', "run.toml, line 1, column 9: 'rule' must be a number or a text in quotes")
    refused("a date", "seed = 2026-11-24\n", "run.toml, line 1, column 8: 'seed' must be a number or a text in quotes")
    refused("a file in a file", 'options = "other.toml"\n', "run.toml, line 1, column 1: 'options' belongs on the command line, not into a file of options")
    refused("a value that is refused later", "\nbatch = 0\n", "--batch 0: it must be 1 or more (--batch is from run.toml, line 2, column 1)")
    for text, place in (("batch = 8\n\0\nepochs = 3\n", "line 2, column 1"), ("\0" * 40, "line 1, column 1")):
        refused(f"a NUL byte in {place}", text, f"run.toml, {place}: a NUL byte, which TOML does not allow; the file is damaged, or not a text: write it again")
    for verb, option in (("explain", "--strategy"), ("explain", "--machine"), ("explain", "--options")):
        for name, text, part in (("a NUL byte", 'grid = "data=2 y=2"\n\0\n', "run.toml, line 2, column 1: a NUL byte"),
                                 ("a key of 40,000 parts", ".".join(["a"] * 40000) + " = 1\n", "run.toml, line 1, column 32: a key of more than 16 parts")):
            status, out, err = run(0, verb, option, write(text))
            check(f"{option}: {name}", status == 2 and err.startswith(f"partita: {part}") and err.count("\n") == 1 and out == "", f"{status} {err[:500]}")
    for line, message in (("rate = -0.1", "--rate -0.1: the learning rate is -0.1; it must be more than 0"),
                          ('optimizer = "adma"', "--optimizer adma: there is no optimizer 'adma' (did you mean 'adam'?)"),
                          ("momentum = 1.5", "--momentum 1.5: the momentum is 1.5; it must be in [0, 1)"),
                          ("warm-up = -1", "--warm-up -1: the warm-up is -1 steps; it must be 0 or more"),
                          ('dtype = "f31"', "--dtype f31: "), ('decay = "square"', "--decay square: "), ('device = "gpu"', "--device gpu: "),
                          ('transport = "tcp"', "--transport tcp: "), ('grid = "data=0"', '--grid data=0: grid "data=0", column 6: '),
                          ("size = -3", "--size -3: "), ("width = 1e18", "--width 1e+18: "), ("classes = -1", "--classes -1: "),
                          ('model = "lenet"', "--model lenet: there is no built-in model 'lenet'"),
                          ('model = "mlp"\nwidths = [8, -8]', "--widths 8 -8: a hidden layer's width is -8; it must be 1 to 2147483648")):
        status, out, err = run(1, "train", "--options", write(SMALL + "\n" + line + "\n"))
        option, number = message.split()[0], 6 if "widths" in line else 5
        check(f"a bad value of a file: {line}", status == 2 and err.startswith("partita: " + message) and err.count("\n") == 1 and
              f"({option} is from run.toml, line {number}, column 1)" in err, err)
    status, _, err = run(0, "explain", "--model", "mlp", "--widths", "8", "-8")
    check("a number below zero among several", status == 2 and "--widths 8 -8: a hidden layer's width is -8" in err, err)
    status, out, err = run(1, "train", "--data", "synthetic", "--samples", "16", "--batch", "8", "--no-test", "--kernels=")
    check("--kernels= is an empty folder", status == 0 and err == "", out + err)
    status, _, err = run(1, "train", "--json=")
    check("--json= is refused", status == 2 and "--json is empty; give a value, or leave it out" in err, err)
    status, _, err = run(1, "train", "--options", write("batch = \n"))
    check("not TOML", status == 2 and err.startswith("partita: run.toml, line 1, column 9: ") and err.count("\n") == 1, err)
    for name, words, part in [("missing", ["--options", "none.toml"], "--options none.toml: it cannot be read: No such file or directory"),
                              ("a folder", ["--options", "."], "--options .: it cannot be read: Is a directory"),
                              ("no name", ["--options"], "--options needs the name of a file, e.g. --options run.toml"),
                              ("empty name", ["--options", ""], "--options needs the name of a file, e.g. --options run.toml"),
                              ("two files", ["--options", "a", "--options=b"], "--options is given twice; write all options into one file")]:
        status, _, err = run(2, "train", *words)
        check(f"options file: {name}", status == 2 and err == f"partita: {part}\n", err)


def test_writing():
    given = "--data synthetic --samples 16 --batch 8 --dtype f64 --optimizer adam --seed 18446744073709551615 --no-test --epsilon 1e-300".split()
    given += ["--kernels", "", "--rule", "conv*: N", "--rule", "*: N C"]
    status, out, err = run(1, "train", *given, "--write-options", "a.toml")
    check("options are written", status == 0 and err == "", out + err)
    first = read("a.toml")
    for line in ("batch = 8", "rate = 0.001", "# momentum = 0.9", "beta1 = 0.9", "no-test = true", "flip = false", "epsilon = 1e-300", 'kernels = ""',
                 'rule = ["conv*: N", "*: N C"]', "# strategy = FILE", 'seed = "18446744073709551615"'):
        check(f"the file has the line {line}", line in first.replace("'", '"').splitlines(), first)
    check("the file has the help texts", "# samples per step, over all ranks\n" in first, first)
    status, out, err = run(2, "train", "--options", "a.toml", "--write-options", "b.toml")
    check("what was written is read", status == 0 and err == "", out + err)
    check("write, read and write again gives the same file", read("b.toml") == first, read("b.toml"))
    for model in ("lenet5", "mlp", "fashion-cnn"):  # the first two have no batch normalization
        small = ["--model", model, "--size", "16", "--width", "0.125", "--data", "synthetic", "--samples", "8", "--batch", "8", "--no-test"]
        run(1, "train", *small, "--write-options", "m.toml")
        for verb in ("train", "explain"):
            status, out, err = run(0, verb, "--options", "m.toml")
            check(f"{verb} reads what was written for {model}", status == 0 and (err == "" or verb == "explain"), out + err)
    status, out, err = run(1, "train", "--options", "a.toml", "--write-options", "a.toml")
    check("a file may replace itself", status == 0 and read("a.toml") == first, out + err)
    status, _, err = run(1, "train", *given, "--batch", "0", "--write-options", "c.toml")
    check("a run that is refused writes no file", status == 2 and not os.path.exists("c.toml"), err)
    status, _, err = run(1, "train", *given, "--rule", "*: N@\udcd2a\udc83", "--write-options", "c.toml")
    check("a value that TOML cannot hold", status == 2 and "the values must be valid UTF-8" in err and not os.path.exists("c.toml"), err)
    status, _, err = run(2, "train", *given, "--json", "c.toml", "--write-options", "c.toml")
    check("two outputs of one name", status == 2 and "--json and --write-options both name c.toml" in err, err)


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    test_reading()
    test_every_verb()
    test_refused()
    test_writing()
print(f"{len(failures)} failed")
sys.exit(1 if failures else 0)
