"""Times in PyTorch, on one GPU, what bench/gpu has timed: channels-last memory, cudnn.benchmark, the same types.
Arguments: convs FILE (lines of `gpu convs`; prints each with the seconds of PyTorch), or
step MODEL BATCH TYPE [graph] (prints the seconds of a training step, replayed from a CUDA graph if asked)."""

import json
import statistics
import sys

import torch
from torch import nn

from torch_models import MODELS

TYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
torch.backends.cudnn.benchmark = True
torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False


def seconds_of(call, budget=0.1):
    """The median seconds of a call, each group of eight timed by events of the stream."""
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    times = []
    while sum(times) * 8 < budget or len(times) < 5:
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(8):
            call()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) / 8e3)
    return statistics.median(times)


def last(tensor):
    return tensor.to(memory_format=torch.channels_last if tensor.dim() == 4 else torch.channels_last_3d)


def conv(line):
    sides, kind = line["sides"], TYPES[line["type"]]
    of = lambda key: [side[key] for side in sides]
    make = lambda first, second, extents: last(torch.randn(first, second, *extents, device="cuda", dtype=kind))
    x = make(line["batch"], line["channels"], of("in"))
    w = make(line["filters"], line["channels"] // line["groups"], of("kernel"))
    dy = make(line["batch"], line["filters"], of("out"))
    how = [of("stride"), of("padding"), of("dilation"), False, [0] * len(sides), line["groups"]]
    if line["pass"] == "forward":
        assert torch.convolution(x, w, None, *how).shape == dy.shape, f"another output of {line}"
        return seconds_of(lambda: torch.convolution(x, w, None, *how))
    wanted = [line["pass"] == "backward-data", line["pass"] == "backward-filter", False]
    return seconds_of(lambda: torch.ops.aten.convolution_backward(dy, x, w, None, *how, wanted))


def convs(path):
    with open(path, encoding="utf-8") as lines:
        for text in lines:
            line = json.loads(text)
            if line.get("subject") != "gpu-conv" or "left" in line:
                print(text, end="", flush=True)
                continue
            line["torch_seconds"] = conv(line)
            line["ratio"] = line["torch_seconds"] / line["seconds"]
            print(json.dumps(line), flush=True)


def step(model, batch, kind, graph):
    torch.manual_seed(1)
    make, _, sample, places = MODELS[model]
    form = torch.channels_last if len(sample) == 3 else torch.channels_last_3d
    net = make().cuda().to(memory_format=form)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4, momentum=0.9, fused=True)
    images = torch.randn(batch, *sample, device="cuda").to(memory_format=form)
    labels = torch.zeros(batch, *places, dtype=torch.long, device="cuda")
    loss_of = nn.CrossEntropyLoss()
    narrow = TYPES[kind] if kind != "f32" else None

    def once():
        optimizer.zero_grad(set_to_none=not graph)
        with torch.autocast("cuda", dtype=narrow or torch.bfloat16, enabled=narrow is not None, cache_enabled=False):
            loss = loss_of(net(images), labels)
        loss.backward()
        optimizer.step()

    run = once
    if graph:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(5):
                once()
        torch.cuda.synchronize()
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            once()
        run = captured.replay
    for _ in range(5):
        run()
    seconds = seconds_of(run, 5)
    print(json.dumps({"subject": "gpu-step-torch", "model": model, "batch": batch, "type": kind, "graph": graph,
                      "seconds": seconds, "held": torch.cuda.max_memory_allocated()}), flush=True)


if sys.argv[1] == "convs":
    convs(sys.argv[2])
else:
    step(sys.argv[2], int(sys.argv[3]), sys.argv[4], "graph" in sys.argv[5:])
