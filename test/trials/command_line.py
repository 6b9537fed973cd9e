"""Cases about what users type, and about their environment."""

import re
import shutil

from trial import case

SMALL = ["--model", "lenet5", "--data", "synthetic", "--samples", 32, "--batch", 16, "--steps", 1, "--no-test", "--kernels", ""]
ROWS = '[[layer]]\nmatch = "*"\noutput = "N@data"\n'


@case
def decimals_in_other_languages(shell):
    """In a program that takes over the user's language settings, 0.001 is read as 1 and 1.125 as 1125 (kind of report:
    Boost and GUI toolkits). Right: the numbers of the C language, everywhere."""
    assert shutil.which("localedef"), "install libc-bin"
    shell.run("localedef", "-i", "de_DE", "-f", "UTF-8", "./de_DE.UTF-8")
    german = {"LOCPATH": str(shell.folder), "LC_ALL": "de_DE.UTF-8"}
    simulate = ["simulate", "--grid", "y=2", "--rule", "*: H@y", "--batch", 1000, "--out", "s", "--json", "s.json"]
    shell.model("tiny", *simulate)
    right = shell.json("s.json")
    train = ["train", "--data", "synthetic", "--steps", 1, "--no-test", "--rate"]
    for settings in ("C", "C++"):
        shell.model("tiny", *simulate, SETTINGS=settings, **german)
        assert shell.json("s.json") == right, shell.json("s.json")
        for rate in ("0.001", "0.05", "1.125"):
            ran = shell.model("tiny", *train, rate, "--write-options", f"{settings}{rate}.toml", SETTINGS=settings, **german)
            assert f"sgd rate {rate} " in ran.out, ran.out
            ran = shell.model("tiny", "train", "--options", f"{settings}{rate}.toml", SETTINGS=settings, **german)
            assert f"sgd rate {rate} " in ran.out, ran.out


@case
def more_ranks_than_samples(shell):
    """Ranks beyond the number of samples idle, and a table of prices does not say so (kind of report: data-parallel
    scaling). Right: a note."""
    ran = shell.partita("compare", "--model", "lenet5", "--batch", 8, "--ranks", 4, 8, 16, "--grid", "data={}")
    notes = [line for line in ran.text.splitlines() if line.startswith("note")]
    assert any("16" in note for note in notes), ran.text
    assert not any(re.search(r"\b4 ranks", note) for note in notes), ran.text


@case
def a_strategy_from_a_pipe(shell):
    """A strategy that comes through a pipe is read twice, and the second time it is empty (kind of report: bash's
    process substitution). Right: it is the strategy of the file."""
    shell.file("s.toml", 'grid = "data=2"\n' + ROWS)
    ran = shell.run("bash", "-c", 'exec "$@" --strategy <(cat s.toml)', "-", shell.programs.partita, "train", *SMALL, "--ranks", 2)
    assert 'grid "data=2"' in ran.out, ran.out


@case
def a_relative_folder_of_caches(shell):
    """A relative XDG_CACHE_HOME leaves a cache in every folder (the XDG specification: ignore it). Right: no folder
    appears."""
    shell.partita("train", *SMALL[:-2], XDG_CACHE_HOME="caches", HOME=str(shell.folder / "home"))
    assert not (shell.folder / "caches").exists()
    text = " ".join(shell.partita("info", HOME="/dev/null", XDG_CACHE_HOME="").out.split())
    assert "/dev/null" not in text or "will be created" not in text, text


@case
def wrong_numbers_in_options(shell):
    """Some wrong numbers are refused without the option, the file and the line (kind of report: command lines). Right:
    as for all others."""
    shell.file("o.toml", "batch = 8\nrate = -0.1\n")
    ran = shell.partita("train", "--options", "o.toml", *SMALL[:6], status=2)
    assert "--rate" in ran.err and "o.toml" in ran.err and "line 2" in ran.err, ran.err
    ran = shell.partita("train", "--model", "mlp", "--widths", 8, -8, status=2)
    assert "--widths" in ran.err and "-8" in ran.err, ran.err
    shell.partita("train", *SMALL[:-2], "--kernels=")


@case
def names_that_are_printed_can_be_written(shell):
    """A page and a message list an algorithm that is then refused (kind of report: documentation). Right: every listed
    name is accepted, but for `replicated`, which follows from the layouts, as the page says."""
    words = ["explain", "--model", "lenet5", "--batch", 8]
    text = shell.partita(*words, "--grid", "data=2", "--rule", "*: N@data").out
    lists = re.findall(r"^ +(?:y|dx|dw) +by (.*)$", text, re.MULTILINE)
    names = {name for line in lists for name in re.findall(r"([\w.-]+) [\d.]+ \w+", line)}
    assert "dot" in names, text
    for name in sorted(names - {"replicated"}):
        shell.file("s.toml", f'grid = "data=2"\n{ROWS}[[layer]]\nmatch = "fc1"\nalgorithm = "{name}"\n')
        ran = shell.partita(*words, "--strategy", "s.toml", status=None)
        assert "there is no" not in ran.text, ran.text


@case
def rates_that_are_0(shell):
    """A decay that ends before the training, or a warm-up that never does, trains at rate 0 without a word (kind of
    report: schedulers of learning rates). Right: a note or an error names the option."""
    for words in (["--decay", "linear", "--decay-steps", 1], ["--warm-up", 10**12], ["--decay-steps", 1]):
        ran = shell.partita("train", *SMALL[:6], "--batch", 8, "--no-test", "--steps", 4, *words, status=None)
        assert re.search(r"(note|partita:).*" + words[-2], ran.text), (words, ran.text)


@case
def numbers_that_are_not_finite(shell):
    """A number that is not finite is printed with the sign of a bit (kind of report: C's printf). Right: "nan" in
    files, and a sentence where no step counts."""
    words = "train --model mlp --widths 8 --data synthetic --samples 32 --batch 8 --no-test --epochs 3 --dtype f16".split()
    ran = shell.partita(*words, "--rate", 1e30, "--on-nan", "skip", "--log", "log.csv")
    rows = (shell.folder / "log.csv").read_text(encoding="utf-8")
    assert "nan" in rows and "-nan" not in rows, rows
    assert "all steps were skipped" in ran.text and "-nan" not in ran.text, ran.text
