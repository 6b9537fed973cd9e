"""Checks that every header compiles on its own and has #pragma once. Argument: a configured build folder, whose
compiler and include folders are used."""

import concurrent.futures
import json
import os
import pathlib
import shlex
import subprocess
import sys

import sources


def compiler(build):
    """The command of the compiler, with all include folders and definitions that any source of the build has."""
    commands = json.loads((build / "compile_commands.json").read_text())
    words = [word for command in commands for word in shlex.split(command["command"])]
    call = [word for word in shlex.split(commands[0]["command"])[:2] if os.path.basename(word) != "ccache"][:1]
    flags = []
    for word in words:
        if word.startswith(("-I", "-isystem", "-D", "-std=")) and not word.endswith(".p") and word not in flags:
            flags.append(word)
    return [*call, *flags, f"-I{sources.ROOT / 'test'}", "-fsyntax-only", "-x", "c++"]


def complaint(call, build, header):
    """Returns what is wrong with a header, or None."""
    if "#pragma once" not in header.read_text():
        return f"{sources.name(header)}: #pragma once is missing"
    code = f'#include "{header}"\n'
    run = subprocess.run([*call, "-"], input=code, capture_output=True, text=True, cwd=build)
    return None if run.returncode == 0 else f"{sources.name(header)}: does not compile on its own\n{run.stderr}"


def check(build):
    call = compiler(build)
    headers = [path for path in sources.files(suffixes={".hpp"}) if path.name != "pch.hpp"]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        found = pool.map(lambda header: complaint(call, build, header), headers)
        return [wrong for wrong in found if wrong]


sources.report(check(pathlib.Path(sys.argv[1])), "headers")
