"""Checks that every header has #pragma once and compiles on its own. Those outside of include/, which users do not
include, are compiled only with PARTITA_LONG, since all together take minutes. Argument: a configured build folder,
whose compiler and include folders are used."""

import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys

import compiler
import sources


def first_include(header):
    """The header of the project that a header includes before anything else, or None. If one compiles on its own, so
    does the other."""
    first = re.search(r'^#include ["<](.*)[">]$', header.read_text(), re.MULTILINE)
    places = [folder / first[1] for folder in (sources.ROOT / "include", sources.ROOT)] if first else []
    return next((place for place in places if place.exists()), None)


def complaint(call, build, header):
    """Returns what is wrong with a header, or None."""
    code = f'#include "{header}"\n'
    run = subprocess.run([*call, "-"], input=code, capture_output=True, text=True, cwd=build)
    return None if run.returncode == 0 else f"{sources.name(header)}: does not compile on its own\n{run.stderr}"


def check(build):
    call = [*compiler.call(build), f"-I{sources.ROOT / 'test'}", "-x", "c++"]
    headers = [path for path in sources.files(suffixes={".hpp"}) if path.name != "pch.hpp"]
    unguarded = [f"{sources.name(header)}: #pragma once is missing" for header in headers
                 if "#pragma once" not in header.read_text()]
    if "PARTITA_LONG" not in os.environ:
        headers = [header for header in headers if sources.name(header).startswith("include/")]
    included = {first_include(header) for header in headers}
    compiled = [header for header in headers if header not in included]
    print(f"{len(compiled)} headers are compiled, and {len(headers) - len(compiled)} are the first that these include")
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        found = pool.map(lambda header: complaint(call, build, header), compiled)
        return unguarded + [wrong for wrong in found if wrong]


sources.report(check(pathlib.Path(sys.argv[1])), "headers")
