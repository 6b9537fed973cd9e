"""Installs Partita into a fresh prefix, then builds and runs examples/outside against it, as an independent project
would. Argument: the build folder."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT, BUILD = pathlib.Path(__file__).resolve().parents[2], pathlib.Path(sys.argv[1]).resolve()


def run(*command, **options):
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=240, check=False, **options)
    print("$", *command, "\n" + result.stdout + result.stderr)
    assert result.returncode == 0, f"{command[0]} failed"
    return result.stdout


with tempfile.TemporaryDirectory() as folder:
    stage, project = pathlib.Path(folder, "stage"), pathlib.Path(folder, "project")
    run("meson", "install", "-C", BUILD, "--no-rebuild", "--destdir", stage)
    pkgconfig = next(stage.rglob("partita.pc"))
    prefix = re.search("^prefix=(.*)$", pkgconfig.read_text(), re.M)[1]
    pkgconfig.write_text(pkgconfig.read_text().replace(f"prefix={prefix}", f"prefix={stage}{prefix}"))
    shutil.copytree(ROOT / "examples/outside", project)
    run("meson", "setup", project / "build", project, "--pkg-config-path", pkgconfig.parent)
    run("ninja", "-C", project / "build")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    arguments = ["train", "--data", "spirals", "--epochs", "60", "--batch", "60", "--optimizer", "adam", "--rate", "0.01"]
    printed = [run(BUILD / "mpiexec", "-n", ranks, project / "build/spirals", *arguments, "--rule", "fc1: N@data",
                   "--grid", f"data={ranks}", env=environment) for ranks in (1, 4)]
    accuracies = [float(re.search(r"^test .*accuracy ([\d.]+)%", text, re.M)[1]) for text in printed]
    print("accuracies", accuracies)
    assert min(accuracies) > 95 and abs(accuracies[0] - accuracies[1]) < 1, accuracies
    help_text = run(project / "build/spirals", "explain", "--rule", "*: N@data", "--grid", "data=3")
    assert "sine = sine(fc1)" in help_text
