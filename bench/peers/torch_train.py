"""Training steps of fashion-cnn in PyTorch, in channels-last memory: `threads N`, or `ddp N` processes of one thread.
Prints the median seconds of a step. Arguments: threads|ddp N SECONDS."""

import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

BATCH = 128


def model():
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(3136, 128), nn.ReLU(inplace=True), nn.Dropout(0.2), nn.Linear(128, 10))


def steps(processes, seconds):
    """The median seconds of a step of `processes` that share a batch."""
    torch.manual_seed(1)
    net = model().to(memory_format=torch.channels_last)
    if processes > 1:
        net = nn.parallel.DistributedDataParallel(net)  # each process normalises its own samples
    optimizer = torch.optim.SGD(net.parameters(), lr=0.001, momentum=0.9)
    loss_of = nn.CrossEntropyLoss()
    images = torch.randn(BATCH // processes, 1, 28, 28).to(memory_format=torch.channels_last)
    labels = torch.arange(BATCH // processes) % 10
    times, end = [], None
    while end is None or not over(processes, end):
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        loss_of(net(images), labels).backward()
        optimizer.step()
        times.append(time.perf_counter() - start)
        if end is None and len(times) == 10:  # not counted: the first steps make what later ones find
            times, end = [], time.perf_counter() + seconds
    return statistics.median(times)


def over(processes, end):
    """True when the time is up, for all processes at once."""
    flag = torch.tensor([float(time.perf_counter() > end)])
    if processes > 1:
        dist.broadcast(flag, 0)
    return bool(flag.item())


def process(rank, processes, seconds):
    torch.set_num_threads(1)
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[rank]})
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=os.environ["PEER_PORT"])
    dist.init_process_group("gloo", rank=rank, world_size=processes)
    seconds = steps(processes, seconds)
    if rank == 0:
        print(seconds, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    how, count, budget = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    if how == "threads":
        torch.set_num_threads(count)
        print(steps(1, budget))
    else:
        os.environ.setdefault("PEER_PORT", "29511")
        torch.multiprocessing.spawn(process, (count, budget), nprocs=count)
