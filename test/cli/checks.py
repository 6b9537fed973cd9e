"""What the scripts of this folder share. They count checks, run programs, and know all errors of the program.

A script calls check() or a function built on it for each check, and finish() at its end, or run_parts(), which does.
run() looks at each error that the program prints. It must be in errors.txt, in the form that
normal() gives it, so that a changed wording shows up there. With PARTITA_UPDATE_ERRORS in the environment, finish()
adds new messages to the file. It removes none, since each build and machine prints only some of them."""

import contextlib
import csv
import fcntl
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import typing

ROOT = pathlib.Path(__file__).resolve().parents[2]
MACHINES, STRATEGIES = ROOT / "examples/machines", ROOT / "examples/strategies"
ERRORS = pathlib.Path(__file__).with_name("errors.txt")
UNSHARE = ["unshare", "-m"] if os.getuid() == 0 else ["unshare", "-rm"]  # a namespace of mounts
MESSAGE = re.compile(r"(partita|rank \d+): ")  # an error; it is one line if standard error is no terminal
# What stands for the values of a message, in this order.
NORMAL = [(re.compile(pattern), text) for pattern, text in (
    # The wording of libraries and of MPI, which changes with their versions, and what depends on the machine.
    (r"\[json\.exception.*?(\)?)(?=; remove|$)", r"...\1"),
    (r"(Error while parsing |cuDNN cannot describe an operation: |CUDA cannot find a card: ).*", r"\1..."),
    (r"(of this MPI|is unknown) \(.*?\)(?=, with|;)", r"\1 (...)"),
    (r"(the machine )'[^']*'", r"\1'...'"),
    # Paths, numbers with or without a unit, lists, hosts and long words.
    (r"(?<![\w.)/])/(?!dev/|proc/)[\w.+-]+(/[\w.+-]+)*", "PATH"),
    (r"(?<![\w.])[\w./+-]*\w\.(h5|json|toml|csv|svg|html|txt|gz|out|partial|times)(\.\w+)*\b", "PATH"),
    (r"(?<![\w.])(?<!\w-)((?<=[ (='\"])-)?(\d[\d.]*(e[+-]?\d+)?|inf|nan)(?!\.?\w|-)", "N"),
    (r"\bN [KMGT]iB\b", "N B"),
    (r"\bN(,?) N(,? N)*", r"N\1 N"),
    (r"\(weights N B.*?\)", "(weights N B, ...)"),
    (r"\bN cores?\b", "N cores"),
    (r"\(process N on [^\s)]+\)", "(process N on HOST)"),
    (r"(\w)\1{20,}", r"\1..."),
    # Words of which there are many, what planning proposes, and whatever differs from run to run.
    (r"(the argument \(|no verb |tensor )'[^']*'?", r"\1'...'"),
    (r"\([A-Z_\d]+=N\)", "(VARIABLE=N)"),
    (r"(the strategy that needs least is ).*?(?=: no change)", r"\1..."),
    (r"(it would fit with |the closest are ).*", r"\1..."),
    (r"layer '\w+' on rank", "layer '...' on rank"),
    (r"for (ranks? N|other ranks).*?; it goes on waiting", "for ...; it goes on waiting"))]
passed, failed = [], []  # names of checks
printed = {}  # the normal form of each message, and the command that printed it


class Ran(typing.NamedTuple):
    """How a command ended, and what it printed."""

    status: int
    out: str
    err: str

    def __str__(self):
        return f"status {self.status}\n{self.out}{self.err}"

    @property
    def text(self):
        """All that it printed."""
        return self.out + self.err

    @property
    def lines(self):
        """The lines of standard error, without empty ones and the paragraphs that Open MPI's launcher adds."""
        ours = re.sub(r"^-{60,}\n.*?^-{60,}\n", "", self.err, flags=re.M | re.S)
        return [line for line in ours.splitlines() if line.strip()]

    @property
    def errors(self):
        """The lines of standard error with which a program or one of its ranks ends."""
        return [line for line in self.err.splitlines() if line.startswith(("partita: ", "rank "))]


class Program:
    """A program, and the launcher that starts ranks of it. `defaults` are those of run() for its commands."""

    def __init__(self, path, launcher="", **defaults):
        self.path, self.launcher = os.path.abspath(path), launcher and os.path.abspath(launcher)
        self.defaults = defaults

    def command(self, *arguments, ranks=0, before=()):
        """Returns a command line: the words of `before`, the launcher if there are `ranks`, and the program."""
        launch = [self.launcher, "-n", str(ranks)] if ranks else []
        return [*before, *launch, self.path, *map(str, arguments)]

    def __call__(self, *arguments, ranks=0, before=(), **more):
        """Runs the program."""
        return run(*self.command(*arguments, ranks=ranks, before=before), **{**self.defaults, **more})

    def start(self, *arguments, ranks=0, before=(), **more):
        """Starts the program. Its output can be read while it runs."""
        settings = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, **more}
        return subprocess.Popen(self.command(*arguments, ranks=ranks, before=before), **settings)


def run(*command, status=0, timeout=60, variables=None, errors="strict", listed=True, **more):
    """Runs a command. It must end with `status`, unless that is None. `variables` are added to the environment, and
    `more` goes to subprocess.run. With `listed`, errors.txt must have the messages."""
    words = [str(word) for word in command]
    settings = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": {**os.environ, **(variables or {})},
                **more}
    done = subprocess.run(words, timeout=timeout, check=False, **settings)
    out, err = ((text or b"").decode(errors=errors) for text in (done.stdout, done.stderr))
    if listed:
        remember(err, words)
    ran = Ran(done.returncode, out, err)
    assert status in (None, ran.status), f"{words}: {ran}"
    return ran


