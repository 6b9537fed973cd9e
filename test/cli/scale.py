"""Tests the verb scale: what it measures and writes, that an interrupted experiment can be continued, that a failed run
is recorded and the others continue, and what it refuses before any run. Arguments: the launcher build/mpiexec and the
program build/partita."""

import csv
import fcntl
import json
import os
import re
import stat
import subprocess
import sys
import tempfile
import time

LAUNCHER, PROGRAM = map(os.path.abspath, sys.argv[1:3])
SMALL = ["--model", "lenet5", "--width", "0.25", "--batch", "8", "--steps", "3"]
SPATIAL = 'grid = "y=2"\n[[layer]]\nmatch = "*"\noutput = "H@y"\n'
BROKEN = 'grid = "data=2"\n[[layer]]\nmatch = "no-such-layer"\noutput = "N@data"\n'


def check(name, holds, shown=""):
    print(f"{'ok  ' if holds else 'FAIL'} {name}", flush=True)
    assert holds, shown


def scale(folder, *arguments, status=0, environment=None):
    result = subprocess.run([PROGRAM, "scale", *arguments], cwd=folder, capture_output=True, text=True, timeout=60, check=False,
                            env={**os.environ, **(environment or {})})
    assert result.returncode == status, f"{arguments}: status {result.returncode}\n{result.stdout}{result.stderr}"
    return result


def load(folder, name="r.json"):
    with open(os.path.join(folder, name), encoding="utf-8") as file:
        return json.load(file)


def write(folder, name, text):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
        file.write(text)


def refused(name, arguments, *patterns, prepare=lambda folder: None, environment=None):
    """Checks that scale prints one error line, returns status 2 and writes nothing."""
    with tempfile.TemporaryDirectory() as folder:
        prepare(folder)
        before = sorted(os.listdir(folder))
        result = scale(folder, *arguments, status=2, environment=environment)
        lines = result.stderr.splitlines()
        check(f"refused: {name}: {lines[-1]}", len(lines) == 1 and all(re.search(p, lines[0]) for p in patterns) and
              sorted(os.listdir(folder)) == before, result.stderr)


