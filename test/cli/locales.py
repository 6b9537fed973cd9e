"""Tests that numbers are read and written alike in every locale: a program that sets a locale with decimal commas, with
points between thousands, or with another capital of i gives the results of LC_ALL=C, bit for bit.
Arguments: the program build/test/cli/locales."""

import json
import os
import shutil
import subprocess
import sys
import tempfile

PROGRAM = os.path.abspath(sys.argv[1])
TRAIN = ["--data", "synthetic", "--samples", "24", "--batch", "8", "--no-test", "--kernels", "", "--dtype", "f64"]
failures = []


def check(name, holds, shown=""):
    print(f"{'ok  ' if holds else 'FAIL'} {name}")
    if not holds:
        failures.append(name)
        print(shown)


def run(locale, *arguments):
    """Runs the program in a locale: "C", or e.g. "de_DE.UTF-8", which C++ takes too with a "+" at its end."""
    environment = {**os.environ, "LOCPATH": os.getcwd(), "LC_ALL": locale.rstrip("+"), "LANG": ""}
    if locale.endswith("+"):
        environment["CXX_LOCALE"] = "1"
    result = subprocess.run([PROGRAM, *arguments], env=environment, capture_output=True, text=True, timeout=60, check=False)
    return result.returncode, result.stdout, result.stderr


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def trained(locale, *arguments):
    """The parts of the results that must not depend on the locale."""
    status, out, err = run(locale, "train", *TRAIN, *arguments, "--json", "r.json")
    if status != 0:
        return f"{locale}: status {status}: {out}{err}"
    found = json.loads(read("r.json"))
    return {key: found.get(key) for key in ("losses", "rates", "optimizer", "best", "measured_bytes", "batch", "seed")}


def alike(name, locale, *arguments):
    expected, found = trained("C", *arguments), trained(locale, *arguments)
    check(f"{name} in {locale}", isinstance(expected, dict) and found == expected, f"{expected}\n{found}")
    return expected


def test_decimals(locale):
    for rate in ("0.001", "1.125", "1e-3", ".5"):
        check(f"C reads the rate {rate}", alike(f"--rate {rate}", locale, "--steps", "2", "--rate", rate)["optimizer"]["rate"] == float(rate))
    alike("all decimals of an optimizer", locale, "--optimizer", "adam", "--beta1", "0.8", "--beta2", "0.9995", "--epsilon", "1e-7",
          "--weight-decay", "0.015625", "--steps", "2")
    with open("o.toml", "w", encoding="utf-8") as file:
        file.write("rate = 0.0625\nmomentum = 0.75\nseed = 1234567\nwarm-up = 1000\n")
    found = alike("a file of options", locale, "--steps", "2", "--options", "o.toml")
    check("the file gives the peak of the rate", found["optimizer"]["rate"] == 0.0625 and found["seed"] == 1234567, found)
    status, _, err = run(locale, "train", *TRAIN, "--rate", "0,05")
    check(f"a decimal comma is refused in {locale}", status == 2 and "'0,05'" in err and "write a number" in err, err)


def test_written_options(locale):
    given = ["--rate", "0.0125", "--data", "synthetic", "--samples", "12345", "--batch", "1024", "--validate", "0.25", "--timeout", "1000",
             "--no-test", "--kernels", ""]
    for place, name in (("C", "c.toml"), (locale, "l.toml")):
        run(place, "train", *given, "--steps", "1", "--write-options", name)
    check(f"--write-options writes the same in {locale}", read("c.toml") == read("l.toml") and "rate = 0.0125" in read("l.toml"), read("l.toml"))
    status, out, err = run(locale, "train", "--options", "l.toml")
    check(f"--options reads what was written in {locale}", status == 0 and "sgd rate 0.0125" in out, out + err)
    helps = [run(place, verb, "--help")[1] for verb in ("train", "plan", "scale", "schedule") for place in ("C", locale)]
    check(f"the help is the same in {locale}", helps[0::2] == helps[1::2] and len(helps[0]) > 1000)


def test_resumed(locale):
    """The lowest validation loss is kept in the checkpoint as a text."""
    parts = []
    for place in ("C", locale):
        first = trained(place, "--validate", "0.25", "--epochs", "1", "--save", "w.h5", "--overwrite", "--decay-steps", "99")
        second = trained(place, "--validate", "0.25", "--epochs", "2", "--load", "w.h5", "--rate", "1e-300")
        parts.append((first, second))
    check(f"a resumed training in {locale}", parts[0] == parts[1] and parts[0][1]["best"]["loss"] == parts[0][0]["best"]["loss"], parts)


def test_simulated(locale):
    words = ["simulate", "--grid", "y=2", "--rule", "*: H@y", "--batch", "1000", "--out", "sim"]
    expected, found = run("C", *words), run(locale, *words)
    check(f"simulate in {locale}", expected == found and "0.0000 ms" not in found[1], f"{expected}\n{found}")


def test_turkish(locale):
    alike("two ranks", locale, "--ranks", "2", "--steps", "2", "--rate", "0.0625")
    check(f"the capital of i in {locale}", run(locale, "man")[1] == run("C", "man")[1] and ".TH LOCALES" in run("C", "man")[1])


assert shutil.which("smpirun"), "this test needs smpirun; on Debian: apt-get install libsimgrid-dev"
with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    for name in ("de_DE", "tr_TR"):
        subprocess.run(["localedef", "-i", name, "-f", "UTF-8", f"./{name}.UTF-8"], check=True, timeout=60)
    shown = subprocess.run(["locale", "decimal_point"], env={**os.environ, "LOCPATH": folder, "LC_ALL": "de_DE.UTF-8"}, capture_output=True,
                           text=True, check=True)
    check("the locale has a decimal comma", shown.stdout == ",\n", shown)
    for locale in ("de_DE.UTF-8", "de_DE.UTF-8+"):
        test_decimals(locale)
        test_written_options(locale)
        test_resumed(locale)
        test_simulated(locale)
    for locale in ("tr_TR.UTF-8", "tr_TR.UTF-8+"):
        test_turkish(locale)
    os.chdir("/")
print(f"{len(failures)} failed")
sys.exit(1 if failures else 0)
