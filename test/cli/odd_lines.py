"""Tests odd command lines and surroundings: none ends in a signal, in std::terminate or without a message, and each
message is one line. Argument: the program build/partita."""

import sys

from checks import Program, check, read, refused, run_parts

partita = Program(sys.argv[1], status=None, errors="replace")
VERBS = ["explain", "compare", "plan", "schedule", "scale", "report", "info"]


def odd(name, words, status, *patterns, redirection="", **more):
    """Runs the program in a shell. It must end with `status`, and print one line with all patterns if there are any."""
    ran = partita(*words, before=["bash", "-c", 'exec "$@" ' + redirection, "bash"], **more)
    if patterns:
        refused(name, ran, *patterns, status=status)
    else:
        check(f"{name}: {ran.err[:160].rstrip()}", ran.status == status, f"status {ran.status}")


def words_of_all_kinds():
    """Words that no verb and no option takes."""
    for verb in ("", " ", "-", "--", "-1", "TRAIN", "--options", "\n"):
        odd(f"verb {verb!r}", [verb], 2, "there is no verb")
    odd("no words", [], 0)
    for verb in [*VERBS, "completion"]:
        # `report` takes words without an option, and `completion` a shell.
        odd(f"{verb} with an empty word", [verb, ""], 2,
            "the word '' belongs to no option|report|no completion|numbers of ranks")
    odd("an option of 100,000 letters", ["explain", "--rank", "x" * 100000], 2,
        r"^partita: the argument for option '--rank' is invalid; write a whole number$")
    for option, value, kind in (("--rank", "nan", "a whole number"), ("--batch", "1e3", "a whole number"),
                                ("--batch", "99999999999999999999", "a whole number"), ("--width", "wide", "a number"),
                                ("--widths", "1.5", "whole numbers")):
        odd(f"{option} {value}", ["explain", option, value], 2, rf"for option '{option}' is invalid; write {kind}$")
    for value in ("%value%", "%option%", "%canonical_option%", "%", "100%"):  # Boost's placeholders
        odd(f"--batch {value}", ["explain", "--batch", value], 2,
            rf"the argument \('{value}'\) for option '--batch' is invalid")
        odd(f"scale --steps {value}", ["scale", "--steps", value], 2, value)
    for value in ("inf", "nan", "-1", "0"):
        odd(f"a width of {value}", ["explain", "--width", value], 2, "width")
        odd(f"a rate of {value}", ["explain", "--rate", value], 2, "learning rate")
    for option in ("--strategy", "--machine"):
        for path in (".", "/nowhere/x", "/proc/self/mem"):
            odd(f"{option} {path}", ["explain", option, path], 2, path)
    for path in (".", "/nowhere/x", "/dev/full"):
        odd(f"schedule --json {path}", ["schedule", "--json", path], 2,
            f"--json {path}: it (cannot be written|is a folder)|its folder")


def streams():
    """Streams that are closed or full."""
    for verb in ("info", "explain", "schedule", "man"):
        odd(f"{verb} without standard input", [verb], 0, redirection="<&-")
        odd(f"{verb} without standard output", [verb], 0, redirection=">&-")
        odd(f"{verb} without any stream", [verb], 0, redirection="<&- >&- 2>&-")
        odd(f"{verb} with a full output", [verb], 3,
            "^partita: standard output cannot be written: No space left on device; free space",
            redirection=">/dev/full")
        odd(f"{verb} with full outputs", [verb], 3, redirection=">/dev/full 2>&1")
    odd("an error without standard error", ["explain", "foo"], 2, redirection="2>&-")
    odd("an error with a full standard error", ["explain", "foo"], 2, redirection="2>/dev/full")
    odd("an error without any stream", ["explain", "foo"], 2, redirection="<&- >&- 2>&-")
    odd("a file without any stream", ["schedule", "--json", "s.json"], 0, redirection="<&- >&- 2>&-")
    text = read("s.json")
    check("a file does not get what is printed", text.startswith("{") and text.endswith("}\n"), text)


def surroundings():
    """Environments that lack something."""
    for name, variables in (("tr_TR", {"LC_ALL": "tr_TR.UTF-8"}), ("C.UTF-8", {"LC_ALL": "C.UTF-8"}),
                            ("a language that does not exist", {"LC_ALL": "xx"}),
                            ("NO_COLOR", {"NO_COLOR": "1"}), ("no TERM", {"TERM": ""}),
                            ("a HOME that does not exist", {"HOME": "/nowhere", "XDG_CACHE_HOME": ""}),
                            ("a TMPDIR that does not exist", {"TMPDIR": "/nowhere"}), ("an empty PATH", {"PATH": ""})):
        for verb in ("info", "explain"):
            check(f"{verb} with {name}", partita(verb, variables=variables).status == 0)
    for verb in ("info", "explain"):
        check(f"{verb} without an environment", partita(verb, env={}).status == 0)


run_parts(words_of_all_kinds, streams, surroundings)