def strong():
    with tempfile.TemporaryDirectory() as folder:
        out = ["--out", "r.json", "--csv", "r.csv"]
        result = scale(folder, *SMALL, "--ranks", "1", "2", "--repeats", "2", *out)
        report = load(folder)
        runs = report["runs"]
        check("one run per number of ranks", [run["ranks"] for run in runs] == [1, 2])
        check("the report's header", report["subject"] == "scale" and report["model"] == "lenet5" and
              set(report["conditions"]) >= {"processor", "cores", "threads", "repeats", "mpi", "date"})
        check("two repeats", all(len(run["repeats"]) == 2 for run in runs))
        check("the median lies between the repeats", all(min(run["repeats"]) <= run["seconds"] <= max(run["repeats"]) for run in runs))
        check("images per second", all(abs(run["images_per_second"] * run["seconds"] / 8 - 1) < 1e-9 for run in runs))
        check("speed-up and efficiency", runs[0]["speed_up"] == runs[0]["efficiency"] == 1 and
              abs(runs[1]["speed_up"] - runs[0]["seconds"] / runs[1]["seconds"]) < 1e-9 and
              abs(runs[1]["efficiency"] - runs[1]["speed_up"] / 2) < 1e-9)
        check("numbers of ranks run in turns", [re.search(r"(\d) ranks?,", line).group(1) for line in result.stderr.splitlines()
                                          if line.startswith("run ")] == ["1", "2", "1", "2"], result.stderr)
        check("one line per run in the table", len(re.findall(r"^data=\{\} +\d", result.stdout, re.M)) == 2, result.stdout)
        with open(os.path.join(folder, "r.csv"), encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        check("the CSV file has the same rows", [(row["strategy"], int(row["ranks"]), float(row["seconds"])) for row in rows] ==
              [(run["strategy"], run["ranks"], run["seconds"]) for run in runs])
        check("no other files are left", sorted(os.listdir(folder)) == ["r.csv", "r.json"])
        again = scale(folder, *SMALL, "--ranks", "1", "2", "--repeats", "2", *out)
        check("nothing is run twice", "4 of 4 runs" in again.stderr and "run 1" not in again.stderr and load(folder) == report)
        scale(folder, *SMALL, "--ranks", "1", "2", "3", "--repeats", "2", *out)
        check("more numbers of ranks can be added later", load(folder)["runs"][:2] == runs and load(folder)["runs"][2]["ranks"] == 3)
        result = scale(folder, *SMALL, "--ranks", "1", "--out", "r.json", "--weak", status=2)
        check("another experiment is refused", "its scaling is 'strong', here 'weak'" in result.stderr, result.stderr)


def strategies():
    with tempfile.TemporaryDirectory() as folder:
        write(folder, "spatial.toml", SPATIAL)
        write(folder, "broken.toml", BROKEN)
        result = scale(folder, *SMALL, "--ranks", "1", "2", "--repeats", "2", "--strategy", "broken.toml", "spatial.toml", "--out",
                       "r.json", status=1)
        runs = {run["strategy"]: run for run in load(folder)["runs"]}
        check("the other runs continue", set(runs) == {"serial", "broken.toml", "spatial.toml"} and
              len(runs["spatial.toml"]["repeats"]) == 2, runs)
        broken = runs["broken.toml"]
        check("a failed run is recorded", broken["status"] == 2 and broken["seconds"] is None and "no-such-layer" in broken["message"])
        check("a failed run is printed once", result.stderr.count("no-such-layer") == 1 and "failed with status 2" in result.stdout, result.stderr)
        serial = runs["serial"]
        check("the speed-up of a fixed grid refers to the serial program", abs(runs["spatial.toml"]["speed_up"] * runs["spatial.toml"]["seconds"] /
              serial["seconds"] - 1) < 1e-9)
        write(folder, "spatial.toml", SPATIAL.replace("H@y", "W@y"))
        result = scale(folder, *SMALL, "--ranks", "1", "2", "--repeats", "2", "--strategy", "spatial.toml", "--out", "r.json", status=2)
        check("another strategy of the same name is refused", "'spatial.toml' on 2 ranks was different" in result.stderr, result.stderr)
        result = scale(folder, *SMALL, "--ranks", "2", "--repeats", "1", "--weak", "--grid", "data={}", "y={}", "data={} y=3",
                       "--rule", "*: N@data H@y", status=1)
        check("grids with a wildcard", "y={}" in result.stdout and "note: data={} y=3 fits none of --ranks 2" in result.stderr)
        check("a rule with an unknown axis fails in its run", 'run 1/2  data={}, 2 ranks, batch 16: failed' in result.stderr,
              result.stderr)


def resume():
    with tempfile.TemporaryDirectory() as folder:
        arguments = [*SMALL, "--ranks", "1", "2", "--repeats", "3", "--out", "r.json"]
        job = subprocess.Popen([PROGRAM, "scale", *arguments], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                               text=True)
        while "run 1/" not in job.stderr.readline():
            assert job.poll() is None, "it ended before its first run"
        job.kill()
        job.wait()
        job.stderr.close()
        done = [run["repeats"] for run in load(folder)["runs"]]
        check(f"an interrupted experiment leaves a complete file: {done}", 1 <= sum(map(len, done)) < 6)
        time.sleep(1)  # until the launcher has ended its ranks
        result = scale(folder, *arguments)
        count = sum(map(len, done))
        check("the remaining runs are done", f"{count} of 6 runs are already in r.json" in result.stderr and "run 6/6" in result.stderr)
        after = [run["repeats"] for run in load(folder)["runs"]]
        check("earlier results stay", all(len(b) == 3 and b[:len(a)] == a for a, b in zip(done, after)), after)
        check("no other files are left", os.listdir(folder) == ["r.json"])
        for name, text in (("cut", json.dumps(load(folder))[:200]), ("other", '{"subject": "train"}'), ("empty", "")):
            write(folder, "r.json", text)
            result = scale(folder, *arguments, status=2)
            check(f"a damaged file ({name}) is refused", "--out r.json: it is not a file that scale wrote" in result.stderr and
                  len(result.stderr.splitlines()) == 1, result.stderr)
        write(folder, "launch", "#!/bin/sh\nshift 2\nexec \"$@\"\n")
        os.chmod(os.path.join(folder, "launch"), stat.S_IRWXU)
        result = scale(folder, *SMALL, "--ranks", "2", "--repeats", "2", "--mpiexec", "./launch", status=1)
        check("a launcher that starts one rank for two", "but 1 was started" in result.stderr, result.stderr)


def hosts():
    """Host files, with a launcher that reads them as Hydra does, and a launcher that never starts any rank."""
    with tempfile.TemporaryDirectory() as folder:
        for number, text in enumerate(("localhost\n", "# two ranks\n\nlocalhost:2\n")):
            write(folder, "hosts", text)
            scale(folder, *SMALL, "--ranks", "2", "--repeats", "1", "--hostfile", "hosts", "--out", f"r{number}.json")
            report = load(folder, f"r{number}.json")
            check("ranks run on the host in the file", "--hostfile hosts" in report["conditions"]["launcher"] and
                  report["runs"][0]["seconds"] > 0, report)
            os.remove(os.path.join(folder, f"r{number}.json"))
            if "MPICH" not in report["conditions"]["mpi"]:
                break  # Open MPI has another syntax for numbers of ranks
        write(folder, "launch", "#!/bin/sh\necho host b: connection refused >&2\nexec sleep 60\n")
        os.chmod(os.path.join(folder, "launch"), stat.S_IRWXU)
        start = time.monotonic()
        result = scale(folder, *SMALL, "--ranks", "2", "--repeats", "2", "--mpiexec", "./launch", "--timeout", "1", "--out", "r.json",
                       status=1)
        check("a launcher that hangs is reported and ended", time.monotonic() - start < 10 and
              "note: no rank has started yet; the launcher printed\nhost b: connection refused\n" in result.stderr, result.stderr)
        run = load(folder)["runs"][0]
        check("the failure is recorded", run["status"] == 143 and run["repeats"] == [] and
              run["message"] == "no rank had started after 1 s: host b: connection refused", run)
        check("no files of its runs are left", sorted(os.listdir(folder)) == ["hosts", "launch", "r.json"])


def two_at_once():
    """An experiment neither uses nor removes the files of another one that is running."""
    with tempfile.TemporaryDirectory() as folder:
        runs = os.path.join(folder, "r.json.runs")
        os.mkdir(runs)
        with open(os.path.join(runs, "of-partita-scale"), "w", encoding="utf-8") as mark:
            fcntl.lockf(mark, fcntl.LOCK_EX)
            result = scale(folder, *SMALL, "--ranks", "1", "--repeats", "1", "--out", "r.json", status=2)
            check("another experiment is writing the file", "--out r.json: another scale is writing this file now" in result.stderr and
                  os.listdir(runs) == ["of-partita-scale"], result.stderr)
        scale(folder, *SMALL, "--ranks", "1", "--repeats", "1", "--out", "r.json")
        check("the folder of an ended experiment is taken over", os.listdir(folder) == ["r.json"])


strong()
strategies()
resume()
two_at_once()
hosts()
for refused_hosts, line in (("localhost:2\nno-such-host.invalid:2\n", "hosts, line 2: the host 'no-such-host.invalid' is unknown"),
                            ("# none\n\n", "hosts: it names no host")):
    refused("hosts", [*SMALL, "--ranks", "1", "--hostfile", "hosts", "--out", "r.json"], line,
            prepare=lambda folder, text=refused_hosts: write(folder, "hosts", text))
refused("no ranks", SMALL, "needs the numbers of ranks")
refused("not a number", ["--ranks", "two"], "two")
refused("results to a device", [*SMALL, "--ranks", "1", "--out", "/dev/null"], "--out /dev/null: it is not seekable; pass a regular file")
refused("no folder for temporary files", [*SMALL, "--ranks", "1"], "set TMPDIR", environment={"TMPDIR": "/nowhere"})
refused("more samples than fit", ["--data", "synthetic", "--model", "lenet5", "--ranks", "1", "4096", "--weak", "--batch", "1048576"],
        "--batch 1048576: with 4096 ranks a step takes 4294967296 samples, but the most is 2147483648")
refused("zero ranks", [*SMALL, "--ranks", "0", "2"], "--ranks 0")
refused("ranks twice", [*SMALL, "--ranks", "1", "2", "2"], "--ranks 1 2 2", "ascending")
refused("ranks in descending order", [*SMALL, "--ranks", "2", "1"], "ascending")
refused("unknown option", [*SMALL, "--ranks", "1", "--widht", "2"], "widht")
refused("an option of train that scale sets itself", [*SMALL, "--ranks", "1", "--json", "x.json"], "--json", "leave it out")
refused("no repeats", [*SMALL, "--ranks", "1", "--repeats", "0"], "--repeats 0")
refused("unwritable", [*SMALL, "--ranks", "1", "--out", "nowhere/r.json"], "--out nowhere/r.json")
refused("a folder", [*SMALL, "--ranks", "1", "--csv", "."], "--csv .")
refused("no launcher", [*SMALL, "--ranks", "1", "--mpiexec", "no-such-launcher -x"], "no program no-such-launcher")
refused("no host file", [*SMALL, "--ranks", "1", "--hostfile", "hosts"], "--hostfile hosts", "No such file")
refused("no strategy file", [*SMALL, "--ranks", "2", "--strategy", "no.toml"], "no.toml")
refused("a strategy that fits no number of ranks", [*SMALL, "--ranks", "1", "3", "--strategy", "s.toml"], "s.toml fits none of --ranks 1 3",
        prepare=lambda folder: write(folder, "s.toml", SPATIAL))
refused("two wildcards", [*SMALL, "--ranks", "4", "--grid", "data={} y={}", "--rule", "*: N@data"], r"only one axis can have \{\}")
refused("a grid without rules", [*SMALL, "--ranks", "2", "--grid", "rows={}"], "only axes named data, c, z, y and x say which dimension")
refused("too few samples", [*SMALL, "--ranks", "1", "--samples", "4"], "takes 8 samples", "has 4")
refused("missing data", ["--ranks", "1", "--data", "fashion-mnist", "--data-dir", "nowhere"], "nowhere")
refused("inside an MPI job", [*SMALL, "--ranks", "1"], "starts mpiexec itself", environment={"PMI_RANK": "0"})
