"""Compares training steps on two cores, in turns: Partita on two ranks, PyTorch (two threads; two processes if the
batch has several samples; channels-last memory and not) and JAX (one device with all threads; two devices). Prints one
JSON object per line. bench/peers/run.sh calls it. Arguments: a Python interpreter that has the peers, then optionally
the models. The environment variable ROUNDS sets the number of rounds."""

import json
import os
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
BUILD = HERE.parent.parent / "build"
# model -> our case, rounds, seconds per round, PyTorch's and JAX's ways to run
MODELS = {"fashion-cnn": ("fashion-cnn-sample-batch128", 5, "3", ["threads", "ddp"], ["1", "2"]),
          "resnet50": ("resnet50-sample-batch16", 3, "8", ["threads", "ddp"], []),
          "mesh-tangling": ("mesh-tangling-spatial-batch1", 2, "10", ["threads"], ["2"]),
          "unet3d": ("unet3d-spatial-batch1", 2, "10", ["threads"], ["2"]),
          "gpt": ("gpt-sample-batch8", 5, "5", ["threads", "ddp"], []),
          "vit": ("vit-sample-batch16", 5, "5", ["threads", "ddp"], [])}
FORMS = {"gpt": ["first"]}  # tokens have no channels; else both forms of memory


def output(command):
    return subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=True).stdout.strip().splitlines()


def ours(case):
    """The seconds per step of a case of bench/train."""
    return json.loads(output(["env", "OMP_NUM_THREADS=1", BUILD / "mpiexec", "-n", "2", BUILD / "bench/train", case])[0])["seconds"]


def compare(python, model, versions):
    case, rounds, seconds, torch_ways, jax_ways = MODELS[model]
    rounds = int(os.environ.get("ROUNDS", rounds))
    peers = {f"pytorch, 2 {'threads' if way == 'threads' else 'processes'}{', channels last' if form == 'last' else ''}":
             ["torch_train.py", model, way, "2", form, seconds] for way in torch_ways for form in FORMS.get(model, ["last", "first"])}
    peers |= {f"jax, {way} device{'s' if way != '1' else ''}": ["jax_train.py", model, way, seconds] for way in jax_ways}
    times = {name: [] for name in ["ours", *peers]}
    for round_ in range(rounds):
        print(f"{model}, round {round_ + 1} of {rounds}", file=sys.stderr)
        times["ours"].append(ours(case))
        for name, command in peers.items():
            times[name].append(float(output([python, *command])[-1]))
    median = {name: statistics.median(values) for name, values in times.items()}
    spread = (max(times["ours"]) - min(times["ours"])) / median["ours"]
    for name in peers:
        library, how = name.split(", ", 1)
        print(json.dumps({"subject": "train", "case": f"{case}-peers", "ranks": 2, "seconds": median["ours"],
                          "spread": round(spread, 3), "ratio": round(median[name] / median["ours"], 3),
                          "against": f"{library} {versions[library]}, {how}"}), flush=True)


def main():
    python = os.path.abspath(sys.argv[1])
    models = sys.argv[2:] or list(MODELS)
    wanted = [("pytorch", "torch")] + [("jax", "jax")] * any(MODELS[model][4] for model in models)
    versions = {name: output([python, "-c", f"import {module}; print({module}.__version__)"])[0]
                for name, module in wanted}
    for model in models:
        compare(python, model, versions)


main()
