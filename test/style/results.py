"""bench/results/summary.md and the table of results in README.md are what bench/support/summary.py makes of the JSON
lines."""

import difflib
import sys

import sources

sys.path.insert(0, str(sources.ROOT / "bench/support"))
import summary  # noqa: E402, after its folder is known


def changes_of(path, new):
    old = path.read_text(encoding="utf-8") if path.exists() else ""
    return list(difflib.unified_diff(old.splitlines(), new.splitlines(), f"{path.name} is", "should be", lineterm="", n=0))


def check():
    changes = changes_of(summary.RESULTS / "summary.md", summary.summary())
    changes += changes_of(summary.README, summary.readme(summary.README.read_text(encoding="utf-8")))
    return [*changes, "run python3 -B bench/support/summary.py"] if changes else []


sources.report(check(), "results")
