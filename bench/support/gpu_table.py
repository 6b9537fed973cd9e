"""The results of bench/gpu.sh. Arguments: predicted FILE MODEL BATCH TYPE (prints one line of JSON from what
`partita compare --json` wrote), or table FILE NOTE... (prints the lines of JSON in the file as Markdown)."""

import json
import math
import sys


def predicted(path, model, batch, kind):
    with open(path, encoding="utf-8") as file:
        one = json.load(file)["strategies"][0]
    measured = one["measured"]["seconds"]
    print(json.dumps({"subject": "gpu-predicted", "model": model, "batch": int(batch), "type": kind,
                      "predicted": one["seconds"], "measured": measured, "error": one["seconds"] / measured - 1}))


def conv_rows(lines):
    """For each model and type: the geometric mean of the ratios to PyTorch, and the lowest one."""
    groups = {}
    for line in lines:
        if line["subject"] == "gpu-conv" and "ratio" in line:
            groups.setdefault((line["model"], line["type"]), []).append(line)
    for (model, kind), all_of in groups.items():
        ratios = [line["ratio"] for line in all_of]
        worst = min(all_of, key=lambda line: line["ratio"])
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        yield (f"convolutions of {model}, {kind}", f"{len(ratios)} passes",
               f"geometric mean {mean:.3f} of PyTorch's speed, lowest {worst['ratio']:.3f} ({worst['pass']}, "
               f"{worst['channels']} to {worst['filters']} channels)")
    left = [line for line in lines if line["subject"] == "gpu-conv" and "left" in line]
    if left:
        yield "convolutions without an engine of cuDNN", str(len(left)), "; ".join(line["problem"] for line in left)


def as_graph(line):
    return "as a CUDA graph" if line["graph"] else "kernel by kernel"


def step_rows(lines):
    theirs = {(l["model"], l["batch"], l["type"]): l for l in lines if l["subject"] == "gpu-step-torch"}
    for line in lines:
        if line["subject"] != "gpu-step":
            continue
        other = theirs.get((line["model"], line["batch"], line["type"]))
        against = "" if other is None else (f", PyTorch {other['seconds'] * 1e3:.3f} ms"
                                            f"{' with a graph' if other['graph'] else ''}: ratio "
                                            f"{other['seconds'] / line['seconds']:.3f}")
        yield (f"step of {line['model']}, batch {line['batch']}, {line['type']}, {as_graph(line)}",
               f"{line['seconds'] * 1e3:.3f} ms",
               f"held {line['held']} of {line['predicted']} bytes predicted{against}")


def other_rows(lines):
    for line in lines:
        if line["subject"] == "gpu-halo":
            yield (f"halo, {line['slab']}, {line['type']}", f"{line['bytes'] / 2 ** 20:.2f} MiB",
                   f"packs at {line['pack_of_copy']:.2f} and unpacks at {line['unpack_of_copy']:.2f} of a copy's speed")
        elif line["subject"] == "gpu-gaps":
            yield (f"step without work, {as_graph(line)}", f"{line['microseconds_per_layer']:.2f} us a layer",
                   f"{line['layers']:.0f} layers")
        elif line["subject"] == "gpu-nccl":
            yield "NCCL on one rank", line["version"], "right" if line["right"] else "WRONG"
        elif line["subject"] == "gpu-predicted":
            yield (f"predicted step of {line['model']}, batch {line['batch']}, {line['type']}",
                   f"{line['predicted'] * 1e3:.3f} ms", f"measured {line['measured'] * 1e3:.3f} ms: {line['error']:+.1%}")


def table(path, notes):
    with open(path, encoding="utf-8") as file:
        lines = [json.loads(text) for text in file]
    lines = [line for line in lines if "subject" in line]
    print("| what | number | |\n|---|---|---|")
    for row in [*conv_rows(lines), *step_rows(lines), *other_rows(lines)]:
        print("| " + " | ".join(row) + " |")
    print()
    for note in notes:
        print(f"- {note}")
    if not notes:
        print("All steps have run and passed.")


if sys.argv[1] == "predicted":
    predicted(*sys.argv[2:])
else:
    table(sys.argv[2], sys.argv[3:])
