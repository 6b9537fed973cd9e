"""Functions are short: 95 % of them have fewer than 40 lines. Prints the longest. Argument: ctags."""

import sys

import sources
import tags

SHORT = 40
LEAST_SHARE = 0.95
PRINTED = 10


def check(ctags):
    lengths = sorted((tag["line"] - tag["end"] - 1, tag["path"], tag["line"], tag["name"])
                     for tag in tags.read(ctags, sources.files(suffixes=sources.CODE))
                     if tag["kind"] == "function" and "end" in tag)
    share = sum(-length < SHORT for length, *_ in lengths) / len(lengths)
    print(f"{len(lengths)} functions, {share:.2%} of them below {SHORT} lines; the longest:")
    for length, path, line, name in lengths[:PRINTED]:
        print(f"{-length:5} lines: {path}:{line}: {name}")
    return [] if share >= LEAST_SHARE else [f"at least {LEAST_SHARE:.0%} of all functions should have fewer than {SHORT} lines"]


sources.report(check(sys.argv[1]), "functions")
