"""The functions and other names of our C++ files as Universal Ctags finds them."""

import json
import subprocess

import sources


def read(ctags, paths, kinds="fp"):
    """One dict a name of these kinds, functions and prototypes by default: name, path, line, end, kind, scope,
    signature and so on."""
    run = subprocess.run([ctags, "--output-format=json", "--fields=+neKS", f"--kinds-C++={kinds}", "--language-force=C++",
                          "-L", "-", "-f", "-"], input="\n".join(map(sources.name, paths)), capture_output=True, text=True,
                         cwd=sources.ROOT, check=True)
    return [json.loads(line) for line in run.stdout.splitlines()]
