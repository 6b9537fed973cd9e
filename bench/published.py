"""Holds predictions against published measurements: ChainerMN on ABCI, seconds an iteration, weak scaling over samples
(public logs). Each model is priced by the data sheets alone, with the time of one GPU given, and with a network that
one more row calibrates. Nothing is fitted to the other rows. Prints one JSON object per row, and the median error of
each on standard error.
  python3 -B bench/published.py [build/partita]"""

import csv
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

PROGRAM = sys.argv[1] if len(sys.argv) > 1 else "build/partita"
MACHINE = pathlib.Path(__file__).resolve().parents[1] / "examples/machines/abci.toml"
# model, samples a GPU, seconds by number of GPUs, the number that calibrates the network
ROWS = [("resnet50", 64, {1: .184, 2: .190, 4: .190, 8: .209, 16: .205, 32: .248, 64: .258, 1024: .236}, 8),
        ("vgg16", 32, {1: .262, 4: .315, 8: .456, 16: .457, 32: .475, 64: .488, 128: .534, 256: .501, 512: .560}, 8)]


def predicted(model, batch, ranks, machine=MACHINE, scale=1.0):
    """Seconds by number of GPUs."""
    with tempfile.TemporaryDirectory() as folder:
        table = os.path.join(folder, "points.csv")
        subprocess.run([PROGRAM, "compare", "--model", model, "--batch", str(batch), "--weak", "--machine", str(machine), "--scale-compute",
                        str(scale), "--memory-limit", "1TiB", "--ranks", *map(str, ranks), "--csv", table], check=True, stdout=subprocess.DEVNULL)
        with open(table, encoding="utf-8", newline="") as file:
            return {int(row["ranks"]): float(row["seconds"]) for row in csv.DictReader(file)}


def with_network(folder, factor):
    """The machine with this factor of the bandwidth between nodes."""
    text = MACHINE.read_text(encoding="utf-8")
    text = re.sub(r'"Gbit/s" = 100,', f'"Gbit/s" = {100 * factor},', text)
    path = os.path.join(folder, "network.toml")
    pathlib.Path(path).write_text(text, encoding="utf-8")
    return path


def calibrated(model, batch, measured, scale, at):
    """Seconds by number of GPUs on a network whose bandwidth gives the measured time of one row, found by bisection."""
    with tempfile.TemporaryDirectory() as folder:
        low, high = 0.01, 10
        for _ in range(40):
            factor = (low * high) ** 0.5
            slow = predicted(model, batch, [at], with_network(folder, factor), scale)[at] > measured[at]
            low, high = (factor, high) if slow else (low, factor)
        return predicted(model, batch, measured, with_network(folder, factor), scale), factor


def main():
    for model, batch, measured, at in ROWS:
        plain = predicted(model, batch, measured)
        scale = 1.0
        for _ in range(20):  # the update scales too, communication does not
            scale *= measured[1] / predicted(model, batch, [1], scale=scale)[1]
        network, factor = calibrated(model, batch, measured, scale, at)
        for given, seconds, used in (("data sheets", plain, ()), ("one GPU", predicted(model, batch, measured, scale=scale), (1,)),
                                     (f"1 and {at} GPUs", network, (1, at))):
            errors = []
            for ranks, value in measured.items():
                error = seconds[ranks] / value - 1
                errors += [] if ranks in used else [abs(error)]
                print(json.dumps({"subject": "published", "case": f"{model}-by-{given.replace(' ', '-')}", "ranks": ranks,
                                  "seconds": value, "predicted": seconds[ranks], "error": error, "against": "ChainerMN on ABCI"}))
            print(f"{model}, given {given}: median error {100 * statistics.median(errors):.1f} %, most {100 * max(errors):.1f} %"
                  f"{f', network at {factor:.3f} of its bandwidth' if at in used else ''}", file=sys.stderr)


main()
