#!/usr/bin/env python3
"""A cluster on one machine. Its hosts are name spaces of network, processes, shared memory and host name. Each has a
link to one switch, with a rate if that is given. A job of MPICH's launcher runs over them.

    test/support/cluster.py 3 --ranks 2 --rate 100mbit build/partita train ...

starts six ranks, two on each of three hosts, passes on what they print, and ends with their exit status. Name spaces
need root. If this machine does not allow them, the status is 77. At its end, and after SIGTERM, it removes the hosts
and ends what runs on them. A run that was killed leaves its hosts to the next one, which removes them."""

import contextlib
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time

ON_HOST = pathlib.Path(__file__).with_name("on_host.sh")
SUBNET = "10.77.0"
NAMES = re.compile(r"(partita-(\d+)-\w+)")  # of a host or a switch; the number is the process that made it
UNITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}


def ip(*words):
    """Runs ip and returns its output. Throws subprocess.CalledProcessError if it fails."""
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout


def bits_per_second(rate):
    """Returns the number that a rate such as 100mbit means. Throws ValueError if it is none."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([kmg]bit)", rate)
    if not found:
        raise ValueError(f"'{rate}' is no rate; write e.g. 100mbit or 2.5gbit")
    return int(float(found[1]) * UNITS[found[2]])


def limit(space, device, rate):
    """Limits what a device sends. The bucket holds 2 ms, but at least a whole packet of 64 KiB."""
    bits = bits_per_second(rate)
    subprocess.run(["tc", "-n", space, "qdisc", "replace", "dev", device, "root", "tbf", "rate", f"{bits}bit", "burst",
                    str(max(1 << 16, bits // 8 // 500)), "latency", "50ms"], check=True, capture_output=True, text=True)


def remove(space):
    """Removes a name space of the network, after it has ended the processes there."""
    with contextlib.suppress(subprocess.CalledProcessError):  # there is none of this name
        for process in ip("netns", "pids", space).split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(process), signal.SIGKILL)
        ip("netns", "del", space)


def remove_leftovers():
    """Removes the hosts of clusters whose process is gone."""
    for name, process in NAMES.findall(ip("netns", "list")):
        if not os.path.exists(f"/proc/{process}"):
            remove(name)


class Cluster:
    """Hosts with one link each. cluster() makes one."""

    def __init__(self, nodes, rate, launcher):
        self.name = f"partita-{os.getpid()}"
        self.hosts = [f"{self.name}-{host}" for host in range(1, nodes + 1)]
        self.switch = f"{self.name}-switch"
        self.rate, self.launcher, self.jobs = rate, launcher, []

    def build(self):
        """Makes the hosts, the switch and the links, and waits until these carry packets."""
        ip("netns", "add", self.switch)
        ip("-n", self.switch, "link", "add", "bridge", "type", "bridge")
        ip("-n", self.switch, "link", "set", "bridge", "up")
        for number, host in enumerate(self.hosts, 1):
            port = f"port{number}"
            ip("netns", "add", host)
            ip("link", "add", "eth0", "netns", host, "type", "veth", "peer", "name", port, "netns", self.switch)
            ip("-n", self.switch, "link", "set", port, "master", "bridge", "up")
            ip("-n", host, "addr", "add", f"{SUBNET}.{number}/24", "dev", "eth0")
            ip("-n", host, "link", "set", "lo", "up")
            ip("-n", host, "link", "set", "eth0", "up")
            if self.rate:
                limit(host, "eth0", self.rate)
                limit(self.switch, port, self.rate)
        for host in self.hosts:
            for _ in range(500):
                if self.link(host)["operstate"] == "UP":
                    break
                time.sleep(0.01)

    def destroy(self):
        """Ends the jobs and removes the hosts."""
        for job in self.jobs:
            job.kill()
        for space in (*self.hosts, self.switch):
            remove(space)

    def run_on_first(self, *command, **more):
        """Starts a command on the first host. `more` goes to subprocess.Popen. To kill it ends all that it started."""
        self.jobs.append(subprocess.Popen([ON_HOST, f"{SUBNET}.1", shlex.join(map(str, command))],
                                          env={**os.environ, "PARTITA_CLUSTER": self.name}, **more))
        return self.jobs[-1]

    def start(self, ranks, *command, **more):
        """Starts a command as `ranks` ranks on each host, by the launcher on the first host. For `more` see
        run_on_first."""
        hosts = ",".join(f"{SUBNET}.{number}:{ranks}" for number in range(1, len(self.hosts) + 1))
        return self.run_on_first(self.launcher, "-launcher", "ssh", "-launcher-exec", ON_HOST, "-hosts", hosts,
                                 "-iface", "eth0", "-n", ranks * len(self.hosts), *command, **more)

    def link(self, host):
        """Returns what ip tells of the link of a host."""
        return json.loads(ip("-n", host, "-s", "-j", "link", "show", "eth0"))[0]

    def sent(self, host):
        """Returns the bytes that a host has sent over its link, with all headers."""
        return self.link(host)["stats64"]["tx"]["bytes"]

    def cut(self, host):
        """Cuts the link of a host."""
        ip("-n", host, "link", "set", "eth0", "down")


@contextlib.contextmanager
def cluster(nodes, rate="", launcher="mpiexec"):
    """Gives a block a cluster of `nodes` hosts. Each link has the rate in both directions, e.g. 100mbit; "" means none
    but the machine's own. SIGTERM ends the block too. Ask lacks() first whether this machine allows it."""
    made = Cluster(nodes, rate, launcher)
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        remove_leftovers()
        made.build()
        yield made
    finally:
        made.destroy()
        signal.signal(signal.SIGTERM, before)


def lacks(launcher="mpiexec"):
    """Returns why there can be no cluster here, or ""."""
    if os.geteuid() != 0:
        return "name spaces need root"
    for program in ("ip", "tc"):
        if not shutil.which(program):
            return f"there is no '{program}' (package iproute2)"
    known = shutil.which(launcher) and subprocess.run([launcher, "--version"], check=False, capture_output=True).stdout
    if not known or b"HYDRA" not in known:
        return "the launcher is not MPICH's"
    try:
        with cluster(1, "1gbit") as made:
            job = made.run_on_first("true", stderr=subprocess.PIPE, text=True)
            error = job.communicate()[1]
            return f"this machine allows no hosts: {error.strip()}" if job.returncode else ""
    except subprocess.CalledProcessError as failed:
        return f"this machine does not allow '{shlex.join(failed.cmd)}': {failed.stderr.strip()}"


USAGE = "usage: cluster.py NODES [--ranks R] [--rate 100mbit] [--launcher mpiexec] COMMAND..."


def main(words):
    """Runs the command of a command line, and returns its exit status."""
    options = {"--ranks": "1", "--rate": "", "--launcher": "mpiexec"}
    try:
        nodes, words = int(words[0]), words[1:]
        while words[0] in options:
            options[words[0]], words = words[1], words[2:]
        ranks, rate, launcher = int(options["--ranks"]), options["--rate"], options["--launcher"]
        if not (0 < nodes < 255 and ranks > 0 and words):
            raise ValueError("there are 1 to 254 hosts, with at least 1 rank each")
        bits_per_second(rate or "1gbit")
    except IndexError:
        print(f"{USAGE}: the command is missing", file=sys.stderr)
        return 2
    except ValueError as error:
        print(f"{USAGE}: {error}", file=sys.stderr)
        return 2
    reason = lacks(launcher)
    if reason:
        print("skipped:", reason)
        return 77
    with cluster(nodes, rate, launcher) as made:
        return made.start(ranks, *words).wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
