"""Checks that clang-format would change no C++ file. Arguments: the program clang-format; --fix to reformat the
files."""

import subprocess
import sys

import sources

found = sources.files(suffixes=sources.CODE)
mode = ["-i"] if "--fix" in sys.argv else ["--dry-run", "-Werror"]
complaints = []
for start in range(0, len(found), 40):
    run = subprocess.run([sys.argv[1], *mode, *map(sources.name, found[start:start + 40])], capture_output=True, text=True,
                         cwd=sources.ROOT)
    wrong = {line.split(":")[0] for line in run.stderr.splitlines() if "clang-format-violations" in line}
    complaints += sorted(f"{name}: clang-format would change it" for name in wrong)
    if run.returncode != 0 and not wrong:
        complaints.append(run.stderr)
sources.report(complaints, "format")
