"""Installs Partita into a folder of its own, then builds examples/outside against it as independent projects would:
with a compiler and pkg-config, with CMake in two ways, and with Meson. Runs all of them, and uses the other installed
files. Argument: the build folder."""

import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT, BUILD = pathlib.Path(__file__).resolve().parents[2], pathlib.Path(sys.argv[1]).resolve()
WORK = BUILD / "outside"
STAGE, SOURCE = WORK / "stage", WORK / "source"
# CMake without the installed configuration file.
CMAKE_BY_PKG_CONFIG = """cmake_minimum_required(VERSION 3.20)
project(spirals CXX)
find_package(PkgConfig REQUIRED)
pkg_check_modules(partita REQUIRED IMPORTED_TARGET partita)
add_executable(spirals spirals.cpp)
target_link_libraries(spirals PRIVATE PkgConfig::partita)
"""


def run(*command, **options):
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=240, check=False, **options)
    print("$", *command, "\n" + result.stdout + result.stderr, flush=True)
    assert result.returncode == 0, f"{command[0]} failed"
    return result.stdout


def project(name):
    folder = WORK / name
    shutil.copytree(SOURCE, folder)
    return folder


def build_alone(environment):
    folder = project("alone")
    run("sh", "-c", "g++ spirals.cpp $(pkg-config --cflags --libs partita) -o spirals", cwd=folder, env=environment)
    return folder / "spirals"


def build_cmake(name, environment, *options, text=None):
    folder = project(name)
    if text:
        (folder / "CMakeLists.txt").write_text(text)
    run("cmake", "-G", "Ninja", "-S", folder, "-B", folder / "build", *options, env=environment)
    run("cmake", "--build", folder / "build", env=environment)
    return folder / "build/spirals"


def build_meson(environment):
    folder = project("meson")
    run("meson", "setup", folder / "build", folder, env=environment)
    run("ninja", "-C", folder / "build")
    return folder / "build/spirals"


def build_all(prefix, libraries):
    """Builds the project in each way, two at a time."""
    plain = {key: value for key, value in os.environ.items() if key not in ("CXX", "CXXFLAGS", "LDFLAGS")}
    with_path = {**plain, "PKG_CONFIG_PATH": str(libraries / "pkgconfig")}
    with concurrent.futures.ThreadPoolExecutor(2) as workers:
        jobs = {"meson": workers.submit(build_meson, with_path),
                "g++ with pkg-config": workers.submit(build_alone, with_path),
                "CMake": workers.submit(build_cmake, "cmake", plain, f"-DCMAKE_PREFIX_PATH={prefix}"),
                "CMake with pkg-config": workers.submit(build_cmake, "cmake-pkg-config", with_path, text=CMAKE_BY_PKG_CONFIG)}
        return {name: job.result() for name, job in jobs.items()}


def train(launcher, program):
    """Trains on 1 rank and on 4, to nearly the same accuracy."""
    arguments = ["train", "--data", "spirals", "--epochs", "60", "--batch", "60", "--optimizer", "adam", "--rate", "0.01"]
    printed = [run(launcher, "-n", ranks, program, *arguments, "--rule", "fc1: N@data", "--grid", f"data={ranks}",
                   env={**os.environ, "OMP_NUM_THREADS": "1"}) for ranks in (1, 4)]
    accuracies = [float(re.search(r"^test .*accuracy ([\d.]+)%", text, re.M)[1]) for text in printed]
    print("accuracies", accuracies)
    assert min(accuracies) > 95 and abs(accuracies[0] - accuracies[1]) < 1, accuracies


def check_files(prefix):
    """What the installation has besides the library: the program finds no file by itself, so each is named."""
    share = prefix / "share/partita"
    text = run(prefix / "bin/partita", "explain", "--model", "fashion-cnn", "--strategy", share / "strategies/fashion-cnn-hybrid.toml",
               "--machine", share / "machines/two-cores.toml")
    assert "conv1" in text
    documents = prefix / "share/doc/partita"
    for name in ("README.md", "LICENSE", "docs/index.md", "docs/decisions/index.md", "docs/images/report.png", "examples/outside/spirals.cpp",
                 "examples/outside/CMakeLists.txt"):
        assert (documents / name).is_file(), name
    for folder in ("strategies", "machines"):
        here = sorted(path.name for path in (share / folder).iterdir())
        assert here == sorted(path.name for path in (ROOT / "examples" / folder).iterdir()), here


shutil.rmtree(WORK, ignore_errors=True)
run("meson", "install", "-C", BUILD, "--no-rebuild", "--quiet", "--destdir", STAGE)
libraries = next(STAGE.rglob("partita.pc")).parents[1]
prefix = next(STAGE.rglob("bin/partita")).parents[1]
assert (libraries / "cmake/partita/partita-config.cmake").is_file()
assert "isystem" not in (libraries / "pkgconfig/partita.pc").read_text()
shutil.copytree(prefix / "share/doc/partita/examples/outside", SOURCE)
programs = build_all(prefix, libraries)
for name, program in programs.items():
    assert "sine = sine(fc1)" in run(program, "explain", "--rule", "*: N@data", "--grid", "data=3"), name
train(prefix / "bin/partita-mpiexec", programs["meson"])
check_files(prefix)
shutil.rmtree(WORK)
