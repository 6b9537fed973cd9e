"""Tests three and four hosts with links of a rate, which test/support/cluster.py makes of name spaces: the rate holds,
training gives the same losses and counts as on one host, and the links carry the counted bytes. Needs root and the
launcher of MPICH; otherwise the test is skipped (status 77). Arguments: the launcher build/mpiexec, build/partita."""

import os
import signal
import subprocess
import sys

from checks import ROOT, Program, check, end_of, read_json, run, run_parts, skip

sys.path.append(str(ROOT / "test/support"))
from cluster import cluster, ip, lacks  # pylint: disable=wrong-import-position

LAUNCHER, PROGRAM = map(os.path.abspath, sys.argv[1:])
partita = Program(PROGRAM, LAUNCHER, timeout=60)
TRAIN = ["train", "--data", "synthetic", "--samples", "48", "--batch", "24", "--dtype", "f64", "--no-test", "--json"]
# Hosts, and how much of the counted bytes travels: a sum over p ranks counts its operand for each rank, of which
# 2 (p - 1) / p must leave it. Among four hosts, most sums are those of the dense layers over the pairs of data.
LAYOUTS = [(3, 4 / 3, ["--grid", "data=3", "--rule", "*: N@data"]),
           (4, 1, ["--grid", "data=2 y=2", "--rule", "conv*: N@data H@y"])]
MEGABYTES = 8
# Rank 0 sends to rank 1, which answers when it has everything, and prints the seconds.
TRANSFER = f"""
import os, socket, time
if os.environ["PMI_RANK"] == "1":
    with socket.create_server(("10.77.0.2", 5000)) as server:
        peer = server.accept()[0]
        left = {MEGABYTES * 10**6}
        while left:
            left -= len(peer.recv(left))
        peer.sendall(b"x")
else:
    for _ in range(100):
        try:
            peer = socket.create_connection(("10.77.0.2", 5000))
            break
        except ConnectionRefusedError:
            time.sleep(0.1)
    start = time.monotonic()
    peer.sendall(bytes({MEGABYTES * 10**6}))
    peer.recv(1)
    print(time.monotonic() - start)
"""


def to_end(made, ranks, *command):
    """Runs `ranks` ranks on each host of a cluster, and returns how they ended."""
    return end_of(made.start(ranks, *command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True), timeout=60)


def rate_holds():
    """Sends a known number of bytes over a link. Packets have headers, and the first ones find a full bucket."""
    with cluster(2, "100mbit", LAUNCHER) as made:
        ran = to_end(made, 1, sys.executable, "-c", TRANSFER)
        seconds, expected = float(ran.out), MEGABYTES * 8 / 100
        check(f"{MEGABYTES} MB take {seconds:.2f} s at 100 Mbit/s, {expected} s by their number",
              0.9 * expected <= seconds <= 3 * expected + 1, ran)


def agree():
    """Trains on one host and on several, with a rank on each. Nothing but the ranks uses the links."""
    for nodes, travels, layout in LAYOUTS:
        partita(*TRAIN, "one.json", *layout, ranks=nodes)
        with cluster(nodes, "1gbit", LAUNCHER) as made:
            ran = to_end(made, 1, PROGRAM, *TRAIN, "several.json", *layout)
            sent = sum(map(made.sent, made.hosts))
        check(f"the job on {nodes} hosts ends", ran.status == 0 and not ran.err, ran)
        one, several = read_json("one.json"), read_json("several.json")
        check(f"{nodes} hosts have the losses of one", len(one["losses"]) == len(several["losses"]) and
              all(abs(x - y) <= 1e-9 * abs(x) for x, y in zip(one["losses"], several["losses"])), (one, several))
        check(f"{nodes} hosts count as one does, and as predicted", several["measured_bytes"] > 0 and
              all(one[f"measured_{key}"] == several[f"measured_{key}"] == several[f"predicted_{key}"]
                  for key in ("messages", "bytes")), (one, several))
        ratio = sent / several["measured_bytes"]
        check(f"the links of {nodes} hosts carried {sent} bytes, {ratio:.3f} of those counted",
              travels <= ratio <= 1.2 * travels, ran)


def leaves_nothing():
    """Ends a cluster by signals, in the middle of a job. The next one removes what a killed one left."""
    program = [ROOT / "test/support/cluster.py", "3", "--launcher", LAUNCHER, "sh", "-c"]
    for name, expected in (("TERM", 0), ("KILL", 4)):
        with subprocess.Popen([*program, "echo begun; sleep 60"], stdout=subprocess.PIPE, text=True) as job:
            job.stdout.readline()
            job.send_signal(getattr(signal, f"SIG{name}"))
            status = job.wait(20)
        left = ip("netns", "list").count(f"partita-{job.pid}-")
        check(f"after SIG{name} {left} name spaces are left", left == expected, status)
    ran = run(*program, "echo a; exit 7", status=None)
    check("the next run removes what a killed one left, and passes on output and status", ran.out == "a\n" * 3 and
          ran.status == 7 and f"partita-{job.pid}-" not in ip("netns", "list"), ran)


if reason := lacks(LAUNCHER):
    skip(reason)
run_parts(rate_holds, agree, leaves_nothing)
