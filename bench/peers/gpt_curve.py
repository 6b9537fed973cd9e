"""Trains one gpt in Partita and in PyTorch: from the same initial weights, on the same bytes in the same order, with
the same optimizer. Prints one JSON object with the largest relative differences of the loss and of the norm of the
gradients over all steps. Fails if a loss differs by more than 1 %. The text is that of docs.
  build/peers/bin/python -B bench/peers/gpt_curve.py [COMMAND...] [--OPTION...]
COMMAND starts the program (build/partita; e.g. build/mpiexec -n 2 build/partita), and `train` gets the options, e.g.
--strategy FILE. The environment variables LAYERS, HIDDEN, HEADS, SEQUENCE and STEPS set the sizes."""

import csv
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile

import h5py
import numpy
import torch
from torch.nn import functional as F

from torch_models import Gpt

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SIZE = {name: int(os.environ.get(name.upper(), usual))
        for name, usual in (("layers", 4), ("hidden", 128), ("heads", 4), ("sequence", 64))}
STEPS = int(os.environ.get("STEPS", 200))
BATCH, SEED, RATE, WARM_UP, CLIP = 8, 1, 0.001, 20, 1.0
MASK = 0xFFFFFFFF


def philox(counter, key):
    """Philox4x32-10 (Salmon et al. 2011)."""
    a, b, c, d = counter
    for round_ in range(10):
        first, second = 0xD2511F53 * a, 0xCD9E8D57 * c
        keys = [(word + round_ * weyl) & MASK for word, weyl in zip(key, (0x9E3779B9, 0xBB67AE85))]
        a, b, c, d = second >> 32 ^ b ^ keys[0], second & MASK, first >> 32 ^ d ^ keys[1], first & MASK
    return a, b, c, d


def words(number):
    return number & MASK, number >> 32


def order_of(samples, epoch):
    """The order of the samples in an epoch: partita::shuffled()."""
    purpose = 0xCBF29CE484222325
    for byte in b"shuffle":  # FNV-1a
        purpose = (purpose ^ byte) * 0x100000001B3 % 2 ** 64
    key = philox((*words(SEED), *words(purpose)), (0, 0))[:2]
    order = list(range(samples))
    for i in range(samples - 1, 0, -1):
        high, low, _, _ = philox((*words(i), *words(epoch)), key)
        j = int(((high << 32 | low) >> 11) * 2.0 ** -53 * (i + 1))
        order[i], order[j] = order[j], order[i]
    return order


def batches(text):
    """The tokens of each step and those that follow them. Nine tenths of the text are for training."""
    length = SIZE["sequence"]
    samples = (len(text) - len(text) // 10 - 1) // length
    epoch = 0
    while True:
        epoch += 1
        order = order_of(samples, epoch)
        for first in range(0, samples, BATCH):
            places = numpy.add.outer([sample * length for sample in order[first:first + BATCH]], numpy.arange(length))
            yield [torch.tensor(text[places + shift], dtype=torch.long) for shift in (0, 1)]


def partita(command, folder, *options):
    sizes = [word for name, value in SIZE.items() for word in (f"--{name}", value)]
    subprocess.run([str(word) for word in [
        *command, "--model", "gpt", *sizes, "--data", "text", "--data-dir", folder / "text", "--batch", BATCH,
        "--seed", SEED, "--optimizer", "adamw", "--weight-decay", 0, *options]],
        check=True, stdout=subprocess.DEVNULL)


def load(net, path):
    """Sets the weights of the network to those of a checkpoint."""
    norm = lambda ours, name: {f"{ours}.weight": f"{name}/scale", f"{ours}.bias": f"{name}/shift"}
    linear = lambda ours, name: {f"{ours}.weight": f"{name}/weight", f"{ours}.bias": f"{name}/bias"}
    names = {"embedding.weight": "embedding/table", "positions": "positions/table", "scores.weight": "scores/weight",
             **norm(f"blocks.{SIZE['layers']}", "norm")}
    for i in range(SIZE["layers"]):
        ours, name = f"blocks.{i}.", f"block{i + 1}_"
        names |= norm(ours + "norm1", name + "norm1") | norm(ours + "norm2", name + "norm2")
        names |= linear(ours + "attention.qkv", name + "qkv") | linear(ours + "attention.out", name + "out")
        names |= linear(ours + "up", name + "up") | linear(ours + "down", name + "down")
    with h5py.File(path) as file:
        values = {ours: torch.tensor(file[name][()]) for ours, name in names.items()}
    values["positions"] = values["positions"].T  # C L in the file
    net.load_state_dict(values)


def rate_factor(step):
    """partita::Optimizer::rate_at(): a linear warm-up, then half a cosine that would end after the last step."""
    if step < WARM_UP:
        return (step + 1) / WARM_UP
    return 0.5 * (1 + math.cos(math.pi * (step - WARM_UP) / (STEPS - WARM_UP)))


def train(net, text):
    """The loss and the norm of the gradients of each step."""
    optimizer = torch.optim.AdamW(net.parameters(), lr=RATE, betas=(0.9, 0.999), eps=1e-8, weight_decay=0)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate_factor)
    for _, (tokens, following) in zip(range(STEPS), batches(text)):
        optimizer.zero_grad()
        loss = F.cross_entropy(net(tokens), following.flatten())
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(net.parameters(), CLIP)
        optimizer.step()
        schedule.step()
        yield loss.item(), norm.item()


def largest(ours, theirs):
    """The largest difference relative to theirs, and its step."""
    return max((abs(a - b) / b, step) for step, (a, b) in enumerate(zip(ours, theirs), 1))


def main():
    split = next((i for i, word in enumerate(sys.argv) if word.startswith("--")), len(sys.argv))
    command = [*(sys.argv[1:split] or [ROOT / "build/partita"]), "train", *sys.argv[split:]]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "text").write_bytes(b"".join(path.read_bytes() for path in sorted((ROOT / "docs").glob("*.md"))))
        # A rate that changes no number of the weights.
        partita(command, folder, "--steps", 1, "--rate", 1e-300, "--save", folder / "first.h5")
        partita(command, folder, "--steps", STEPS, "--epochs", 1000, "--rate", RATE, "--warm-up", WARM_UP,
                "--decay", "cosine", "--clip-norm", CLIP, "--log", folder / "log.csv")
        with open(folder / "log.csv", newline="", encoding="utf-8") as log:
            ours = [(float(row["loss"]), float(row["gradient_norm"])) for row in csv.DictReader(log)]
        net = Gpt(**SIZE)
        load(net, folder / "first.h5")
        theirs = list(train(net, numpy.frombuffer((folder / "text").read_bytes(), numpy.uint8)))
    assert len(ours) == STEPS, f"{len(ours)} steps"
    (loss, at_loss), (norm, at_norm) = (largest(*pair) for pair in zip(zip(*ours), zip(*theirs)))
    print(json.dumps({"subject": "curve", "case": "gpt", **SIZE, "steps": STEPS, "first_loss": ours[0][0],
                      "last_loss": ours[-1][0], "largest_difference": loss, "at_step": at_loss,
                      "largest_norm_difference": norm, "norm_at_step": at_norm,
                      "against": f"PyTorch {torch.__version__}"}))
    sys.exit(loss > 0.01)


main()
