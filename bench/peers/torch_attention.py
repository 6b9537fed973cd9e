"""Times attention alone in PyTorch: four heads of 64 channels of one sample, forward and backward. Prints the median
seconds of a forward with its backward. Arguments: PLACES causal|full THREADS SECONDS."""

import statistics
import sys
import time

import torch
from torch.nn import functional as F

places, causal, threads, seconds = int(sys.argv[1]), sys.argv[2] == "causal", int(sys.argv[3]), float(sys.argv[4])
torch.set_num_threads(threads)
torch.manual_seed(1)
q, k, v = (torch.randn(1, 4, places, 64, requires_grad=True) for _ in range(3))
dy = torch.randn(1, 4, places, 64)
times, first, warm = [], time.perf_counter(), False
while len(times) < 5 or time.perf_counter() - first < seconds:
    start = time.perf_counter()
    torch.autograd.grad(F.scaled_dot_product_attention(q, k, v, is_causal=causal), (q, k, v), dy)
    if warm:
        times.append(time.perf_counter() - start)
    warm = True
print(statistics.median(times))
