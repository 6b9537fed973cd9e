"""Layers, optimizers, exchanges and products touch no element of a tensor: they move boxes on a device or call a
backend, so that they run wherever the tensor lies. Only the code named here works on the CPU's memory."""

import re

import sources

ROOMS = ["distconv", "src/comm", "src/tensor", "src/matmul", "src/train"]
# Files that work in the memory of the CPU, and what for.
HOST = {
    "src/comm/communicator.cpp": "texts on which ranks agree",
    "src/comm/mpi/mpi_communicator.cpp": "a transport between the memory of CPUs",
    "src/comm/shared_memory/": "a transport between the memory of CPUs",
    "src/comm/blocks.hpp": "what collectives in the memory of CPUs copy",
    "src/comm/threads/threads.cpp": "a transport between the memory of CPUs",
    "src/comm/job/ucx_signals.cpp": "the address of a function",
    "src/comm/job/witness.cpp": "addresses of sockets",
    "src/tensor/dist_tensor.cpp": "first weights, and tensors of tests",
    "src/train/data/": "samples, as they come from files",
    "src/train/files/": "bytes of files",
    "src/train/measure/": "times and texts, which no device computes",
    "src/train/trainer/announced.hpp": "lists of samples",
    "src/train/trainer/class_counts.cpp": "scores that on_host() has brought",
    "src/train/trainer/local_batch.cpp": "batches that the user's program fills and reads",
    "src/train/checkpoint/logical_order.hpp": "bytes of checkpoints",
    "src/train/trainer/replica_check.cpp": "weights that on_host() has brought, for their hashes",
    "src/train/trainer/sample_values.hpp": "samples on their way to a batch",
}
ACCESS = re.compile(r"\bas<[^;]*?>\(\)|\breinterpret_cast<|\bmem(?:cpy|move|set)\(|(?<!\bfield)\.(?:get|set)\([^)]")


def without_comments(text):
    return re.sub(r"//[^\n]*", "", text)


complaints = []
used = set()
for path in sources.files(ROOMS, sources.CODE):
    name = sources.name(path)
    found = [(number, line.strip()) for number, line in enumerate(without_comments(path.read_text()).splitlines(), 1)
             if ACCESS.search(line)]
    host = next((place for place in HOST if name.startswith(place)), None)
    if host:
        used |= {host} if found else set()
        continue
    complaints += [f"{name}:{number}: accesses elements of a tensor: {line}; move boxes with Device::move or add a function "
                   "to Backend" for number, line in found]
complaints += [f"test/style/elements.py names {place}, which accesses no element" for place in HOST.keys() - used]
sources.report(complaints, "elements of tensors")
