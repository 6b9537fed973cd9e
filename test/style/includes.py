"""Which file includes which, for the checks beside this one and for docs/architecture.py."""

import re

import sources

FOLDERS = ["include", "src", "layouts", "distconv", "strategies"]  # the folders of the library
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)


def place(name):
    """Where a file belongs: "strategies/plan/plan.hpp" for include/partita/strategies/plan/plan.hpp."""
    for start in ("include/partita/", "src/"):
        name = name.removeprefix(start)
    return name


def place_of_include(included):
    """Where an included header belongs, or None if it is neither public nor a private header of ours."""
    if included.startswith("partita/"):
        return place("include/" + included)
    if (sources.ROOT / included).exists() or generated(included):
        return place(included)
    return None


def generated(included):
    """Whether the build writes this header from a template NAME.in in the header's folder or below it."""
    folder, _, name = included.rpartition("/")
    return folder.startswith(("src/", "layouts", "distconv", "strategies")) and any(
        (sources.ROOT / folder).rglob(name + ".in"))


def of(path):
    """Yields (line number, quote, included name) for each include of a file."""
    text = path.read_text()
    for match in INCLUDE.finditer(text):
        yield text.count("\n", 0, match.start(2)) + 1, *match.groups()
