"""Runs training steps of a network in PyTorch: with N threads, or with N processes of one thread that share a batch
(DDP), in channels-last or channels-first memory. Prints the median seconds per step.
Arguments: MODEL threads|ddp N last|first SECONDS."""

import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

from torch_models import MODELS, batch_of


def steps(name, processes, last, seconds):
    """The median seconds per step when `processes` processes share a batch."""
    torch.manual_seed(1)
    make, batch, sample, _ = MODELS[name]
    form = torch.contiguous_format
    if last:
        form = torch.channels_last if len(sample) == 3 else torch.channels_last_3d
    net = make().to(memory_format=form)
    if processes > 1:
        net = nn.parallel.DistributedDataParallel(net)  # batch normalization uses each process's own samples
    optimizer = torch.optim.SGD(net.parameters(), lr=0.001, momentum=0.9)
    loss_of = nn.CrossEntropyLoss()
    images, labels = batch_of(name, batch // processes)
    images = images.to(memory_format=form)
    few = 10 if name == "fashion-cnn" else 1  # first steps that do not count, because they allocate and initialize
    times, end = [], None
    while end is None or len(times) < 3 or not over(processes, end):
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        loss_of(net(images), labels).backward()
        optimizer.step()
        times.append(time.perf_counter() - start)
        if end is None and len(times) == few:
            times, end = [], time.perf_counter() + seconds
    return statistics.median(times)


def over(processes, end):
    """True if the time is up. All processes get the same answer."""
    flag = torch.tensor([float(time.perf_counter() > end)])
    if processes > 1:
        dist.broadcast(flag, 0)
    return bool(flag.item())


def process(rank, processes, name, last, seconds):
    torch.set_num_threads(1)
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[rank]})
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=os.environ["PEER_PORT"])
    dist.init_process_group("gloo", rank=rank, world_size=processes)
    seconds = steps(name, processes, last, seconds)
    if rank == 0:
        print(seconds, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    model, how, count, is_last, budget = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4] == "last", float(sys.argv[5])
    if how == "threads":
        torch.set_num_threads(count)
        print(steps(model, 1, is_last, budget))
    else:
        os.environ.setdefault("PEER_PORT", "29511")
        torch.multiprocessing.spawn(process, (count, model, is_last, budget), nprocs=count)
