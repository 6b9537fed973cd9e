"""bench/results/summary.md is what bench/support/summary.py makes of the JSON lines beside it."""

import difflib
import sys

import sources

sys.path.insert(0, str(sources.ROOT / "bench/support"))
import summary  # noqa: E402, after its folder is known


def check():
    path = summary.RESULTS / "summary.md"
    old = path.read_text(encoding="utf-8") if path.exists() else ""
    changes = list(difflib.unified_diff(old.splitlines(), summary.summary().splitlines(), "is", "should be", lineterm="", n=0))
    return [*changes, "run python3 -B bench/support/summary.py"] if changes else []


sources.report(check(), "results")
