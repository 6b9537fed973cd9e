"""The public headers make documentation without warnings, and every class in them says what it is.
Argument: doxygen."""

import subprocess
import sys
import tempfile

import sources


def check(doxygen):
    """Members need no comment where their names say all; Doxygen's warnings about those are left out."""
    settings = (sources.ROOT / "include/Doxyfile").read_text()
    with tempfile.TemporaryDirectory() as folder:
        settings += f"\nOUTPUT_DIRECTORY={folder}\nEXTRACT_ALL=NO\nWARN_IF_UNDOCUMENTED=YES\nWARN_AS_ERROR=NO\n"
        run = subprocess.run([doxygen, "-"], input=settings, capture_output=True, text=True, cwd=sources.ROOT)
    warnings = [line for line in run.stderr.splitlines() if ": warning: Member " not in line]
    return warnings or ([] if run.returncode == 0 else [f"doxygen ended with status {run.returncode}"])


sources.report(check(sys.argv[1]), "documentation")
