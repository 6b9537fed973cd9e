"""TensorBoard reads the event files of train --tensorboard, also those of a training that was cut off and resumed. Uses
TensorBoard's own Python package, which is installed from PyPI into a virtual environment in the build folder. Without
PyPI the test is skipped, with the reason (status 77). Arguments: the program build/partita, and the build folder."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

PROGRAM = os.path.abspath(sys.argv[1])
HOME = pathlib.Path(sys.argv[2]).resolve() / "tensorboard-python"
PACKAGES = ["tensorboard==2.20.0", "numpy", "protobuf", "packaging", "absl-py"]  # what reading event files needs
SMALL = ["--model", "lenet5", "--width", "0.25", "--data", "synthetic", "--samples", "64", "--batch", "16", "--dtype", "f64"]
# Prints all scalars of a folder as JSON: tag -> [[step, value], ...].
READER = """
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0})
events.Reload()
print(json.dumps({tag: [[e.step, e.value] for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}))
"""


def check(name, holds, shown=""):
    print(f"{'ok  ' if holds else 'FAIL'} {name}", flush=True)
    assert holds, shown


def python():
    """The Python of the virtual environment, which is made if it is not there."""
    found = HOME / "bin" / "python"
    ready = [found, "-c", "import tensorboard.backend.event_processing.event_accumulator"]
    if found.exists() and subprocess.run(ready, capture_output=True, check=False).returncode == 0:
        return found
    for command in ([sys.executable, "-m", "venv", "--clear", HOME],
                    [found, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--retries", "1", "--timeout", "15",
                     "--no-deps", *PACKAGES]):
        result = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
        if result.returncode != 0:
            reason = (result.stderr or result.stdout).strip().splitlines()[-1:]
            print(f"skipped: TensorBoard's Python package cannot be installed: {' '.join(reason)}")
            sys.exit(77)
    return found


def train(*arguments):
    result = subprocess.run([PROGRAM, "train", *SMALL, *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def scalars(reader, folder):
    result = subprocess.run([reader, "-c", READER, folder], capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def near(pairs, values):
    """True if `pairs` are the steps from 1 on with these values, in single precision."""
    return len(pairs) == len(values) and all(step == at + 1 and abs(value - values[at]) <= 1e-6 * abs(values[at])
                                             for at, (step, value) in enumerate(pairs))


def main():
    reader = python()
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        events, file, saved = path / "events", path / "r.json", path / "w.h5"
        train("--epochs", "3", "--decay", "linear", "--validate", "test", "--no-test", "--tensorboard", events, "--json", file)
        report, found = json.loads(file.read_text(encoding="utf-8")), scalars(reader, events)
        check("TensorBoard reads every loss", near(found["train/loss"], report["losses"]), found)
        check("and every learning rate", near(found["train/learning_rate"], report["rates"]), found)
        check("and every validation", [step for step, _ in found["validation/loss"]] == [4, 8, 12], found)
        events = path / "resumed"
        train("--epochs", "2", "--no-test", "--tensorboard", events)
        train("--epochs", "1", "--no-test", "--save", saved)  # the checkpoint of a training that was cut off later
        train("--epochs", "3", "--no-test", "--tensorboard", events, "--load", saved, "--json", file)
        report, found = json.loads(file.read_text(encoding="utf-8")), scalars(reader, events)["train/loss"]
        check("a training that was cut off and resumed is one curve", [step for step, _ in found] == list(range(1, 13)), found)
        check("it ends with the losses of the resumed training",
              near([[step - 4, value] for step, value in found[4:]], report["losses"]) and report["first_step"] == 5, (found, report["losses"]))


main()
