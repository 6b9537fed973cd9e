"""Tests what train shows, records and validates while it runs: the log, event files and results of a killed run,
validation on samples that are never trained on, the best checkpoint, early stopping, and the line of progress on a
terminal. Arguments: the launcher build/mpiexec and the program build/partita."""

import fcntl
import json
import os
import pathlib
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time

from checks import Program, check, read, read_csv, read_json, refused, run_parts, write

partita = Program(sys.argv[2], sys.argv[1])
SMALL = ["--model", "lenet5", "--width", "0.25", "--data", "synthetic", "--samples", "60", "--batch", "16", "--dtype",
         "f64"]


def small(samples, batch):
    """The options of SMALL, with other numbers of samples."""
    return [{"60": str(samples), "16": str(batch)}.get(word, word) for word in SMALL]


def train(ranks, *arguments):
    """Trains a small network on ranks, and returns the output."""
    return partita("train", *SMALL, *arguments, ranks=ranks).out


# An independent reader of event files: frames with a masked CRC-32C, and the few fields of Event and Summary.
def crc32c(data):
    """Returns the checksum of bytes."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    """Returns the checksum as event files store it."""
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def fields(message):
    """The fields of a message: (number, value)."""
    at = 0

    def varint():
        """Reads a number of seven bits a byte."""
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
            continue
        size = {1: 8, 5: 4}.get(key & 7) or varint()
        yield key >> 3, message[at:at + size]
        at += size


def scalars(folder):
    """The numbers in all event files of a folder: tag -> {step: value}."""
    found = {}
    for path in sorted(pathlib.Path(folder).iterdir()):
        data = path.read_bytes()
        at = 0
        while at < len(data):
            (length,) = struct.unpack_from("<Q", data, at)
            event = data[at + 12:at + 12 + length]
            assert struct.unpack_from("<I", data, at + 8)[0] == masked(data[at:at + 8]), "checksum of a length"
            assert struct.unpack_from("<I", data, at + 12 + length)[0] == masked(event), "checksum of an event"
            at += 16 + length
            parts = dict(fields(event))
            for _, value in fields(parts.get(5, b"")):
                one = dict(fields(value))
                found.setdefault(one[1].decode(), {})[parts[2]] = struct.unpack("<f", one[2])[0]
    return found


def recorded():
    """The log, the event files and the results tell the same."""
    log, events, file = "log.csv", "events", "r.json"
    train(2, "--epochs", "2", "--log", log, "--tensorboard", events, "--json", file, "--warm-up", "3", "--decay",
          "cosine", "--validate", "0.2")
    rows, report = read_csv(log), read_json(file)
    check("48 of 60 samples are trained on, 3 steps an epoch", [(row["epoch"], row["step"]) for row in rows] ==
          [(str(1 + i // 3), str(i + 1)) for i in range(6)] and report["epochs"][0]["samples"] == 48 and
          report["validation"][0]["samples"] == 12, rows)
    for column, key in (("loss", "losses"), ("accuracy", "accuracies"), ("learning_rate", "rates"),
                        ("seconds", "step_seconds")):
        check(f"{column} in the log and in the JSON", [float(row[column]) for row in rows] == report[key], rows)
    check("the rate rises and falls", report["rates"][:3] == sorted(report["rates"][:3]) and
          abs(report["rates"][2] - 0.05) < 1e-12 and report["rates"][5] < 0.03, report["rates"])
    check("images/s", all(abs(float(row["images_per_second"]) * float(row["seconds"]) / 16 - 1) < 1e-9 for row in rows))
    found = scalars(events)
    check("an event per step", all(abs(found["train/loss"][i + 1] / loss - 1) < 1e-6
                                   for i, loss in enumerate(report["losses"])))
    check("an event per validation", list(found["validation/loss"]) == [3, 6] and
          list(found["validation/top5"]) == [3, 6] and set(found) >= {"train/accuracy", "train/learning_rate",
                                                                      "train/images_per_second", "validation/accuracy"},
          found)
    check("the settings of the run", report["backend"] in ("reference", "onednn") and report["finished"] and
          report["optimizer"]["decay"] == "cosine" and report["optimizer"]["warm_up"] == 3 and
          report["first_step"] == 1 and re.fullmatch(r"\d+\.\d+\.\d+", report["version"]), report)


def validated():
    """Validation is the same on one rank and on partitioned ranks, and an evaluation of the best checkpoint agrees."""
    found = {}
    for name, ranks, grid in (("serial", 1, []), ("samples", 3, ["--grid", "data=3", "--rule", "*: N@data"]),
                              ("rows", 4, ["--grid", "data=2 y=2", "--rule", "*: N@data H@y"])):
        text = train(ranks, *grid, "--epochs", "2", "--validate", "test", "--json", f"{name}.json", "--best",
                     f"{name}.h5")
        found[name] = read_json(f"{name}.json")
        check(f"{name}: bytes as predicted", found[name]["predicted_bytes"] == found[name]["measured_bytes"])
        check(f"{name}: top-5 is there", re.search(r"^valid 2 +loss \S+  accuracy \S+%  top-5 \S+%  ", text, re.M),
              text)
    serial = found["serial"]
    for name in ("samples", "rows"):
        check(f"{name}: the confusion matrix of one rank", found[name]["confusion"] == serial["confusion"],
              found[name]["confusion"])
        check(f"{name}: the validation of one rank", all(abs(a["loss"] - b["loss"]) < 1e-9 and
                                                         a["top5"] == b["top5"]
                                                         for a, b in zip(found[name]["validation"],
                                                                         serial["validation"])))
    check("the matrix has all samples", sum(map(sum, serial["confusion"]["counts"])) == 60 and
          serial["confusion"]["pass"] == "test")
    best = min(serial["validation"], key=lambda each: each["loss"])
    check("the best epoch", serial["best"]["epoch"] == best["epoch"] and serial["best"]["loss"] == best["loss"],
          serial["best"])
    again = partita("evaluate", *SMALL, "--load", "serial.h5", "--json", "e.json", ranks=1)
    check("the best checkpoint has its loss", abs(read_json("e.json")["test"]["loss"] - best["loss"]) < 1e-9, again)


def stopped_early():
    """A learning rate that changes no weight keeps the validation loss as it is: the first epoch stays the best."""
    still = ["--rate", "1e-300", "--validate", "0.3", "--no-test", "--patience", "2"]
    whole = train(1, *still, "--epochs", "30", "--json", "p.json", "--save", "p.h5")
    report = read_json("p.json")
    check("stopped after 3 of 30 epochs", [each["epoch"] for each in report["validation"]] == [1, 2, 3] and
          report["finished"] and report["best"]["epoch"] == 1 and
          "stopped early: no validation loss of the last 2 epochs was below" in whole, whole)
    rest = train(1, *still, "--epochs", "30", "--load", "p.h5")
    check("resuming it trains nothing and says why", "has not fallen for 2 epochs, which is what --patience allows" in
          rest and not re.search("^epoch", rest, re.M), rest)
    train(1, *still, "--epochs", "2", "--save", "q.h5")
    train(1, *still, "--epochs", "30", "--load", "q.h5", "--json", "q.json")
    again = read_json("q.json")
    for part in ("4", "5"):  # parts of epoch 2: a validation after each would count as an epoch without a lower loss
        more = ["--load", "u.h5"] if part == "5" else []
        train(1, *still, "--epochs", "2", "--steps", part, "--save", "u.h5", *more)
    train(1, *still, "--epochs", "30", "--load", "u.h5", "--json", "u.json")
    parts = read_json("u.json")
    check("a part of an epoch is not validated", [each["epoch"] for each in parts["validation"]] == [2, 3],
          parts["validation"])
    check("a resumed run remembers how long it has waited", [each["epoch"] for each in again["validation"]] == [3] and
          again["best"]["epoch"] == 1, again)


def killed():
    """A run that is killed leaves its log and the results of the epochs so far; resuming it appends to the log."""
    log, file, saved = "k.csv", "k.json", "k.h5"
    options = ["--log", log, "--json", file, "--save", saved, "--no-test", "--tensorboard", "k"]
    with partita.start("train", *SMALL, *options, "--epochs", "100000", stdout=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 30
        while not (os.path.exists(file) and len(read_json(file)["epochs"]) >= 2) and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    report = read_json(file)
    epochs = len(report["epochs"])
    check(f"{epochs} epochs", epochs >= 2 and not report["finished"] and len(report["losses"]) == 4 * epochs)
    check("the log is ahead of the results or at them", len(read_csv(log)) >= 4 * epochs)
    train(1, *options, "--load", saved, "--epochs", epochs + 3)
    text = read(log)
    steps = [int(row["step"]) for row in read_csv(log)]
    check("the log goes on, each step once, one header", text.count("epoch,step") == 1 and
          steps == list(range(1, 4 * (epochs + 3) + 1)), steps)
    after = read_json(file)
    check("the results go on too, each step once", after["first_step"] == 1 and
          after["losses"] == [float(row["loss"]) for row in read_csv(log)] and
          [each["step"] for each in after["epochs"]] == [4 * (i + 1) for i in range(epochs + 3)], after["epochs"])
    train(1, "--epochs", "2", "--json", "g.json", "--no-test")
    train(1, "--epochs", "2", "--steps", "6", "--save", "g.h5", "--no-test")
    train(1, "--epochs", "3", "--load", "g.h5", "--json", "g.json", "--no-test")
    gap = read_json("g.json")
    check("steps that no epoch reported get an entry", len(gap["losses"]) == 12 and
          [(each["epoch"], each["step"], each["steps"]) for each in gap["epochs"]] == [(1, 4, 4), (2, 6, 2), (2, 8, 2),
                                                                                       (3, 12, 4)] and
          abs(gap["epochs"][1]["loss"] - sum(gap["losses"][4:6]) / 2) < 1e-12, gap["epochs"])
    check("two event files", len(os.listdir("k")) == 2)
    write(file, json.dumps(after | {"losses": [1.5] * len(steps)}))
    text = train(1, *options, "--load", saved, "--epochs", epochs + 4)
    train(1, "--load", "serial.h5", "--epochs", 3, "--validate", "test", "--json", "serial.json")
    best = read_json("serial.json")
    check("a run from the best checkpoint goes on with its results", best["first_step"] == 1 and
          len(best["losses"]) == 12, best["losses"])
    check("results of another training are replaced, and that is said", "it does not hold the" in text and
          read_json(file)["first_step"] == len(steps) + 1 and len(read_json(file)["losses"]) == 4, text)


def on_a_terminal():
    """A terminal shows one line that is redrawn; a pipe gets no such line from a short run."""
    options = ["train", *small(3000, 1), "--no-test"]
    piped = partita(*options).out
    check("a short run prints no progress into a pipe", not re.search("step [0-9]", piped) and "\r" not in piped, piped)
    terminal, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 120, 0, 0))
    with partita.start(*options, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        text = b""
        while True:
            try:
                piece = os.read(terminal, 1 << 16)
            except OSError:  # the terminal is closed
                break
            text += piece
        check("the run succeeds", process.wait(timeout=60) == 0)
    states = [line for line in text.decode().split("\r") if re.match(r"epoch 1 \[", line)]
    pattern = (r"epoch 1 \[#*\.*\] \d+/3000  loss \d+\.\d+  accuracy [\d.]+%  rate 0\.05  \d+ images/s  "
               r"\d+:\d\d left\x1b\[K")
    check(f"{len(states)} states of the line", len(states) > 0 and all(re.fullmatch(pattern, line) for line in states),
          states[:3])
    check("the line is erased before the result", re.search(r"\r\x1b\[Kepoch 1    loss", text.decode()), text)


def refusals():
    """Options that do not fit, and files that are not replaced."""
    write("notes.txt", "do not lose this\n")
    for arguments, pattern in ((["--validate", "1.5"], r"--validate 1\.5: give the fraction"),
                               (["--validate", "0.1x"], "--validate 0.1x"),
                               (["--best", "b.h5"], "--best needs a validation"),
                               (["--patience", "2"], "--patience needs a validation"),
                               (["--validate", "0.1", "--patience=-1"], "--patience -1"),
                               (["--log", "notes.txt"], "is not a log of a training"),
                               (["--log", "a.json", "--json", "a.json"], "both name"),
                               (["--tensorboard", "notes.txt"], "--tensorboard"),
                               (["--validate", "0.1", "--best", "notes.txt"], "--best .* is not a checkpoint"),
                               (["--validate", "0.1", "--best", "serial.h5"], "--best .* belongs to another run")):
        refused(" ".join(arguments), partita("train", *SMALL, *arguments, ranks=2, status=2), pattern)
    refused("a validation of one sample", partita("train", *small(1, 1), "--validate", "0.5", ranks=2, status=2),
            "--validate 0.5: the training set has 1 sample;")
    check("nothing was replaced", read("notes.txt") == "do not lose this\n")


run_parts(recorded, validated, stopped_early, killed, on_a_terminal, refusals)
