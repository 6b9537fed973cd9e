"""Compares training steps on two cores, in turns: Partita on two ranks, PyTorch (two threads; two processes if the
batch has several samples; channels-last memory and not) and JAX (one device with all threads; two devices). Also
compares attention alone, on two threads. Prints one JSON object per line. bench/peers/run.sh calls it. Arguments: a
Python interpreter that has the peers, then optionally the models, or the word attention. The environment variable
ROUNDS sets the number of rounds, and BUILD the build folder."""

import json
import os
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
BUILD = HERE.parent.parent / os.environ.get("BUILD", "build")
# model -> our case, rounds, seconds per round, PyTorch's and JAX's ways to run
MODELS = {"fashion-cnn": ("fashion-cnn-sample-batch128", 5, "3", ["threads", "ddp"], ["1", "2"]),
          "resnet50": ("resnet50-sample-batch16", 3, "8", ["threads", "ddp"], []),
          "mesh-tangling": ("mesh-tangling-spatial-batch1", 2, "10", ["threads"], ["2"]),
          "unet3d": ("unet3d-spatial-batch1", 2, "10", ["threads"], ["2"]),
          "gpt": ("gpt-sample-batch8", 5, "5", ["threads", "ddp"], []),
          "vit": ("vit-sample-sharded-batch16", 5, "5", ["threads", "ddp"], [])}
ATTENTION = [(places, mask) for mask in ("causal", "full") for places in ("512", "1024", "2048", "4096")]
FORMS = {"gpt": ["first"]}  # tokens have no channels; else both forms of memory


def output(command):
    return subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=True).stdout.strip().splitlines()


def seconds_of(command):
    return float(output(command)[-1])


def ours(case):
    """The seconds per step of a case of bench/train."""
    return json.loads(output(["env", "OMP_NUM_THREADS=1", BUILD / "mpiexec", "-n", "2", BUILD / "bench/train", case])[0])["seconds"]


def compare(python, model, versions):
    case, rounds, seconds, torch_ways, jax_ways = MODELS[model]
    rounds = int(os.environ.get("ROUNDS", rounds))
    peers = {f"pytorch, 2 {'threads' if way == 'threads' else 'processes'}{', channels last' if form == 'last' else ''}":
             ["torch_train.py", model, way, "2", form, seconds] for way in torch_ways for form in FORMS.get(model, ["last", "first"])}
    peers |= {f"jax, {way} device{'s' if way != '1' else ''}": ["jax_train.py", model, way, seconds] for way in jax_ways}
    turns = {"ours": lambda: ours(case)} | {name: lambda command=command: seconds_of([python, *command])
                                            for name, command in peers.items()}
    print_ratios({"subject": "train", "case": f"{case}-peers", "ranks": 2}, in_turns(turns, rounds, model), versions)


def compare_attention(python, versions):
    rounds = int(os.environ.get("ROUNDS", 5))
    for places, mask in ATTENTION:
        case, arguments = f"attention-{mask}-{places}", [places, mask, "2", "1"]
        times = in_turns({"ours": lambda: seconds_of([BUILD / "bench/attention", *arguments]),
                          "pytorch, 2 threads": lambda: seconds_of([python, "torch_attention.py", *arguments])}, rounds, case)
        print_ratios({"subject": "attention", "case": f"{case}-peers", "ranks": 1}, times, versions)


def in_turns(turns, rounds, what):
    """The seconds of each round of each of the turns, by its name."""
    times = {name: [] for name in turns}
    for round_ in range(rounds):
        print(f"{what}, round {round_ + 1} of {rounds}", file=sys.stderr)
        for name, seconds in turns.items():
            times[name].append(seconds())
    return times


def print_ratios(keys, times, versions):
    median = {name: statistics.median(values) for name, values in times.items()}
    spread = (max(times["ours"]) - min(times["ours"])) / median["ours"]
    for name in list(times)[1:]:
        library, how = name.split(", ", 1)
        print(json.dumps({**keys, "seconds": median["ours"], "spread": round(spread, 3),
                          "ratio": round(median[name] / median["ours"], 3),
                          "against": f"{library} {versions[library]}, {how}"}), flush=True)


def main():
    python = os.path.abspath(sys.argv[1])
    models = sys.argv[2:] or [*MODELS, "attention"]
    wanted = [("pytorch", "torch")] + [("jax", "jax")] * any(MODELS[model][4] for model in models if model in MODELS)
    versions = {name: output([python, "-c", f"import {module}; print({module}.__version__)"])[0]
                for name, module in wanted}
    for model in models:
        compare_attention(python, versions) if model == "attention" else compare(python, model, versions)


main()
