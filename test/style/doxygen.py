"""Makes the documentation from the public headers, README.md and docs/, and fails on Doxygen's warnings. Every class
must have a description; a member with a clear name needs no comment. Arguments: doxygen, and the folder for the pages
unless only the warnings matter."""

import pathlib
import re
import subprocess
import sys
import tempfile

import sources


def settings(folder):
    """The project's Doxyfile with the pages in this folder, and without input that is not there."""
    text = (sources.ROOT / "include/Doxyfile").read_text()
    for name in ("INPUT", "IMAGE_PATH"):
        paths = re.search(rf"^{name}\s*=(.*)$", text, re.MULTILINE)[1].split()
        text += f"\n{name}=" + " ".join(path for path in paths if (sources.ROOT / path).exists())
    output = pathlib.Path(folder).resolve()
    return text + (f"\nOUTPUT_DIRECTORY={output.parent}\nHTML_OUTPUT={output.name}\n"
                   "EXTRACT_ALL=NO\nWARN_IF_UNDOCUMENTED=YES\nWARN_AS_ERROR=NO\n")


def check(doxygen, folder):
    run = subprocess.run([doxygen, "-"], input=settings(folder), capture_output=True, text=True, cwd=sources.ROOT)
    warnings = [line for line in run.stderr.splitlines() if ": warning: Member " not in line]
    return warnings or ([] if run.returncode == 0 else [f"doxygen ended with status {run.returncode}"])


with tempfile.TemporaryDirectory() as temporary:
    sources.report(check(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else temporary + "/pages"), "documentation")
