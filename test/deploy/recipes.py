"""The recipes in examples/deploy agree with the project: the Dockerfile installs the packages of test/setup.sh, and the
Spack recipe, which runs here against a model of Spack's directives, has the dependencies, options and version of
meson.build. Spack itself is in no package registry."""

import re
import subprocess
import sys
import types

import dockerfile
from dockerfile import ROOT

MESON = (ROOT / "meson.build").read_text()
OPTIONS = set(re.findall(r"^option\('(\w+)'", (ROOT / "meson_options.txt").read_text(), re.M))
# The names in meson.build, and those of Spack's packages.
DEPENDENCIES = {"mpi": "mpi", "boost_program_options": "boost", "eigen3": "eigen", "fmt": "fmt", "hdf5_names": "hdf5",
                "nlohmann_json": "nlohmann-json", "dnnl": "onednn", "tomlplusplus": "tomlplusplus", "zlib": "zlib-api",
                "cudart_static": "cuda", "cudnn_graph.h": "cudnn", "nccl.h": "nccl"}
# A spec: a name or a compiler, versions, variants and settings, as in "boost@1.70:+program_options cxxstd=20".
SPEC = re.compile(r"%?[a-z][\w-]*|(%?[a-z][\w-]*)?(@[\d.]*:?[\d.]*)?([+~]\w+)*( \w+=[\w.]+)*")
BUILD_ONLY = {"c", "cxx", "meson", "ninja", "pkgconfig", "python"}


def meson_options(words):
    """The project's own options among the words of a command."""
    return {word[2:].partition("=")[0] for word in words if word.startswith("-D")}


def check_dockerfile():
    """Compares the Dockerfile with test/setup.sh and meson_options.txt."""
    steps = dockerfile.steps()
    assert steps[0] == ("FROM", "debian:12"), steps[0]
    install = next(argument for name, argument in steps if name == "RUN" and "apt-get install" in argument)
    packages = re.search(r"--no-install-recommends (.*?) &&", install)[1].split()
    script = "cd ..; cd - >/dev/null; . test/setup.sh; echo $run_packages"
    wanted = subprocess.run(["bash", "-c", script], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert packages == wanted, f"the Dockerfile installs {packages}, test/setup.sh names {wanted}"
    build = next(argument for name, argument in steps if name == "RUN" and "meson setup" in argument)
    assert meson_options(build.split()) <= OPTIONS, build


class Spec:
    """What a recipe asks the spec that it builds."""

    def __init__(self, *holds):
        self.holds = holds

    def satisfies(self, text):
        """Returns whether the spec is of a kind."""
        return text in self.holds


def run_recipe():
    """Runs the recipe. Returns its class, and the calls of each directive: name -> [(arguments, settings)]."""
    calls = {}

    def directive(name, settings):
        """Returns a function that records the calls of a directive."""
        def call(*arguments, **given):
            """Records a call."""
            assert set(given) <= settings, f"{name} has no {set(given) - settings}"
            calls.setdefault(name, []).append((arguments, given))
        return call

    package = types.ModuleType("spack.package")
    package.MesonPackage = type("MesonPackage", (), {})
    for name, settings in {"version": {"sha256", "branch", "tag"},
                           "variant": {"default", "description", "values", "when"}, "depends_on": {"type", "when"},
                           "conflicts": {"msg", "when"}, "license": {"checked_by"}}.items():
        setattr(package, name, directive(name, settings))
    sys.modules.update({"spack": types.ModuleType("spack"), "spack.package": package})
    path = ROOT / "examples/deploy/spack/packages/partita/package.py"
    scope = {}
    exec(compile(path.read_text(), str(path), "exec"), scope)  # pylint: disable=exec-used
    return scope["Partita"], calls


def check_spack():
    """Compares the Spack recipe with meson.build and meson_options.txt."""
    recipe, calls = run_recipe()
    version = re.search(r"^  version: '([\d.]+)'", MESON, re.M)[1]
    assert calls["version"] == [((version,), {})], calls["version"]
    assert calls["license"] == [((re.search(r"^  license: '(.*)'", MESON, re.M)[1],), {})], calls["license"]
    specs = [arguments[0] for name in ("depends_on", "conflicts") for arguments, _ in calls[name]]
    for spec in specs:
        assert SPEC.fullmatch(spec), f"'{spec}' is not a spec"
    names = {re.match(r"[\w-]+", arguments[0])[0] for arguments, _ in calls["depends_on"]}
    for theirs, ours in DEPENDENCIES.items():
        assert f"{theirs}" in MESON, f"meson.build does not name {theirs}"
        assert ours in names, f"the recipe does not depend on {ours}"
    named = set(re.findall(r"(?:dependency|find_library)\('([\w-]+)'", MESON))
    known = set(DEPENDENCIES) | {"mpich", "ompi", "boost", "threads", "gomp", "dl"}
    assert named <= known, f"meson.build needs {named - known}; add it to the recipe and to this test"
    assert names == set(DEPENDENCIES.values()) | BUILD_ONLY, names
    variants = [arguments[0] for arguments, _ in calls["variant"]]
    for holds in ([], ["+" + name for name in variants]):
        builder = recipe()
        builder.spec = Spec(*holds)
        words = builder.meson_args()
        assert meson_options(words) == {"tests", *variants} <= OPTIONS, words


check_dockerfile()
check_spack()
print("the recipes agree with the project")
