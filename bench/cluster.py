"""Holds prices against measured steps on two emulated hosts, one rank each, joined by a link of a given rate. For each
rate and model it calibrates the machine over that link, trains under six strategies, and asks `compare` for the price
of each on the calibrated machine. Prints one JSON object per point. At the end, on standard error: the median error,
and the pairs of strategies that differ by more than 15 % and are priced in the wrong order. Name spaces need root.
  python3 -B bench/cluster.py [build/partita] [--rates 100mbit 1gbit] [--models mlp fashion-cnn vgg16] [--steps 12]"""

import argparse
import itertools
import json
import pathlib
import statistics
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "test/support"))
import cluster  # noqa: E402

MODELS = {"mlp": ["--batch", "256"], "fashion-cnn": ["--batch", "64"], "vgg16": ["--batch", "16", "--size", "64"]}
DATA = ["--data", "synthetic", "--samples", "4096"]
SAMPLES = 'grid = "r=2"\n[[layer]]\nmatch = "*"\noutput = "N@r"\n'
STAGES = 'stages = 2\n[schedule]\nkind = "{}"\nmicrobatches = {}\n'
COMMON = {"samples": SAMPLES, "sharded": 'optimizer = "sharded"\n' + SAMPLES,
          "channels": SAMPLES.replace("N@r", "C@r"), "gpipe": STAGES.format("gpipe", 4),
          "1f1b": STAGES.format("1f1b", 8)}
STRATEGIES = {"mlp": COMMON | {"columns-rows": 'grid = "r=2"\n[[layer]]\nmatch = "*"\noutput = "C@r"\n'
                                               '[[layer]]\nmatch = "fc2"\ninput = "C@r"\noutput = "N@r"\n'},
              "fashion-cnn": COMMON | {"rows": SAMPLES.replace("N@r", "H@r")},
              "vgg16": COMMON | {"rows": SAMPLES.replace("N@r", "H@r")}}


def run(made, *command):
    """Runs a command as one rank on each host. Throws RuntimeError with what it printed if it fails."""
    job = made.start(1, *command, stdout=cluster.subprocess.PIPE, stderr=cluster.subprocess.STDOUT, text=True)
    printed = job.communicate()[0]
    if job.returncode:
        raise RuntimeError(printed)


def points(program, rate, model, steps, folder):
    """The measured and the predicted seconds of a step of a model under each strategy."""
    files = {name: folder / f"{name}.toml" for name in STRATEGIES[model]}
    for name, text in STRATEGIES[model].items():
        files[name].write_text(text, encoding="utf-8")
    subject = ["--model", model, *MODELS[model]]
    with cluster.cluster(2, rate, "mpiexec.mpich") as made:
        machine = folder / "machine.toml"
        run(made, program, "calibrate", *subject, "--strategies", *files.values(), "--out", machine)
        for name, file in files.items():
            results = folder / "train.json"
            run(made, program, "train", *subject, *DATA, "--strategy", file, "--steps", steps, "--no-test", "--json",
                results)
            measured = statistics.median(json.loads(results.read_text(encoding="utf-8"))["step_seconds"][2:])
            priced = folder / "compare.json"
            run_alone(program, "compare", *subject, "--machine", machine, "--strategies", file, "--json", priced)
            seconds = json.loads(priced.read_text(encoding="utf-8"))["strategies"][0]["seconds"]
            yield {"subject": "cluster", "case": f"{model}-{rate}-{name}", "ranks": 2, "seconds": measured,
                   "predicted": seconds, "ratio": round(seconds / measured, 3), "against": "measured"}


def run_alone(*command):
    """Runs a command on this machine."""
    cluster.subprocess.run([str(word) for word in command], check=True, stdout=cluster.subprocess.DEVNULL)


def main():
    """Runs all points and prints them."""
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("program", nargs="?", default="build/partita", type=pathlib.Path)
    parse.add_argument("--rates", nargs="+", default=["100mbit", "1gbit"])
    parse.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parse.add_argument("--steps", type=int, default=12)
    options = parse.parse_args()
    reason = cluster.lacks("mpiexec.mpich")
    if reason:
        print("skipped:", reason, file=sys.stderr)
        return 77
    errors, wrong, pairs = [], [], 0
    for rate, model in itertools.product(options.rates, options.models):
        with tempfile.TemporaryDirectory() as folder:
            found = []
            for point in points(options.program.resolve(), rate, model, options.steps, pathlib.Path(folder)):
                print(json.dumps(point), flush=True)
                found.append(point)
        errors += [abs(point["ratio"] - 1) for point in found]
        for a, b in itertools.combinations(found, 2):
            if max(a["seconds"], b["seconds"]) > 1.15 * min(a["seconds"], b["seconds"]):
                pairs += 1
                if (a["seconds"] < b["seconds"]) != (a["predicted"] < b["predicted"]):
                    wrong.append((a["case"], b["case"]))
    print(f"median error {statistics.median(errors):.1%}; {len(wrong)} of {pairs} pairs in the wrong order: {wrong}",
          file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
