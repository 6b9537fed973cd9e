"""Tests that numbers are read and written alike in every locale: a program that sets a locale with decimal commas, with
points between thousands, or with another capital of i gives the results of LC_ALL=C, bit for bit.
Arguments: the program build/test/cli/locales."""

import os
import shutil
import sys

from checks import Program, check, read, read_json, refused, run, run_parts, write

program = Program(sys.argv[1], status=None)
TRAIN = ["--data", "synthetic", "--samples", "24", "--batch", "8", "--no-test", "--kernels", "", "--dtype", "f64"]


def in_locale(locale, *arguments):
    """Runs the program in a locale: "C", or e.g. "de_DE.UTF-8", which C++ takes too with a "+" at its end."""
    variables = {"LOCPATH": os.getcwd(), "LC_ALL": locale.rstrip("+"), "LANG": "",
                 **({"CXX_LOCALE": "1"} if locale[-1] == "+" else {})}
    return program(*arguments, variables=variables)


def trained(locale, *arguments):
    """The parts of the results that must not depend on the locale."""
    ran = in_locale(locale, "train", *TRAIN, *arguments, "--json", "r.json")
    if ran.status != 0:
        return f"{locale}: {ran}"
    found = read_json("r.json")
    return {key: found.get(key) for key in ("losses", "rates", "optimizer", "best", "measured_bytes", "batch", "seed")}


def alike(name, locale, *arguments):
    """Checks that a training gives the same results in a locale as in C, and returns those of C."""
    expected, found = trained("C", *arguments), trained(locale, *arguments)
    check(f"{name} in {locale}", isinstance(expected, dict) and found == expected, f"{expected}\n{found}")
    return expected


def decimals(locale):
    """Decimals on the command line and in a file of options."""
    for rate in ("0.001", "1.125", "1e-3", ".5"):
        check(f"C reads the rate {rate}", alike(f"--rate {rate}", locale, "--steps", "2", "--rate",
                                                rate)["optimizer"]["rate"] == float(rate))
    alike("all decimals of an optimizer", locale, "--optimizer", "adam", "--beta1", "0.8", "--beta2", "0.9995",
          "--epsilon", "1e-7", "--weight-decay", "0.015625", "--steps", "2")
    write("o.toml", "rate = 0.0625\nmomentum = 0.75\nseed = 1234567\nwarm-up = 1000\n")
    found = alike("a file of options", locale, "--steps", "2", "--options", "o.toml")
    check("the file gives the peak rate", found["optimizer"]["rate"] == 0.0625 and found["seed"] == 1234567, found)
    refused(f"a comma in {locale}", in_locale(locale, "train", *TRAIN, "--rate", "0,05"), "'0,05'", "write a number")


def written_options(locale):
    """Files of options, and the help."""
    given = ["--rate", "0.0125", "--data", "synthetic", "--samples", "12345", "--batch", "1024", "--validate", "0.25",
             "--timeout", "1000", "--no-test", "--kernels", ""]
    for place, name in (("C", "c.toml"), (locale, "l.toml")):
        in_locale(place, "train", *given, "--steps", "1", "--write-options", name)
    check(f"--write-options writes the same in {locale}", read("c.toml") == read("l.toml") and
          "rate = 0.0125" in read("l.toml"), read("l.toml"))
    ran = in_locale(locale, "train", "--options", "l.toml")
    check(f"--options reads what was written in {locale}", ran.status == 0 and "sgd rate 0.0125" in ran.out, ran)
    helps = [in_locale(place, verb, "--help").out for verb in ("train", "plan", "scale", "schedule")
             for place in ("C", locale)]
    check(f"the help is the same in {locale}", helps[0::2] == helps[1::2] and len(helps[0]) > 1000)


def resumed(locale):
    """The lowest validation loss is kept in the checkpoint as a text."""
    parts = []
    for place in ("C", locale):
        first = trained(place, "--validate", "0.25", "--epochs", "1", "--save", "w.h5", "--overwrite", "--decay-steps",
                        "99")
        second = trained(place, "--validate", "0.25", "--epochs", "2", "--load", "w.h5", "--rate", "1e-300")
        parts.append((first, second))
    check(f"a resumed training in {locale}", parts[0] == parts[1] and
          parts[0][1]["best"]["loss"] == parts[0][0]["best"]["loss"], parts)


def simulated(locale):
    """The verb simulate."""
    words = ["simulate", "--grid", "y=2", "--rule", "*: H@y", "--batch", "1000", "--out", "sim"]
    expected, found = in_locale("C", *words), in_locale(locale, *words)
    check(f"simulate in {locale}", expected == found and "0.0000 ms" not in found.out, f"{expected}\n{found}")


def german():
    """Decimal commas, and points between thousands."""
    for name in ("de_DE", "tr_TR"):
        run("localedef", "-i", name, "-f", "UTF-8", f"./{name}.UTF-8")
    ran = run("locale", "decimal_point", variables={"LOCPATH": os.getcwd(), "LC_ALL": "de_DE.UTF-8"})
    check("the locale has a decimal comma", ran.out == ",\n", ran)
    for locale in ("de_DE.UTF-8", "de_DE.UTF-8+"):
        decimals(locale)
        written_options(locale)
        resumed(locale)
        simulated(locale)


def turkish():
    """Another capital of i."""
    for locale in ("tr_TR.UTF-8", "tr_TR.UTF-8+"):
        alike("two ranks", locale, "--ranks", "2", "--steps", "2", "--rate", "0.0625")
        check(f"the capital of i in {locale}", in_locale(locale, "man").out == in_locale("C", "man").out and
              ".TH LOCALES" in in_locale("C", "man").out)


assert shutil.which("smpirun"), "this test needs smpirun; on Debian: apt-get install libsimgrid-dev"
run_parts(german, turkish)
