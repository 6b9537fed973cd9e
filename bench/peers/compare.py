"""Training steps of fashion-cnn, batch 128, on two cores: ours on two ranks against PyTorch (two threads, two processes)
and JAX (one device with all threads, two devices), in turns. One JSON object a line.
Argument: the interpreter that has the peers. From bench/peers/run.sh."""

import json
import os
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
BUILD = HERE.parent.parent / "build"
ROUNDS, SECONDS = 5, "3"
PEERS = {"pytorch, 2 threads": ["torch_train.py", "threads", "2", SECONDS],
         "pytorch, 2 processes": ["torch_train.py", "ddp", "2", SECONDS],
         "jax, 1 device": ["jax_train.py", "1", SECONDS],
         "jax, 2 devices": ["jax_train.py", "2", SECONDS]}


def output(command):
    return subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=True).stdout.strip().splitlines()


def ours():
    """Seconds of a step, the ranks sharing the samples."""
    lines = output(["env", "OMP_NUM_THREADS=1", BUILD / "mpiexec", "-n", "2", BUILD / "bench/train"])
    return next(row["seconds"] for row in map(json.loads, lines) if "sample" in row["case"])


def main():
    python = os.path.abspath(sys.argv[1])
    versions = {name: output([python, "-c", f"import {module}; print({module}.__version__)"])[0]
                for name, module in (("pytorch", "torch"), ("jax", "jax"))}
    times = {name: [] for name in ["ours", *PEERS]}
    for round_ in range(ROUNDS):
        print(f"round {round_ + 1} of {ROUNDS}", file=sys.stderr)
        times["ours"].append(ours())
        for name, command in PEERS.items():
            times[name].append(float(output([python, *command])[-1]))
    median = {name: statistics.median(values) for name, values in times.items()}
    quartiles = statistics.quantiles(times["ours"], n=4)
    for name in PEERS:
        library, how = name.split(", ")
        print(json.dumps({"subject": "train", "case": "fashion-cnn-peers-batch128", "ranks": 2, "seconds": median["ours"],
                          "spread": round((quartiles[2] - quartiles[0]) / median["ours"], 3),
                          "ratio": round(median[name] / median["ours"], 3),
                          "against": f"{library} {versions[library]}, {how}"}), flush=True)


main()
