"""Functions have at most 80 lines. Prints the longest. Argument: ctags."""

import sys

import sources
import tags

MOST_LINES = 80
PRINTED = 10


def check(ctags):
    lengths = sorted((tag["line"] - tag["end"] - 1, tag["path"], tag["line"], tag["name"])
                     for tag in tags.read(ctags, sources.files(suffixes=sources.CODE))
                     if tag["kind"] == "function" and "end" in tag)
    print(f"{len(lengths)} functions; the longest:")
    for length, path, line, name in lengths[:PRINTED]:
        print(f"{-length:5} lines: {path}:{line}: {name}")
    return [f"{path}:{line}: {name} has {-length} lines; {MOST_LINES} is the most"
            for length, path, line, name in lengths if -length > MOST_LINES]


sources.report(check(sys.argv[1]), "functions")
