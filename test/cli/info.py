"""Tests `info`, the completions of bash and zsh, and the manual page.
Arguments: the launcher build/mpiexec, the program build/partita, the folder with the files that the build wrote
(partita for bash, _partita for zsh, partita.1), and the paths of zsh and mandoc, "" where one is missing."""

import json
import os
import re
import shutil
import subprocess
import sys

LAUNCHER, PROGRAM = map(os.path.abspath, sys.argv[1:3])
BASH, ZSH, PAGE = (os.path.join(sys.argv[3], name) for name in ("partita", "_partita", "partita.1"))
ZSH_PROGRAM, MANDOC = sys.argv[4:6]
VERBS = ["train", "evaluate", "explain", "compare", "plan", "calibrate", "schedule", "scale", "report", "info"]
failures = []


def check(name, holds, shown=""):
    print(f"{'ok  ' if holds else 'FAIL'} {name}")
    if not holds:
        failures.append(name)
        print(shown)


def run(*command, **others):
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, **others)
    return result.returncode, result.stdout, result.stderr


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def test_info():
    status, text, err = run(PROGRAM, "info")
    check("info", status == 0 and err == "", err)
    for part in ("Partita", "compiler", "MPI", "HDF5", "oneDNN", "Eigen", "Boost", "processor", "cores", "memory", "devices", "open files",
                 "shared memory", "kernels", "launcher", "Environment"):
        check(f"info tells '{part}'", part in text, text)
    on_ranks = run(LAUNCHER, "-n", "3", PROGRAM, "info")
    check("each process prints info", on_ranks[0] == 0 and on_ranks[1].count("Versions") == 3 and on_ranks[2] == "", on_ranks)
    status, text, err = run(PROGRAM, "info", "--json", env={**os.environ, "OMP_NUM_THREADS": "3", "PARTITA_SECRET": "", "AWS_SECRET_KEY": "hidden"})
    found = json.loads(text)
    shared = os.statvfs("/dev/shm")
    check("info as JSON", found["subject"] == "info" and found["machine"]["cores"] == len(os.sched_getaffinity(0)) and
          found["limits"]["shared_memory"] == shared.f_blocks * shared.f_frsize and found["environment"]["OMP_NUM_THREADS"] == "3", text)
    check("info hides what does not matter", "hidden" not in text, text)
    bare = run("env", "-i", PROGRAM, "info")
    check("info without an environment", bare[0] == 0 and "none of the variables that matter is set" in bare[1], bare)


def options_of(verb):
    """The long options in the help of a verb; `scale` also takes those of train."""
    options = set(re.findall(r"^ {1,4}(?:-\w \[ )?--([\w-]+)", run(PROGRAM, verb, "--help")[1], re.MULTILINE))
    options = {option.rstrip("]") for option in options}
    return options | options_of("train") if verb == "scale" else options


def complete_in_bash(*words):
    """What bash offers for the last word."""
    script = f'. "{BASH}"; COMP_WORDS=({" ".join(map(repr, words))}); COMP_CWORD={len(words) - 1}; $(complete -p partita | sed "s/.*-F //; s/ .*//"); ' \
             'printf "%s\\n" "${COMPREPLY[@]}"'
    status, out, err = run(shutil.which("bash"), "--norc", "-c", script)
    check(f"bash completes: {' '.join(words)}", status == 0 and err == "", err)
    return out.split()


def test_completion():
    check("bash completes a verb", complete_in_bash("partita", "tr") == ["train"])
    check("bash completes an option", sorted(complete_in_bash("partita", "train", "--ba")) == ["--backend", "--batch", "--batch-norm"])
    check("bash completes a value", complete_in_bash("partita", "train", "--optimizer", "ad") == ["adagrad", "adam", "adamw"])
    check("bash leaves files to the shell", complete_in_bash("partita", "train", "--strategy", "x") == [])
    check("bash offers all verbs", set(VERBS) <= set(complete_in_bash("partita", "")))
    zsh = read(ZSH)
    for verb in VERBS:
        options = options_of(verb)
        offered = {word[2:] for word in complete_in_bash("partita", verb, "--")}
        check(f"bash has every option of {verb}", offered == options, offered ^ options)
        part = zsh.split(f"\n    {verb})\n")[1].split(";;")[0]
        offered = set(re.findall(r"^\s+'\*?--([\w-]+)\[", part, re.MULTILINE))
        check(f"zsh has every option of {verb}", offered == options, offered ^ options)
    if ZSH_PROGRAM:
        # A terminal in which zsh completes with the file, and shows what it completed.
        status, out, err = run(ZSH_PROGRAM, "-f", "-n", ZSH)
        check("zsh parses its file", status == 0 and err == "", err)
        script = f"autoload -U compinit && compinit -u -D && source {ZSH} && print -r -- $_comps[partita]"
        status, out, err = run(ZSH_PROGRAM, "-f", "-c", script)
        check("zsh loads its file", status == 0 and out == "_partita\n" and err == "", out + err)
    status, _, err = run(PROGRAM, "completion", "fish")
    check("another shell", status == 2 and "no completion for the shell 'fish'" in err, err)


def test_man_page():
    page = read(PAGE)
    for verb in VERBS:
        check(f"the manual page has {verb}", f"\n.SS partita {verb}\n" in page)
    missing = [option for verb in VERBS for option in options_of(verb) - {"help"} if f"\\fB\\-\\-{option.replace('-', chr(92) + '-')}\\fR" not in page]
    check("the manual page has all options", not missing, missing)
    if MANDOC:
        status, out, err = run(MANDOC, "-T", "lint", "-W", "warning", PAGE)
        check("mandoc finds no fault", status == 0, out + err)
    if shutil.which("groff"):
        status, out, err = run("groff", "-man", "-ww", "-Tutf8", PAGE)
        check("groff warns of nothing", status == 0 and err == "" and "TRAIN" not in err, err)


test_info()
test_completion()
test_man_page()
print(f"{len(failures)} failed")
sys.exit(1 if failures else 0)
