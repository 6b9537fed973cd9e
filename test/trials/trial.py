"""What the cases of the standing trial share. A case is a function with one sentence that says what was reported, with
its source, in our words. It asserts the right value, which comes from elsewhere: by hand, from the definition, or from
another way to compute it."""

import dataclasses
import json
import os
import pathlib
import subprocess
import typing


@dataclasses.dataclass
class Programs:
    launcher: str
    partita: str
    models: str   # models.cpp
    shift: str    # shift.cpp
    volumes: str  # volumes.cpp


@dataclasses.dataclass
class Case:
    name: str
    reported: str
    run: typing.Callable


CASES: list[Case] = []


def case(run):
    """Adds a function to the cases. It gets a Shell."""
    CASES.append(Case(run.__name__.replace("_", " "), run.__doc__, run))
    return run


@dataclasses.dataclass
class Ran:
    status: int
    out: str
    err: str

    @property
    def text(self):
        return self.out + self.err


class Shell:
    """Runs commands of one case in a folder of its own."""

    def __init__(self, programs: Programs, folder: pathlib.Path):
        self.programs, self.folder = programs, folder

    def run(self, *words, status=0, timeout=120, **variables):
        """Runs a command. Fails if it does not end with `status`, unless this is None."""
        ran = subprocess.run([str(word) for word in words], cwd=self.folder, capture_output=True, text=True,
                             errors="replace", timeout=timeout, check=False, env={**os.environ, **variables})
        assert status in (None, ran.returncode), f"status {ran.returncode} of {words}\n{ran.stdout}{ran.stderr}"
        return Ran(ran.returncode, ran.stdout, ran.stderr)

    def partita(self, *words, **more):
        return self.run(self.programs.partita, *words, **more)

    def on_ranks(self, ranks, *words, **more):
        """The program on MPI ranks."""
        return self.run(self.programs.launcher, "-n", ranks, self.programs.partita, *words, **more)

    def model(self, name, *words, **more):
        """The program of models.cpp."""
        return self.run(self.programs.models, *words, TRIAL=name, **more)

    def file(self, name, text):
        path = self.folder / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    def json(self, name):
        return json.loads((self.folder / name).read_text(encoding="utf-8"))

    def preload(self, name, source):
        """Compiles a library that takes the place of functions of libc. Returns its path, for LD_PRELOAD."""
        self.file(f"{name}.c", source)
        self.run("gcc", "-shared", "-fPIC", f"{name}.c", "-o", f"{name}.so")
        return str(self.folder / f"{name}.so")


def tests(text):
    """The numbers of the lines about a test set: loss and, perhaps, accuracy."""
    return [line.split("loss")[1].split()[0::2][:2] for line in text.splitlines() if line.startswith("test")]
