"""Checks that Doxygen reads the public headers without warnings and that every class in them has a comment. Argument:
the program doxygen."""

import subprocess
import sys
import tempfile

import sources


def check(doxygen):
    """Returns Doxygen's warnings. Those about members without comments are left out, since a good name is enough."""
    settings = (sources.ROOT / "include/Doxyfile").read_text()
    with tempfile.TemporaryDirectory() as folder:
        settings += f"\nOUTPUT_DIRECTORY={folder}\nEXTRACT_ALL=NO\nWARN_IF_UNDOCUMENTED=YES\nWARN_AS_ERROR=NO\n"
        run = subprocess.run([doxygen, "-"], input=settings, capture_output=True, text=True, cwd=sources.ROOT)
    warnings = [line for line in run.stderr.splitlines() if ": warning: Member " not in line]
    return warnings or ([] if run.returncode == 0 else [f"doxygen ended with status {run.returncode}"])


sources.report(check(sys.argv[1]), "documentation")
