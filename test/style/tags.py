"""The functions of our C++ files as Universal Ctags finds them."""

import json
import subprocess

import sources


def read(ctags, paths):
    """One dict a function or prototype: name, path, line, end, kind, scope, signature and so on."""
    run = subprocess.run([ctags, "--output-format=json", "--fields=+neKS", "--kinds-C++=fp", "--language-force=C++", "-L", "-",
                          "-f", "-"], input="\n".join(map(sources.name, paths)), capture_output=True, text=True,
                         cwd=sources.ROOT, check=True)
    return [json.loads(line) for line in run.stdout.splitlines()]
