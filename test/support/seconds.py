"""Prints where the seconds of a build and of its tests went, as tables for docs/testing.md. Two steps that share a core
each count the whole time. Argument: a build folder whose last build was a whole one and whose last test run is to be
shown; further ones are added.

    python3 test/support/seconds.py build"""

import collections
import json
import pathlib
import re
import sys


def part_of(output):
    """Returns the part of the tree that a file of a build belongs to, e.g. "src/cli" or "test/train"."""
    if not output.endswith((".o", ".gch", ".pch")):
        return "links and generated files"
    folder = output.split("/")
    target = next((name for name in folder if name.endswith(".p")), "")
    if "cuda" in folder:
        return "src/backend/gpu/cuda"
    if folder[0] == "test":
        found = re.match(r"(?:unit|threads|mpi)_([a-z]+)", target)
        return f"test/{found[1]}" if found else "test/support"
    return "/".join(folder[: 2 if folder[0] == "src" else 1])


def build_seconds(folder):
    """Returns (steps, seconds) of each part."""
    lines = (folder / ".ninja_log").read_text(encoding="utf-8").splitlines()[1:]
    last = {}  # a step that was repeated counts once
    for line in lines:
        begin, end, _, output, _ = line.split("\t")
        last[output] = (int(end) - int(begin)) / 1000
    parts = collections.defaultdict(lambda: [0, 0.0])
    for output, seconds in last.items():
        part = parts[part_of(output)]
        part[0] += 1
        part[1] += seconds
    return parts


def test_seconds(folder):
    """Returns (tests, seconds) of each suite, and (name, seconds) of each test."""
    suites, tests = collections.defaultdict(lambda: [0, 0.0]), []
    log = folder / "meson-logs/testlog.json"
    for line in log.read_text(encoding="utf-8").splitlines() if log.exists() else []:
        test = json.loads(line)
        name = test["name"]
        suite = re.sub(r"^partita:([a-z]+).*", r"\1", name)
        suites[suite][0] += 1
        suites[suite][1] += test["duration"]
        tests.append((name.split(" / ")[-1], test["duration"]))
    return suites, tests


def print_table(head, rows, least=0):
    """Prints rows (name, number, seconds), longest first, those below `least` seconds together."""
    print(f"| {head} | number | seconds |\n|---|---:|---:|")
    rows = sorted(rows, key=lambda row: -row[2])
    for name, number, seconds in rows:
        if seconds >= least:
            print(f"| {name} | {number} | {seconds:.0f} |")
    few = [row for row in rows if row[2] < least]
    if few:
        print(f"| others | {sum(row[1] for row in few)} | {sum(row[2] for row in few):.0f} |")
    print(f"| all | {sum(row[1] for row in rows)} | {sum(row[2] for row in rows):.0f} |\n")


def main():
    for folder in map(pathlib.Path, sys.argv[1:]):
        print_table("compiled", [(part, *of) for part, of in build_seconds(folder).items()], 30)
        suites, tests = test_seconds(folder)
        if tests:
            print_table("suite", [(suite, *of) for suite, of in suites.items()])
            print_table("longest tests", [(name, 1, seconds) for name, seconds in tests], 15)


main()
