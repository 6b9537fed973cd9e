"""Carries out the worked example of docs/extending.md on a copy of the tree: its diffs apply, and the changed files
compile. With --long (PARTITA_LONG) it also builds and runs the tests that the page names. Argument: a configured build
folder, whose compiler is used."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import compiler
import sources

PAGE = sources.ROOT / "docs/extending.md"
COMPILED = ["src/base/activation.cpp", "src/model/model.cpp", "src/backend/cpu/reference_activation.cpp"]
OPTIONS = ["-Dmpi=disabled", "-Dhdf5=disabled", "-Donednn=disabled", "-Dcuda=disabled", "-Dunity=on", "-Dunity_size=12"]


def run(command, folder, **options):
    """Runs a command. If it fails, prints its output and ends the test."""
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
                          **options)
    if done.returncode != 0:
        print(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout[-3000:]}")
        sys.exit(1)
    return done.stdout


def copy_tree(folder):
    """Copies what a build needs."""
    for name in ["include", "src", "distconv", "layouts", "strategies", "examples", "test", "bench", "docs"]:
        shutil.copytree(sources.ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "results"))
    for name in ["meson.build", "meson_options.txt", "LICENSE", "README.md"]:
        shutil.copy(sources.ROOT / name, folder / name)


def apply_diffs(folder):
    """Applies the page's diffs in their order, and returns the files that they change."""
    diffs = "".join(re.findall(r"^```diff\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL))
    run(["git", "apply", "-"], folder, input=diffs)
    return re.findall(r"^\+\+\+ b/(.*)$", diffs, re.MULTILINE)


def main():
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        copy_tree(folder)
        files = apply_diffs(folder)
        if len(files) != 4:
            sys.exit(f"an activation changes {len(files)} files, not 4 as the page says: {files}")
        call = compiler.call(pathlib.Path(sys.argv[1]), ("-isystem", "-D", "-std="))
        for source in COMPILED:
            run([*call, "-I.", "-Iinclude", source], folder)
        if "PARTITA_LONG" in os.environ:
            run(["meson", "setup", "build", "--buildtype", "release", *OPTIONS], folder)
            run(["ninja", "-C", "build", "test/unit_backend", "test/unit_model"], folder)
            done = run(["build/test/unit_backend", "--gtest_filter=Activation.*"], folder)
            print(done)
            if "[  PASSED  ]" not in done:
                sys.exit("no test of activations ran")
    print(f"extending: the example changes {', '.join(files)}")


main()
