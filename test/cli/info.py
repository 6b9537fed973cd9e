"""Tests `info`, the completions of bash and zsh, and the manual page.
Arguments: the launcher build/mpiexec, the program build/partita, the folder with the files that the build wrote
(partita for bash, _partita for zsh, partita.1), and the paths of zsh and mandoc, "" where one is missing."""

import json
import os
import re
import shutil
import sys

from checks import Program, check, read, refused, run, run_parts, succeeded

partita = Program(sys.argv[2], sys.argv[1], status=None)
BASH, ZSH, PAGE = (os.path.abspath(os.path.join(sys.argv[3], name)) for name in ("partita", "_partita", "partita.1"))
ZSH_PROGRAM, MANDOC = sys.argv[4:6]
VERBS = ["train", "evaluate", "explain", "compare", "plan", "calibrate", "schedule", "scale", "report", "info"]


def shown_info():
    """The verb info, as text and as JSON."""
    ran = partita("info")
    succeeded("info", ran)
    for part in ("Partita", "compiler", "MPI", "HDF5", "oneDNN", "Eigen", "Boost", "processor", "cores", "memory",
                 "devices", "open files", "shared memory", "kernels", "launcher", "Environment"):
        check(f"info tells '{part}'", part in ran.out, ran.out)
    on_ranks = partita("info", ranks=3)
    check("each process prints info", on_ranks.status == 0 and on_ranks.out.count("Versions") == 3 and
          on_ranks.err == "", on_ranks)
    variables = {"OMP_NUM_THREADS": "3", "PARTITA_SECRET": "", "AWS_SECRET_KEY": "hidden"}
    text = partita("info", "--json", variables=variables).out
    found = json.loads(text)
    shared = os.statvfs("/dev/shm")
    check("info as JSON", found["subject"] == "info" and found["machine"]["cores"] == len(os.sched_getaffinity(0)) and
          found["limits"]["shared_memory"] == shared.f_blocks * shared.f_frsize and
          found["environment"]["OMP_NUM_THREADS"] == "3", text)
    check("info hides what does not matter", "hidden" not in text, text)
    bare = partita("info", env={})
    check("without an environment", bare.status == 0 and "none of the variables that matter is set" in bare.out, bare)


def options_of(verb):
    """The long options in the help of a verb; `scale` also takes those of train."""
    options = set(re.findall(r"^ {1,4}(?:-\w \[ )?--([\w-]+)", partita(verb, "--help").out, re.MULTILINE))
    options = {option.rstrip("]") for option in options}
    return options | options_of("train") if verb == "scale" else options


def complete_in_bash(*words):
    """What bash offers for the last word."""
    script = (f'. "{BASH}"; COMP_WORDS=({" ".join(map(repr, words))}); COMP_CWORD={len(words) - 1}; '
              '$(complete -p partita | sed "s/.*-F //; s/ .*//"); printf "%s\\n" "${COMPREPLY[@]}"')
    ran = run(shutil.which("bash"), "--norc", "-c", script, status=None)
    succeeded(f"bash completes: {' '.join(words)}", ran)
    return ran.out.split()


def completions():
    """The completions of bash and zsh."""
    check("bash completes a verb", complete_in_bash("partita", "tr") == ["train"])
    check("bash completes an option", sorted(complete_in_bash("partita", "train", "--bat")) == ["--batch",
                                                                                                "--batch-norm"])
    check("completes a value", complete_in_bash("partita", "train", "--optimizer", "ad") == ["adagrad", "adam",
                                                                                             "adamw"])
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
        succeeded("zsh parses its file", run(ZSH_PROGRAM, "-f", "-n", ZSH, status=None))
        script = f"autoload -U compinit && compinit -u -D && source {ZSH} && print -r -- $_comps[partita]"
        ran = run(ZSH_PROGRAM, "-f", "-c", script, status=None)
        check("zsh loads its file", ran.status == 0 and ran.out == "_partita\n" and ran.err == "", ran)
    refused("another shell", partita("completion", "fish"), "no completion for the shell 'fish'")


def man_page():
    """The manual page has all verbs and options, and no faults."""
    page = read(PAGE)
    for verb in VERBS:
        check(f"the manual page has {verb}", f"\n.SS partita {verb}\n" in page)
    missing = [option for verb in VERBS for option in options_of(verb) - {"help"}
               if f"\\fB\\-\\-{option.replace('-', chr(92) + '-')}\\fR" not in page]
    check("the manual page has all options", not missing, missing)
    if MANDOC:
        ran = run(MANDOC, "-T", "lint", "-W", "warning", PAGE, status=None)
        check("mandoc finds no fault", ran.status == 0, ran)
    if shutil.which("groff"):
        succeeded("groff warns of nothing", run("groff", "-man", "-ww", "-Tutf8", PAGE, status=None))


run_parts(shown_info, completions, man_page)
