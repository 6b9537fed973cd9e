"""Holds predictions against published measurements. Prints one JSON object per row, and errors on standard error.
ChainerMN on ABCI, seconds an iteration, weak scaling over samples (public logs): each model is priced by the data
sheets alone, with the time of one GPU given, and with a network that one more row calibrates. Nothing is fitted to the
other rows. Megatron on A100s (Korthikanti et al. 2022, tables 3 and 5): models of 22 and 175 billion weights, and one
block of the smaller one, with all or the attention recomputed. Nothing is fitted.
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


A100 = MACHINE.with_name("dgx-a100.toml")
# model, samples and microbatches, stages, groups a stage, blocks, seconds an iteration: all recomputed, attention alone
TRANSFORMERS = [("gpt-22b", 4, 1, 1, 1, 48, {"all": 1.42, "attention": 1.10}),
                ("gpt-175b", 64, 64, 8, 3, 96, {"all": 18.13, "attention": 13.75})]
# seconds of forward and backward of one block of gpt-22b
BLOCK = {"nothing": (7.7e-3, 11.9e-3), "all": (7.7e-3, 19.5e-3), "attention": (7.2e-3, 13.1e-3)}


def transformer_strategy(recomputes, microbatches, stages, groups, blocks):
    """Columns, then rows over eight ranks. Where the attention alone is recomputed, places are cut between them."""
    lines = ['grid = "t=8"', "[schedule]", f'kind = "{"interleaved" if groups > 1 else "gpipe"}"', f"microbatches = {microbatches}"]
    if groups > 1:
        lines.append(f"groups = {groups}")
    each = blocks // (stages * groups)
    for i in range(stages * groups if stages > 1 else 0):
        first, last = f"block{i * each + 1}_norm1", f"block{(i + 1) * each}_add2"
        lines += ["[[group]]", f'layers = ["{first if i > 0 else "tokens"}", "{last if i + 1 < stages * groups else "loss"}"]']

    def rule(match, **keys):
        lines.extend(["[[layer]]", f'match = "{match}"', *(f"{key} = {json.dumps(value)}" for key, value in keys.items())])
    rule("*", output="L@t" if recomputes == "attention" else "", recompute=recomputes == "all")
    for kept in ["block*_add2", "drop", "scores", "norm"]:
        rule(kept, recompute=False)
    rule("embedding", weights="V@t")
    for columns in ["*_qkv", "*_attention", "*_up", "*_gelu", "scores"]:
        rule(columns, output="C@t")
    rule("*_attention", algorithm="whole", recompute=recomputes != "nothing")
    return "\n".join(lines) + "\n"


def transformers():
    def line(case, seconds, value):
        print(json.dumps({"subject": "published", "case": case, "seconds": seconds, "predicted": value,
                          "error": value / seconds - 1, "against": "Megatron on A100s"}))
        print(f"{case}: {value:.4g} s, published {seconds:.4g} s, error {100 * (value / seconds - 1):.1f} %", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        strategy, result = os.path.join(folder, "strategy.toml"), os.path.join(folder, "explained.json")

        # A block was timed alone. All blocks together, with nothing recomputed, would not fit the memory.
        def explained(model, batch, recomputes, *shape):
            pathlib.Path(strategy).write_text(transformer_strategy(recomputes, *shape), encoding="utf-8")
            subprocess.run([PROGRAM, "explain", "--model", model, "--batch", str(batch), "--dropout", "0.1", "--dtype", "bf16",
                            "--memory-limit", "1TiB", "--optimizer", "adam", "--machine", A100, "--strategy", strategy, "--json", result], check=True,
                           stdout=subprocess.DEVNULL)
            return json.loads(pathlib.Path(result).read_text(encoding="utf-8"))
        for model, batch, microbatches, stages, groups, blocks, rows in TRANSFORMERS:
            for recomputes, seconds in rows.items():
                line(f"{model} that recomputes {recomputes}", seconds,
                     explained(model, batch, recomputes, microbatches, stages, groups, blocks)["seconds"])
        for recomputes, (forward, backward) in BLOCK.items():
            costs = [layer["cost"] for layer in explained("gpt-22b", 4, recomputes, 1, 1, 1, 48)["layers"]
                     if layer["name"].startswith("block20_")]
            line(f"gpt-22b-block that recomputes {recomputes}, forward", forward, sum(cost["forward"] for cost in costs))
            line(f"gpt-22b-block that recomputes {recomputes}, backward", backward,
                 sum(cost["backward_data"] + cost["backward_filter"] for cost in costs))


def main():
    transformers()
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
