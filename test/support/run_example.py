"""Runs the command in an example's header comment ("// $ ...") from the root of the project and compares what it prints
with the lines below it. Times, speeds and process numbers differ from run to run and are not compared.
Arguments: the example's source and the build folder, which stands for build/ in the command."""

import difflib
import pathlib
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def steady(line):
    line = re.sub(r"\(rank:pid.*\)", "(rank:pid ...)", line)
    return re.sub(r"[\d.]+ s  \d+ images/s", "... s", line).rstrip()


def header(source):
    """(command, the lines that it prints) of the first comment."""
    command, output = None, []
    for line in source.read_text().splitlines():
        if not line.startswith("//"):
            break
        text = line[3:]
        if text.startswith("$ "):
            command = text[2:]
        elif command is not None:
            output.append(text)
    return command, output


def main():
    source, build = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    command, expected = header(source)
    words = [str(build / word[6:]) if word.startswith("build/") else word for word in shlex.split(command)]
    run = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    print(run.stdout + run.stderr)
    found = [steady(line) for line in run.stdout.splitlines()]
    difference = list(difflib.unified_diff([steady(line) for line in expected], found, "header", "found", lineterm=""))
    print("\n".join(difference))
    return 1 if run.returncode or difference else 0


sys.exit(main())
