"""A function stands in the file of its header's name: what a/b.hpp declares is defined in a/b.cpp or, for a public
header, in a folder of a; or in a/b_*.cpp or a/b/*.cpp where it takes several files. Argument: ctags."""

import collections
import re
import sys

import includes
import sources
import tags

# Headers that list what several files define: operators, kernels, models, verbs.
LISTS = {
    "backend/backend.hpp": r"backend/cpu/(onednn|make_backend)\.cpp",
    "cli/main.hpp": r"cli/program/main\.cpp",
    "cli/options/options.hpp": r"cli/verbs/(\w+)/\1\.cpp",
    "model/builtin/builtin.hpp": r"model/builtin/\w+\.cpp",
    "model/operators.hpp": r"model/\w+\.cpp",
    "strategies/schedule/generators/generate.hpp": r"strategies/schedule/generators/\w+\.cpp",
    "train/data/dataset.hpp": r"train/data/\w+\.cpp",
    "train/kernels/kernels.hpp": r"train/kernels/(\w+_kernels?|custom_layer)\.cpp",
}


def qualified(tag):
    """The name with its namespaces and classes."""
    return f"{tag['scope']}::{tag['name']}" if tag.get("scope") else tag["name"]


def parameters(tag):
    """How many parameters a function takes, which tells most overloads apart."""
    text = tag.get("signature", "()")
    while text != (shorter := re.sub(r"<[^<>]*>|\{[^{}]*\}|(?<=.)\([^()]*\)", "", text)):
        text = shorter
    inside = text.strip("()")
    return inside.count(",") + 1 if inside.strip() not in ("", "void") else 0


def stands_well(definition, header, public):
    """Whether a source file may define what this header declares. Both are places, such as "comm/mpi/mpi.cpp"."""
    folder, _, name = header.removesuffix(".hpp").rpartition("/")
    stem = rf"{folder}/(?:\w+/)*{name}" if public else rf"{folder}/{name}"
    return re.fullmatch(rf"{stem}(?:[_/]\w+)?\.cpp|{LISTS.get(header, stem + '.cpp')}", definition) is not None


def check(ctags):
    headers = collections.defaultdict(set)
    definitions = []
    for tag in tags.read(ctags, sources.files(includes.FOLDERS, sources.CODE)):
        if "__anon" in tag.get("scope", ""):
            continue
        if tag["path"].endswith(".hpp"):
            public = tag["path"].startswith("include/")
            headers[qualified(tag), parameters(tag)].add((includes.place(tag["path"]), public))
        elif tag["kind"] == "function":
            definitions.append(tag)
    complaints = []
    for tag in definitions:
        declared = headers[qualified(tag), parameters(tag)]
        place = includes.place(tag["path"])
        if declared and not any(stands_well(place, header, public) for header, public in declared):
            names = ", ".join(sorted(header for header, _ in declared))
            complaints.append(f"{tag['path']}:{tag['line']}: {qualified(tag)} is declared in {names}")
    return complaints


sources.report(check(sys.argv[1]), "places")
