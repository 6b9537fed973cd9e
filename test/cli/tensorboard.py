"""TensorBoard reads the event files of train --tensorboard, also those of a training that was cut off and resumed. Uses
TensorBoard's own Python package, which is installed from PyPI into a virtual environment in the build folder. Without
PyPI the test is skipped, with the reason (status 77). Arguments: the program build/partita, and the build folder."""

import json
import pathlib
import sys

from checks import Program, check, finish, new_folder, python_with, read_json, run

partita = Program(sys.argv[1])
HOME = pathlib.Path(sys.argv[2]).resolve() / "tensorboard-python"
PACKAGES = ["tensorboard==2.20.0", "numpy", "protobuf", "packaging", "absl-py"]  # what reading event files needs
SMALL = ["--model", "lenet5", "--width", "0.25", "--data", "synthetic", "--samples", "64", "--batch", "16", "--dtype",
         "f64"]
# Prints all scalars of a folder as JSON: tag -> [[step, value], ...].
READER = """
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
events = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0})
events.Reload()
print(json.dumps({tag: [[e.step, e.value] for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}))
"""


def train(*arguments):
    """Trains a small network."""
    partita("train", *SMALL, *arguments)


def scalars(folder):
    """Returns what TensorBoard reads in a folder."""
    return json.loads(run(reader, "-c", READER, folder).out)


def near(pairs, values):
    """True if `pairs` are the steps from 1 on with these values, in single precision."""
    return len(pairs) == len(values) and all(step == at + 1 and abs(value - values[at]) <= 1e-6 * abs(values[at])
                                             for at, (step, value) in enumerate(pairs))


reader = python_with(HOME, "tensorboard.backend.event_processing.event_accumulator", PACKAGES)
with new_folder():
    train("--epochs", "3", "--decay", "linear", "--validate", "test", "--no-test", "--tensorboard", "events", "--json",
          "r.json")
    report, found = read_json("r.json"), scalars("events")
    check("TensorBoard reads every loss", near(found["train/loss"], report["losses"]), found)
    check("and every learning rate", near(found["train/learning_rate"], report["rates"]), found)
    check("and every validation", [step for step, _ in found["validation/loss"]] == [4, 8, 12], found)
    train("--epochs", "2", "--no-test", "--tensorboard", "resumed")
    train("--epochs", "1", "--no-test", "--save", "w.h5")  # the checkpoint of a training that was cut off later
    train("--epochs", "3", "--no-test", "--tensorboard", "resumed", "--load", "w.h5", "--json", "r.json")
    report, found = read_json("r.json"), scalars("resumed")["train/loss"]
    check("a training that was resumed is one curve", [step for step, _ in found] == list(range(1, 13)), found)
    check("it ends with the losses of the resumed training",
          near([[step - 4, value] for step, value in found[4:]], report["losses"]) and report["first_step"] == 5,
          (found, report["losses"]))
finish()