def begin(job, word="epoch"):
    """Reads the output of a job up to a line that begins with a word, and returns it."""
    text = ""
    for line in job.stdout:
        text += line
        if line.startswith(word):
            return text
    raise AssertionError(f"no line begins with '{word}'\n{text}")


def processes(text):
    """Returns the process number of each rank from the output of train."""
    return {int(rank): int(pid) for rank, pid in re.findall(r"\b(\d+):(\d+)", re.search("^ranks.*", text, re.M)[0])}


def end_of(job, begun="", timeout=30):
    """Waits for the end of a job, whose output may have begun."""
    out, err = job.communicate(timeout=timeout)
    ran = Ran(job.returncode, begun + (out or ""), err or "")
    remember(ran.text, job.args)
    return ran


def read(path):
    """Returns the text of a file."""
    return pathlib.Path(path).read_text(encoding="utf-8")


def read_json(path):
    """Returns what a JSON file holds."""
    return json.loads(read(path))


def read_csv(path):
    """Returns the rows of a CSV file, each as a dictionary."""
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def write(path, text):
    """Writes a text into a file, and returns its path."""
    pathlib.Path(path).write_text(text, encoding="utf-8")
    return path


def files():
    """Returns the paths of all files and folders below the working folder."""
    return sorted(map(str, pathlib.Path().rglob("*")))


@contextlib.contextmanager
def new_folder():
    """Gives a block a working folder of its own."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        yield pathlib.Path(folder)


def check(name, holds, shown=""):
    """Counts a check, and shows something if it does not hold."""
    print(f"{'ok  ' if holds else 'FAIL'} {name}", flush=True)
    (passed if holds else failed).append(name)
    if not holds:
        print(shown, flush=True)


def refused(name, ran, *patterns, status=2, copies=1):
    """Checks that a command ended with `status`, and printed one line on standard error, which has all patterns. If
    several processes print it, there are `copies`."""
    line = ran.lines[0] if ran.lines else ""
    missing = [pattern for pattern in patterns if not re.search(pattern, line)]
    check(f"{name}: {line}", ran.status == status and ran.lines == [line] * copies and not missing,
          f"missing {missing}\n{ran}")


def refuses(name, call, *patterns, prepare=None, copies=1):
    """Checks that a command is refused in a new folder, which `prepare` fills, and writes nothing there."""
    with new_folder():
        if prepare:
            prepare()
        before = files()
        refused(name, call(), *patterns, copies=copies)
        check(f"{name}: nothing is written", files() == before, sorted(set(files()) - set(before)))


def succeeded(name, ran, *parts):
    """Checks that a command succeeded, printed nothing on standard error, and printed all parts."""
    check(name, ran.status == 0 and ran.err == "" and all(part in ran.out for part in parts), ran)


def ended(name, ran, status, *patterns):
    """Checks the exit status, that a program which failed printed one error and another none, and that the error, or
    else the output, has all patterns."""
    text = ran.errors[0] if ran.errors else ran.text
    missing = [pattern for pattern in patterns if not re.search(pattern, text)]
    check(name, ran.status == status and len(ran.errors) == (status != 0) and not missing, f"missing {missing}\n{ran}")


def normal(message):
    """Returns a message without what differs between runs, machines and orders of tests."""
    for pattern, text in NORMAL:
        message = pattern.sub(text, message)
    return message


def remember(text, command):
    """Remembers the messages among the lines that a command printed."""
    for line in text.split("\n"):
        if MESSAGE.match(line):
            printed.setdefault(normal(line), command)


def check_messages():
    """Checks that all messages are in errors.txt, or adds them."""
    if "PARTITA_UPDATE_ERRORS" not in os.environ:
        for message in sorted(printed.keys() - set(read(ERRORS).split("\n"))):
            check(f"{ERRORS.name} has the message: {message}", False,
                  f"PARTITA_UPDATE_ERRORS=1 adds it; it was printed by {printed[message]}")
        return
    with open(ERRORS, "r+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # other scripts may be adding theirs
        messages = {*file.read().split("\n"), *printed} - {""}
        file.seek(0)
        file.writelines(f"{message}\n" for message in sorted(messages))


def finish():
    """Says how many checks ran, and ends the script."""
    check_messages()
    print(f"{len(passed) + len(failed)} checks, {len(failed)} failed", *failed, sep="\n     ")
    sys.exit(1 if failed else 0)


def skip(reason):
    """Ends a script that cannot run here, with the exit status that Meson takes for a skipped test."""
    print("skipped:", reason)
    sys.exit(77)


def python_with(home, module, packages):
    """Returns the Python of a virtual environment in which a module can be imported. If it is not there, makes it and
    installs packages from PyPI into it; without PyPI, skips the script."""
    python = home / "bin" / "python"
    if python.exists() and run(python, "-c", f"import {module}", status=None).status == 0:
        return python
    for command in ([sys.executable, "-m", "venv", "--clear", home],
                    [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "1",
                     "--timeout", "15", "--no-deps", *packages]):
        ran = run(*command, status=None, timeout=200)
        if ran.status != 0:
            reason = (ran.err or ran.out).strip().splitlines()[-1:]
            skip(f"{packages[0]} cannot be installed: {' '.join(reason)}")
    return python


def run_parts(*parts, apart=False):
    """Calls the parts of a script in a new folder, or each in one of its own, says how long each took, and ends the
    script."""
    with new_folder():
        for part in parts:
            began = time.monotonic()
            with new_folder() if apart else contextlib.nullcontext():
                part()
            print(f"     {part.__name__}: {time.monotonic() - began:.1f} s", flush=True)
    finish()
