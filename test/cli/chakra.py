"""Traces of `simulate --chakra`, read by the protobuf definitions of mlc-chakra: their sums are those of the plan, and
a replay takes as long as the simulated schedule. mlc-chakra is installed from PyPI into a virtual environment in the
build folder. Without PyPI the test is skipped, with the reason (status 77). Arguments: the program build/partita, and
the build folder."""

import json
import os
import pathlib
import sys

from checks import MACHINES, Program, check, python_with, read_json, refused, run, run_parts, write

partita = Program(sys.argv[1])
HOME = pathlib.Path(sys.argv[2]).resolve() / "chakra-python"
PACKAGES = ["mlc-chakra==1.0.0", "protobuf==6.31.1"]
# Prints the nodes of each file as a line of JSON: id, name, type, dependencies, microseconds and attributes.
READER = """
import json, sys
from chakra.schema.protobuf import et_def_pb2 as et
from chakra.src.third_party.utils.protolib import decodeMessage, openFileRd
for path in sys.argv[1:]:
    file, metadata, node, nodes = openFileRd(path), et.GlobalMetadata(), et.Node(), []
    assert decodeMessage(file, metadata) and metadata.version
    while decodeMessage(file, node):
        values = {each.name: getattr(each, each.WhichOneof("value")) for each in node.attr}
        types = {each.name: each.WhichOneof("value") for each in node.attr}
        nodes.append([node.id, node.name, et.NodeType.Name(node.type), list(node.data_deps), node.duration_micros,
                      values, types])
        node = et.Node()
    print(json.dumps(nodes))
"""
# The types in which ASTRA-sim's feeder reads attributes.
TYPES = {"is_cpu_op": "bool_val", "num_ops": "int64_val", "tensor_size": "uint64_val", "comm_type": "int64_val",
         "comm_size": "int64_val", "comm_src": "int32_val", "comm_dst": "int32_val", "comm_tag": "int32_val",
         "pg_name": "string_val", "duration_ns": "double_val", "microbatch": "int32_val"}
SENT = ("COMM_SEND_NODE", "COMM_COLL_NODE")  # a message counts where it is sent, a collective on each rank
PIPELINE = """grid = "data=2"
stages = 4
[schedule]
kind = "{}"
microbatches = 8
[[layer]]
match = "*"
output = "N@data"
"""
MLP = "--model mlp --channels 64 --size 1 --classes 64 --widths 64 64 64 64 64 64 --batch 64".split()
CNN = ["--model", "lenet5", "--batch", "16"]


def on(grid, *rules):
    """The options for a grid and rules."""
    return ["--grid", grid, *(word for rule in rules for word in ("--rule", rule))]


CASES = {
    "sums of gradients": MLP + on("data=4", "*: N@data"),
    "panels of products": MLP + on("data=2 c=2", "*: N@data C@c"),
    "all-to-alls": MLP + on("c=4", "*: C@c", "fc1: N@c", "fc3: N@c"),
    "halos of rows": CNN + on("y=2", "*: H@y"),
    "halos in two dimensions": CNN + on("y=2 x=2", "*: H@y W@x"),
    "a residual network on samples and rows": ["--model", "resnet50", "--size", "64", "--batch", "8",
                                               *on("data=2 y=2", "*: N@data H@y")],
    "1f1b": [*MLP, "--strategy", "1f1b"],
    "zb-h1": [*MLP, "--strategy", "zb-h1"],
    "chimera": [*MLP, "--strategy", "chimera"],
    "gpipe": [*CNN, "--strategy", "gpipe"],
    "a table of words, whose gradient needs no other": ["--model", "gpt", "--batch", "8", *on("data=2", "*: N@data")],
    "recomputed activations": [*MLP, "--strategy", "recomputed"],
    "ranks without samples": [*MLP[:-1], "3", *on("c=4", "*: C@c", "fc1: N@c", "fc3: N@c")],
}


def traces(arguments):
    """Writes the traces of a strategy. Returns the nodes of each rank, the groups of ranks, the price of the step in
    microseconds, and the options."""
    words = [*arguments, "--machine", MACHINES / "dgx-h100.toml"]
    if "--strategy" in words:
        at = words.index("--strategy") + 1
        text = PIPELINE + "recompute = true\n" if words[at] == "recomputed" else PIPELINE
        words[at] = write(f"{words[at]}.toml", text.format(words[at].replace("recomputed", "1f1b")))
    partita("simulate", *words, "--chakra", "traces", "--json", "results.json")
    results = read_json("results.json")
    paths = [f"traces/trace.{rank}.et" for rank in range(results["ranks"])]
    ranks = [json.loads(line) for line in run(reader, "-c", READER, *paths).out.splitlines()]
    return ranks, read_json("traces/comm_groups.json"), results["predicted_without_links"] * 1e6, words


