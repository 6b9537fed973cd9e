"""Reads the output of build/bench/oracle and computes the same layers with PyTorch in double precision: outputs, the
loss and the gradients of all weights. Prints the largest relative difference for each kind of layer. Fails if one is
above 1e-10, or above 1e-12 for a layer of sequences.
  build/bench/oracle 500 | build/peers/bin/python bench/peers/oracle.py"""
import collections
import fractions
import json
import math
import sys

import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)

IMAGES = {"average_pool", "batch_norm", "conv", "conv_transpose", "group_norm", "max_pool"}  # all others: sequences


def last(function, x, *arguments):
    """A function of PyTorch whose channels are the last dimension, applied to x[N C ...]."""
    return function(x.movedim(1, -1), *arguments).movedim(-1, 1)


def activated(case, x):
    """The activation, with PyTorch's own function."""
    kind = case["activation"]
    return getattr(F, kind)(x, *([case["parameter"]] if kind in ("leaky_relu", "elu") else []))


def heads(case, x):
    """x[N C L] as [N group head dim L]: in each group its queries, a key and a value."""
    return x.reshape(x.shape[0], case["groups"], case["heads"] // case["groups"] + 2, -1, x.shape[2])


def turned(case, x):
    """Each pair of a query's or key's channels, taken as a complex number, times exp(i angle)."""
    by_head = heads(case, x)
    pairs, length = by_head.shape[3] // 2, x.shape[2]
    speeds = case["base"] ** (-torch.arange(pairs) / pairs)
    angles = speeds[:, None] * torch.arange(length)
    numbers = torch.complex(by_head[..., :pairs, :], by_head[..., pairs:, :])
    numbers = numbers * torch.polar(torch.ones_like(angles), angles)
    queries_and_keys = torch.cat([numbers.real, numbers.imag], 3)[:, :, :-1]
    return torch.cat([queries_and_keys, by_head[:, :, -1:]], 2).reshape(x.shape)


def attention(case, x):
    """Scaled dot-product attention, with the keys and values of a group repeated for each of its queries."""
    by_head = heads(case, x).transpose(3, 4)  # N group head L dim
    of_group = by_head.shape[2] - 2
    every = lambda t: t.expand(-1, -1, of_group, -1, -1).flatten(1, 2)
    queries, keys, values = by_head[:, :, :-2].flatten(1, 2), every(by_head[:, :, -2:-1]), every(by_head[:, :, -1:])
    seen = torch.ones(x.shape[2], x.shape[2], dtype=torch.bool)
    if case["causal"]:
        seen = seen.tril()
    if "segments" in case:
        numbers = torch.tensor(case["segments"]).reshape(x.shape[0], 1, -1)
        seen = seen & (numbers[..., :, None] == numbers[..., None, :])
    y = F.scaled_dot_product_attention(queries, keys, values, attn_mask=seen)
    return y.transpose(2, 3).flatten(1, 2)


def experts(case, leaves, x):
    """The output of experts, computed with a matrix of 0 and 1 for each expert, and the loss that balances them."""
    scores = last(F.linear, x, leaves["router/weight"], leaves.get("router/bias"))
    count, length, p = case["experts"], x.shape[2], scores.softmax(1)
    choices = torch.zeros_like(p).scatter(1, scores.topk(case["chosen"], 1).indices, 1)  # N E L
    gates = p * choices
    if case["normalized"]:
        gates = gates / gates.sum(1, keepdim=True)
    share = fractions.Fraction(str(case["capacity"])) * case["chosen"] * length / count
    slots, rank = min(length, math.ceil(share)), choices.cumsum(2).long()  # from 1
    sent = F.one_hot(rank.clamp(1, slots) - 1, slots) * (choices * (rank <= slots))[..., None]  # N E L S
    y = torch.einsum("nels,ncl,efc->nefs", sent, x, leaves["layer/weight"].reshape(count, -1, x.shape[1]))
    if "layer/bias" in leaves:
        y = y + leaves["layer/bias"].reshape(count, -1, 1)
    if "activation" in case:
        y = activated(case, y)
    balance = count * (choices.mean(2) / case["chosen"] * p.mean(2)).sum(1).mean()
    return torch.einsum("nels,nefs,nel->nfl", sent, y, gates), case["balance"] * balance


def run_sequence(case, leaves):
    """The output of the layer, behind tables, an embedding or a linear layer, and what it adds to the loss."""
    if "bags" in case:
        bags = [F.embedding_bag(leaves["image"][:, :, l].long(), leaves["first/table"][:, :, l], mode=case["bags"])
                for l in range(case["image shape"][2])]
        x = torch.stack(bags, 2)
    elif case["vocabulary"]:
        x = F.embedding(leaves["image"][:, 0].long(), leaves["first/table"]).movedim(-1, 1)
    else:
        x = last(F.linear, leaves["image"], leaves["first/weight"], leaves["first/bias"])
    return experts(case, leaves, x) if case["kind"] == "experts" else (run_layer(case, leaves, x), 0)


def run_layer(case, leaves, x):
    """The output of the layer."""
    kind, channels = case["kind"], [x.shape[1]]
    if kind == "layer_norm":
        return last(F.layer_norm, x, channels, leaves["layer/scale"], leaves["layer/shift"], case["epsilon"])
    if kind == "rms_norm":
        return last(F.rms_norm, x, channels, leaves["layer/scale"], case["epsilon"])
    if kind == "positions":
        return x + leaves["layer/table"]
    if kind == "places":
        return x.flatten(2)
    if kind == "gated":
        return activated(case, x[:, 0::2]) * x[:, 1::2]
    if kind == "interaction":
        dense = F.linear(leaves["dense"], leaves["bottom/weight"], leaves["bottom/bias"])
        vectors = torch.cat([dense[:, None], x.transpose(1, 2)], 1)
        rows, columns = torch.tril_indices(vectors.shape[1], vectors.shape[1], -1)
        return torch.cat([dense, (vectors @ vectors.transpose(1, 2))[:, rows, columns]], 1)
    if kind == "rotary":
        return turned(case, x)
    if kind == "attention":
        return attention(case, turned(case, x) if "base" in case else x)
    y = last(F.linear, x, leaves["layer/weight"], leaves.get("layer/bias"))
    return activated(case, y) if "activation" in case else y


def run_image(case, leaves, dims):
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


def leaf(case, name):
    """The values of a weight or bias in PyTorch's shape."""
    values = torch.tensor(case[name])
    dims = len(case["image shape"]) - 2
    if case["kind"] not in IMAGES:
        if name == "layer/table":
            values = values.reshape([-1, case["image shape"][2]])
        elif name == "first/table":
            places = [case["image shape"][2]] if "bags" in case else []
            values = values.reshape([case["vocabulary"], -1] + places)
        elif name == "first/weight":
            values = values.reshape([-1, case["image shape"][1]])
        elif name == "bottom/weight":
            values = values.reshape([-1, 3])
        elif name == "router/weight":
            values = values.reshape([case["experts"], -1])
        elif name == "layer/weight" and case["kind"] != "experts":
            values = values.reshape([case["y shape"][1], -1])
        return values.requires_grad_()
    channels = len(case["first/bias"])
    if name == "first/weight":
        values = values.reshape([channels, 2] + [1] * dims)
    if name == "layer/weight":
        first = case["channels"] if case["kind"] == "conv_transpose" else case["filters"]
        values = values.reshape([first, -1] + case["kernel"])
    return values.requires_grad_()


def check(case):
    dims = len(case["image shape"]) - 2
    leaves = {name: leaf(case, name) for name in case if "/" in name and not name.startswith("d ")}
    leaves["image"] = torch.tensor(case["image"]).reshape(case["image shape"])
    if "dense" in case:
        leaves["dense"] = torch.tensor(case["dense"]).reshape([-1, 3])
    y, added = (run_image(case, leaves, dims), 0) if case["kind"] in IMAGES else run_sequence(case, leaves)
    if list(y.shape) != case["y shape"]:
        return f"shape {list(y.shape)}, not {case['y shape']}", 1
    target = torch.tensor(case["target"])
    if case.get("labels"):
        loss = F.cross_entropy(y, target.long().reshape(y.shape[:1] + y.shape[2:]))
    else:
        loss = F.mse_loss(y, target.reshape(y.shape))
    (loss + added).backward()
    worst, where = 0, ""
    expected = {"y": y.detach(), "loss": loss.detach()}
    expected.update({"d " + name: value.grad for name, value in leaves.items() if "/" in name})
    scale = max([1e-3] + [float(g.abs().max()) for name, g in expected.items() if name.startswith("d ")])
    for name, value in expected.items():
        ours = torch.tensor(case[name]).reshape(value.shape)
        least = scale if name.startswith("d ") else 1e-3  # so that a gradient of rounding errors only does not count
        difference = float((ours - value).abs().max()) / max(float(value.abs().max()), least)
        if difference != difference:  # no number
            difference = math.inf
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
        row[1], row[2] = difference, f"{where} on \"{case['grid']}\" as \"{case['layout']}\", seed {case['seed']}"
for kind, (count, difference, where, partitioned) in sorted(worst.items()):
    print(json.dumps({"subject": "oracle", "case": kind, "cases": count, "partitioned": partitioned,
                      "largest_difference": difference, "where": where, "against": f"PyTorch {torch.__version__}"}))
sys.exit(not worst or not all(row[1] <= (1e-10 if kind in IMAGES else 1e-12) for kind, row in worst.items()))
