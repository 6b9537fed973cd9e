"""Tests odd command lines and surroundings: none ends in a signal, in std::terminate or without a message, and each
message is one line. Argument: the program build/partita."""

import os
import re
import subprocess
import sys
import tempfile

PROGRAM = os.path.abspath(sys.argv[1])
VERBS = ["explain", "compare", "plan", "schedule", "scale", "report", "info"]
failures = []


def run(words, redirection="", unset=(), **variables):
    environment = {key: value for key, value in {**os.environ, **variables}.items() if key not in unset}
    script = 'exec "$0" "$@" ' + redirection
    return subprocess.run(["bash", "-c", script, PROGRAM, *words], capture_output=True, env=environment, timeout=60, check=False)


def expect(name, result, status, *patterns):
    text = result.stderr.decode(errors="replace")
    lines = [line for line in text.splitlines() if line.strip()]
    problems = [] if result.returncode == status else [f"exit status {result.returncode}"]
    if status != 0 and patterns and len(lines) != 1:
        problems.append(f"{len(lines)} lines on standard error")
    problems += [f"no '{pattern}'" for pattern in patterns if not re.search(pattern, text)]
    print(f"{'ok  ' if not problems else 'FAIL'} {name}: {text[:160].rstrip()}")
    if problems:
        failures.append(name)
        print("     " + "; ".join(problems))


def test_words():
    for verb in ("", " ", "-", "--", "-1", "TRAIN", "--options", "\n"):
        expect(f"verb {verb!r}", run([verb]), 2, "there is no verb")
    expect("no words", run([]), 0)
    for verb in [*VERBS, "completion"]:
        # `report` takes words without an option, and `completion` a shell.
        expect(f"{verb} with an empty word", run([verb, ""]), 2, "the word '' belongs to no option|report|no completion|numbers of ranks")
    expect("an option of 100,000 letters", run(["explain", "--rank", "x" * 100000]), 2,
           r"^partita: the argument for option '--rank' is invalid; write a whole number$")
    for option, value, kind in (("--rank", "nan", "a whole number"), ("--batch", "1e3", "a whole number"), ("--batch", "99999999999999999999", "a whole number"),
                                ("--width", "wide", "a number"), ("--widths", "1.5", "whole numbers")):
        expect(f"{option} {value}", run(["explain", option, value]), 2, rf"for option '{option}' is invalid; write {kind}$")
    for value in ("%value%", "%option%", "%canonical_option%", "%", "100%"):  # Boost's placeholders
        expect(f"--batch {value}", run(["explain", "--batch", value]), 2, rf"the argument \('{value}'\) for option '--batch' is invalid")
        expect(f"scale --steps {value}", run(["scale", "--steps", value]), 2, value)
    for value in ("inf", "nan", "-1", "0"):
        expect(f"a width of {value}", run(["explain", "--width", value]), 2, "width")
        expect(f"a rate of {value}", run(["explain", "--rate", value]), 2, "learning rate")
    for option in ("--strategy", "--machine"):
        for path in (".", "/nowhere/x", "/proc/self/mem"):
            expect(f"{option} {path}", run(["explain", option, path]), 2, path)
    for path in (".", "/nowhere/x", "/dev/full"):
        expect(f"schedule --json {path}", run(["schedule", "--json", path]), 2, f"--json {path}: it (cannot be written|is a folder)|its folder")


def test_streams():
    for verb in ("info", "explain", "schedule", "man"):
        expect(f"{verb} without standard input", run([verb], "<&-"), 0)
        expect(f"{verb} without standard output", run([verb], ">&-"), 0)
        expect(f"{verb} without any stream", run([verb], "<&- >&- 2>&-"), 0)
        expect(f"{verb} with a full output", run([verb], ">/dev/full"), 3, "^partita: standard output cannot be written: No space left on device; free space")
        expect(f"{verb} with full outputs", run([verb], ">/dev/full 2>&1"), 3)
    expect("an error without standard error", run(["explain", "foo"], "2>&-"), 2)
    expect("an error with a full standard error", run(["explain", "foo"], "2>/dev/full"), 2)
    expect("an error without any stream", run(["explain", "foo"], "<&- >&- 2>&-"), 2)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "s.json")
        run(["schedule", "--json", path], "<&- >&- 2>&-")
        with open(path, encoding="utf-8") as file:
            check = file.read()
        print("ok  " if check.startswith("{") and check.endswith("}\n") else "FAIL", "a file does not get what is printed")
        if not check.startswith("{"):
            failures.append("file")


def test_surroundings():
    for name, variables in (("tr_TR", {"LC_ALL": "tr_TR.UTF-8"}), ("C.UTF-8", {"LC_ALL": "C.UTF-8"}), ("a language that does not exist", {"LC_ALL": "xx"}),
                            ("NO_COLOR", {"NO_COLOR": "1"}), ("no TERM", {"TERM": ""}), ("a HOME that does not exist", {"HOME": "/nowhere", "XDG_CACHE_HOME": ""}),
                            ("a TMPDIR that does not exist", {"TMPDIR": "/nowhere"}), ("an empty PATH", {"PATH": ""})):
        for verb in ("info", "explain"):
            environment = {**os.environ, **variables}
            expect(f"{verb} with {name}", subprocess.run([PROGRAM, verb], capture_output=True, env=environment, timeout=60, check=False), 0)
    for verb in ("info", "explain"):
        expect(f"{verb} without an environment", subprocess.run([PROGRAM, verb], capture_output=True, env={}, timeout=60, check=False), 0)


test_words()
test_streams()
test_surroundings()
print(f"{len(failures)} failed")
sys.exit(1 if failures else 0)