def replay(ranks, groups, microseconds):
    """Goes through the nodes of each rank in order. A node is ready when all that it depends on have ended. Computation
    takes its time; a communication takes none, but ends on all its ranks when it is ready on all of them. Returns the
    end of the last node, or None if some never end."""
    heads, calls, meetings = [0] * len(ranks), [{} for _ in ranks], {}
    ends = [[None] * len(nodes) for nodes in ranks]
    moved = True
    while moved:
        moved = False
        for rank, nodes in enumerate(ranks):
            while heads[rank] < len(nodes):
                node, _, kind, needs, micros, values, _ = nodes[heads[rank]]
                before = [ends[rank][each] for each in needs]
                if None in before:
                    break
                ready = max(before, default=0)
                if kind == "COMP_NODE":
                    ends[rank][node] = ready + microseconds(micros, values)
                else:
                    group = values.get("pg_name")
                    if group:
                        calls[rank][group] = calls[rank].get(group, 0) + 1
                        key, sides = (group, calls[rank][group]), len(groups[group])
                    else:
                        key, sides = (values["comm_src"], values["comm_dst"], values["comm_tag"]), 2
                    here = meetings.setdefault(key, [])
                    here.append((rank, node, ready))
                    if len(here) == sides:
                        for side, number, _ in here:
                            ends[side][number] = max(each[2] for each in here)
                heads[rank] += 1
                moved = True
    every = [end for of_rank in ends for end in of_rank]
    return None if None in every else max(every)


def sums_are_those_of_the_plan(name, ranks, words):
    """Messages, bytes and operations of the first and the last rank."""
    for rank in (0, len(ranks) - 1):
        partita("explain", *words, "--rank", rank, "--json", "plan.json")
        plan, nodes = read_json("plan.json"), ranks[rank]
        sent = [node[5]["comm_size"] for node in nodes if node[2] in SENT]
        check(f"{name}: messages and bytes of rank {rank}", (len(sent), sum(sent)) == (plan["messages"], plan["bytes"]),
              (len(sent), sum(sent), plan["messages"], plan["bytes"]))
        flops = sum(node[5].get("num_ops", 0) for node in nodes)
        check(f"{name}: operations of rank {rank}: {flops}", abs(flops - plan["operations"]) <= len(nodes) / 2 and flops,
              plan["operations"])


def traces_agree_with_the_plan():
    """Each strategy: sums, dependencies, both ends of messages, types of attributes, and times."""
    for name, arguments in CASES.items():
        ranks, groups, price, words = traces(arguments)
        sums_are_those_of_the_plan(name, ranks, words)
        check(f"{name}: nodes are numbered, and depend on earlier ones", all(
            node[0] == at and all(each < at for each in node[3]) for nodes in ranks for at, node in enumerate(nodes)))
        check(f"{name}: attributes have the types that ASTRA-sim reads", all(
            TYPES[key] == kind for nodes in ranks for node in nodes for key, kind in node[6].items()))
        ends = {kind: sorted((node[5]["comm_src"], node[5]["comm_dst"], node[5]["comm_tag"], node[5]["comm_size"])
                             for nodes in ranks for node in nodes if node[2] == kind)
                for kind in ("COMM_SEND_NODE", "COMM_RECV_NODE")}
        check(f"{name}: what is sent is received", ends["COMM_SEND_NODE"] == ends["COMM_RECV_NODE"] and
              len({each[:3] for each in ends["COMM_SEND_NODE"]}) == len(ends["COMM_SEND_NODE"]))
        exact = replay(ranks, groups, lambda _, values: values["duration_ns"] / 1e3)
        check(f"{name}: a replay takes {exact} us, the simulated schedule {price:.3f} us",
              exact is not None and abs(exact - price) <= 1e-9 * price)
        whole, most = replay(ranks, groups, lambda micros, _: micros), max(len(nodes) for nodes in ranks)
        check(f"{name}: {whole} us by whole microseconds", exact and abs(whole - exact) <= most, exact)
        for nodes in ranks:
            own = sum(node[5].get("duration_ns", 0) for node in nodes) / 1e3
            if not 0 <= own - sum(node[4] for node in nodes) < 1 + 1e-6:
                check(f"{name}: whole microseconds carry their remainder", False, own)


def operations_by_hand():
    """The operations of a layer of 64 x 64 weights: 2 x 64 x 64 for each of 64 samples, on four ranks, three times."""
    ranks, _, _, _ = traces(CASES["sums of gradients"])
    of_layer = sum(node[5].get("num_ops", 0) for nodes in ranks for node in nodes if node[1].startswith("fc2 "))
    check("operations of a layer", of_layer == 3 * 2 * 64 * 64 * 64, of_layer)
    names = {node[1] for node in ranks[0]}
    check("nodes say what they are", {"fc2 forward", "fc2 backward_data", "fc1 dw", "update"} <= names, sorted(names))


def errors():
    """No folder, and a folder that cannot be made."""
    write("file", "")
    refused("no folder", partita("simulate", status=2), "give --out DIR .* --chakra DIR")
    refused("a file in the folder's place", partita("simulate", "--chakra", "file", status=2), "--chakra file: .*cannot")
    partita("simulate", *MLP, *on("data=4", "*: N@data"), "--chakra", "alone")
    check("no input of SimGrid is written", sorted(os.listdir("alone")) == [
        "comm_groups.json", *(f"trace.{rank}.et" for rank in range(4))], os.listdir("alone"))


reader = python_with(HOME, "chakra.schema.protobuf.et_def_pb2", PACKAGES)
run_parts(errors, operations_by_hand, traces_agree_with_the_plan)
