"""Lists the files of the project, for the checks in this folder. Uses only Python's standard library."""

import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = ["include", "src", "distconv", "layouts", "strategies", "examples", "test", "bench", "docs"]
CODE = {".hpp", ".cpp", ".cu"}


def files(folders=FOLDERS, suffixes=None):
    """All files below the folders, sorted. If suffixes are given, only files with one of them."""
    found = []
    for folder in folders:
        for path, _, names in os.walk(ROOT / folder):
            found += [pathlib.Path(path, name) for name in names if "__pycache__" not in path]
    return sorted(f for f in found if suffixes is None or f.suffix in suffixes)


def name(path):
    """The path relative to the root."""
    return str(path.relative_to(ROOT))


def report(complaints, what):
    """Prints the complaints and exits: with status 1 if there are any."""
    for complaint in complaints:
        print(complaint)
    print(f"{what}: {len(complaints)} complaint(s)")
    sys.exit(1 if complaints else 0)
