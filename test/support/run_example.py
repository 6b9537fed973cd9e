"""Runs the commands that a document shows from the root of the project and compares their output with the lines below
them. Commands are the lines "// $ ..." in the header of an example, or "$ build/..." in the code blocks of the README
and of the pages in docs/. A line "..." stands for any number of lines. Times, speeds and process numbers differ from
run to run and are not compared. In a build without MPI, ranks are threads instead of processes. Arguments: the
document, and the build folder, which replaces build/ in the commands. With --record before them, lines of which only
numbers differ are written into the document."""

import pathlib
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def steady(line):
    line = re.sub(r"\((rank:pid|threads of process) .*\)", "(...)", line).replace("(rank:pid ...)", "(...)")
    return re.sub(r"[\d.]+ s  \d+ images/s", "... s", line).rstrip()


def header(text):
    """Returns the lines of the first comment of a source file."""
    lines = []
    for line in text.splitlines():
        if not line.startswith("//"):
            break
        lines.append(line[3:])
    return lines


def fences(text):
    """Returns the lines of each fenced code block."""
    blocks, inside = [], False
    for line in text.splitlines():
        if line.startswith("```"):
            inside = not inside
            if inside:
                blocks.append([])
        elif inside:
            blocks[-1].append(line)
    return blocks


def commands(document):
    """Returns (command, expected lines of output) for every command in the document."""
    text = document.read_text()
    shown = []
    for block in [header(text)] if document.suffix == ".cpp" else fences(text):
        inside = False
        for line in block:
            if line.startswith("$ "):
                inside = True
                shown.append((line[2:], []))
            elif inside:
                shown[-1][1].append(line)
    return shown


def difference(expected, found):
    """Returns a description of the first difference, or "" if everything matches."""
    at = 0
    skipping = False
    for line in map(steady, expected):
        if line == "...":
            skipping = True
            continue
        start = at
        while skipping and at < len(found) and found[at] != line:
            at += 1
        if at >= len(found) or found[at] != line:
            near = found[start:start + 3]
            return f"expected: {line}\nfound:    {near}"
        at, skipping = at + 1, False
    return "" if skipping or at == len(found) else f"unexpected output: {found[at:at + 3]}"


def shape(line):
    """Returns a line without its numbers."""
    return re.sub(r"\s*[-+]?\d+(\.\d+)?(e[-+]\d+)?", "#", steady(line))


def recorded(expected, found):
    """Returns (expected line, line found) for the lines of which only numbers differ."""
    changed, at, skipping = [], 0, False
    for line in expected:
        if line == "...":
            skipping = True
            continue
        alike = [i for i in range(at, len(found)) if shape(found[i]) == shape(line)]
        same = [i for i in alike if steady(found[i]) == steady(line)]
        if not alike or (not skipping and alike[0] != at):
            break
        at = (same or alike)[0] if skipping else at
        if steady(found[at]) != steady(line):
            changed.append((line, found[at].rstrip()))
        at, skipping = at + 1, False
    return changed


def main():
    record = sys.argv[1] == "--record"
    document, build = map(pathlib.Path, sys.argv[1 + record:])
    shown = commands(document)
    failed = not shown
    for command, expected in shown:
        if not (build / "mpiexec").exists():
            command = re.sub(r"^build/mpiexec -n (\d+) (\S+ \w+)", r"\2 --ranks \1", command)
        words = [str(build / word[6:]) if word.startswith("build/") else word for word in shlex.split(command)]
        run = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
        print(f"$ {command}\n{run.stdout}{run.stderr}")
        if record:
            for old, new in recorded(expected, run.stdout.splitlines()):
                document.write_text(document.read_text().replace(old + "\n", new + "\n", 1))
            continue
        wrong = difference(expected, [steady(line) for line in run.stdout.splitlines()])
        print(wrong)
        failed = failed or run.returncode != 0 or wrong != ""
    return 1 if failed else 0


sys.exit(main())
