"""Reads the output of build/bench/oracle and computes the same layers with PyTorch in double precision: outputs, the
loss and the gradients of all weights. Prints the largest relative difference for each kind of layer. Fails if one is
above 1e-10.
  build/bench/oracle 500 | build/peers/bin/python bench/peers/oracle.py"""
import collections
import json
import sys

import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)


def run(case, leaves, dims):
    """The output of the layer, which comes after the 1x1 convolution."""
    of = lambda *kinds: {n: k for n, k in enumerate(kinds, 1)}[dims]
    x = of(F.conv1d, F.conv2d, F.conv3d)(leaves["image"], leaves["first/weight"], leaves["first/bias"])
    kind = case["kind"]
    if kind == "conv":
        return of(F.conv1d, F.conv2d, F.conv3d)(x, leaves["layer/weight"], leaves.get("layer/bias"), case["stride"],
                                                case["padding"], case["dilation"], case["groups"])
    if kind == "conv_transpose":
        return of(F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)(
            x, leaves["layer/weight"], leaves.get("layer/bias"), case["stride"], case["padding"],
            case["output_padding"], case["groups"], case["dilation"])
    if kind == "max_pool":
        return of(F.max_pool1d, F.max_pool2d, F.max_pool3d)(x, case["window"], case["stride"], case["padding"],
                                                            case["dilation"])
    if kind == "average_pool":
        return of(F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)(x, case["window"], case["stride"], case["padding"],
                                                            False, case["count_padding"])
    if kind == "batch_norm":
        return F.batch_norm(x, None, None, leaves["layer/scale"], leaves["layer/shift"], True, 0.1, case["epsilon"])
    return F.group_norm(x, case["groups"], leaves["layer/scale"], leaves["layer/shift"], case["epsilon"])


def leaf(case, name, channels):
    """The values of a weight or bias in PyTorch's shape."""
    values = torch.tensor(case[name])
    dims = len(case["image shape"]) - 2
    if name == "first/weight":
        values = values.reshape([channels, 2] + [1] * dims)
    if name == "layer/weight":
        first = case["channels"] if case["kind"] == "conv_transpose" else case["filters"]
        values = values.reshape([first, -1] + case["kernel"])
    return values.requires_grad_()


def check(case):
    dims = len(case["image shape"]) - 2
    channels = len(case["first/bias"])
    leaves = {name: leaf(case, name, channels) for name in case if "/" in name and not name.startswith("d ")}
    leaves["image"] = torch.tensor(case["image"]).reshape(case["image shape"])
    y = run(case, leaves, dims)
    if list(y.shape) != case["y shape"]:
        return f"shape {list(y.shape)}, not {case['y shape']}", 1
    loss = F.mse_loss(y, torch.tensor(case["target"]).reshape(y.shape))
    loss.backward()
    worst, where = 0, ""
    expected = {"y": y.detach(), "loss": loss.detach()}
    expected.update({"d " + name: value.grad for name, value in leaves.items() if name != "image"})
    scale = max([1e-3] + [float(g.abs().max()) for name, g in expected.items() if name.startswith("d ")])
    for name, value in expected.items():
        ours = torch.tensor(case[name]).reshape(value.shape)
        least = scale if name.startswith("d ") else 1e-3  # so that a gradient of rounding errors only does not count
        difference = float((ours - value).abs().max()) / max(float(value.abs().max()), least)
        if difference >= worst:
            worst, where = difference, name
    return where, worst


worst = collections.defaultdict(lambda: [0, 0, "", 0])
for line in sys.stdin:
    case = json.loads(line)
    where, difference = check(case)
    row = worst[case["kind"]]
    row[0] += 1
    row[3] += case["grid"] != ""
    if difference >= row[1]:
        row[1], row[2] = difference, f"{where} on \"{case['grid']}\" as \"{case['layout']}\""
for kind, (count, difference, where, partitioned) in sorted(worst.items()):
    print(json.dumps({"subject": "oracle", "case": kind, "cases": count, "partitioned": partitioned,
                      "largest_difference": difference, "where": where, "against": f"PyTorch {torch.__version__}"}))
sys.exit(max((row[1] for row in worst.values()), default=1) > 1e-10)
