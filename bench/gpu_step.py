"""Adds up what the kernels of a training step of ResNet-50 would take on an H100: bf16, batch 256, one card. Nothing is
measured: own kernels are arithmetic on the plan's bytes, convolutions an estimate. The linear layer, the loss, the
update and the starts of kernels are left out. Prints a table in Markdown.
    python3 -B bench/gpu_step.py build/partita >bench/results/DATE-resnet50-step.md"""

import json
import os
import re
import subprocess
import sys
import tempfile

BANDWIDTH = 3.0e12  # bytes a second that kernels reach of 3.35 TB/s
# An estimate of what PyTorch's convolutions take at this batch. Those on 3 channels, which have no engine with tensor
# cores here, are added to it, though it contains them.
CONVOLUTIONS = 30e-3
WITHOUT_TENSOR_CORES = 20e12  # operations a second
OWN = ["batch_norm", "relu", "max_pool", "add", "global_average_pool"]
COUNTS = os.path.join(os.path.dirname(__file__), "results", "2026-11-29-sm90-instructions.md")
FUNCTORS = {"batch_norm": "Norm", "relu": "Activate", "add": "AddElements"}  # how their names begin; those counted
PASSES = ["forward", "backward_data", "backward_filter"]
MACHINE = """name = "arithmetic"
memory = {{ GiB = 80, from = "-" }}
memory-bandwidth = {{ "GB/s" = {bandwidth}, from = "-" }}
kernel = {{ ns = 1, from = "-" }}
arithmetic.f32 = {{ "Tflop/s" = {arithmetic}, from = "-" }}
arithmetic.bf16 = {{ "Tflop/s" = {arithmetic}, from = "-" }}
efficiency.others = {{ Gflop = [1], share = [1], from = "-" }}
[[level]]
name = "card"
latency = {{ us = 1, from = "-" }}
bandwidth = {{ "GB/s" = 1, from = "-" }}
overlap = {{ share = 0, from = "-" }}
"""


def layers(partita, **rates):
    """Returns the layers with their costs on a machine with these rates."""
    with tempfile.TemporaryDirectory() as folder:
        machine, result = os.path.join(folder, "m.toml"), os.path.join(folder, "r.json")
        with open(machine, "w", encoding="utf-8") as file:
            file.write(MACHINE.format(**rates))
        subprocess.run([partita, "explain", "--model", "resnet50", "--batch", "256", "--dtype", "bf16", "--machine",
                        machine, "--json", result], check=True, stdout=subprocess.DEVNULL)
        with open(result, encoding="utf-8") as file:
            return json.load(file)["layers"]


def issued():
    """Returns by kind of layer the cycles in which the instructions of a pack are issued, per cycle in which memory
    brings it: the largest of its functors."""
    largest = {}
    with open(COUNTS, encoding="utf-8") as file:
        for functor, cycles, memory in re.findall(r"^\| `(\w+)<.* \| ([\d.]+) \| \d+ \| ([\d.]+) \|$", file.read(), re.M):
            for kind, name in FUNCTORS.items():
                if functor.startswith(name):
                    largest[kind] = max(largest.get(kind, 0), float(cycles) / float(memory))
    assert set(largest) == set(FUNCTORS), f"{COUNTS} lacks functors"
    return largest


def total(layer, passes=PASSES):
    return sum(layer["cost"][each] for each in passes)


def main():
    by_bytes = layers(sys.argv[1], bandwidth=BANDWIDTH / 1e9, arithmetic=100000)
    by_operations = layers(sys.argv[1], bandwidth=1e5, arithmetic=0.001)  # 1 Gflop/s: seconds are 1e9 operations
    print("# A step of ResNet-50 on an H100, by arithmetic\n")
    print("`python3 -B bench/gpu_step.py build/partita`: bf16, batch 256, one card. Nothing was measured. Own kernels\n"
          f"take their bytes at {BANDWIDTH / 1e12:.1f} TB/s, or their instructions if these take longer (counted in\n"
          "2026-11-29-sm90-instructions.md). The linear layer, the loss, the update and the starts of kernels are\n"
          "left out.\n")
    print("| kernels | layers | GB moved | ms of bytes | ms of instructions, at most | larger, ms |\n|---|---:|---:|---:|"
          "---:|---:|")
    own, shares = 0, issued()
    for kind in OWN:
        some = [each for each in by_bytes if each["kind"] == kind]
        seconds = sum(map(total, some))
        instructions = seconds * shares[kind] if kind in shares else None
        larger = max(seconds, instructions or 0)
        own += larger
        text = "not counted" if instructions is None else f"{instructions * 1e3:.2f}"
        print(f"| {kind} | {len(some)} | {seconds * BANDWIDTH / 1e9:.2f} | {seconds * 1e3:.2f} | {text} | "
              f"{larger * 1e3:.2f} |")
    print(f"| own kernels | | {own * BANDWIDTH / 1e9:.2f} | | | {own * 1e3:.2f} |\n")
    convolutions = [each for each in by_operations if each["kind"] == "conv"]
    first = total(convolutions[0], ["forward", "backward_filter"]) * 1e9 / WITHOUT_TENSOR_CORES
    operations = sum(map(total, convolutions)) * 1e9
    print("| convolutions | Tflop | ms |\n|---|---:|---:|")
    print(f"| with tensor cores, as PyTorch's are estimated | {operations / 1e12:.2f} | {CONVOLUTIONS * 1e3:.1f} |")
    print(f"| {convolutions[0]['name']} beside that: 3 channels, at 20 Tflop/s | | {first * 1e3:.1f} |")
    print(f"\nSum: {(own + CONVOLUTIONS + first) * 1e3:.1f} ms. PyTorch was estimated at 75 to 90 ms, eager, channels last, with AMP.")


if __name__ == "__main__":
    main()
