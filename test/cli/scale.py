"""Tests the verb scale: what it measures and writes, that an interrupted experiment can be continued, that a failed run
is recorded and the others continue, and what it refuses before any run. Arguments: the launcher build/mpiexec and the
program build/partita."""

import fcntl
import json
import os
import re
import sys
import time

from checks import Program, begin, check, read_csv, read_json, refused, refuses, run_parts, write

partita = Program(sys.argv[2], sys.argv[1])
SMALL = ["--model", "lenet5", "--width", "0.25", "--batch", "8", "--steps", "3"]
SPATIAL = 'grid = "y=2"\n[[layer]]\nmatch = "*"\noutput = "H@y"\n'
BROKEN = 'grid = "data=2"\n[[layer]]\nmatch = "no-such-layer"\noutput = "N@data"\n'


def scale(*arguments, **more):
    """Runs the verb scale."""
    return partita("scale", *arguments, **more)


def launcher(text):
    """Writes a program that takes the place of the launcher."""
    os.chmod(write("launch", f"#!/bin/sh\n{text}"), 0o700)


def bad(name, arguments, *patterns, prepare=None, variables=None):
    """Checks that scale prints one error and writes nothing."""
    refuses(name, lambda: scale(*arguments, variables=variables, status=2), *patterns, prepare=prepare)


def strong():
    """One model on several numbers of ranks, and what the files have."""
    out = ["--out", "r.json", "--csv", "r.csv"]
    ran = scale(*SMALL, "--ranks", "1", "2", "--repeats", "2", *out)
    report = read_json("r.json")
    runs = report["runs"]
    check("one run per number of ranks", [run["ranks"] for run in runs] == [1, 2])
    check("the report's header", report["subject"] == "scale" and report["model"] == "lenet5" and
          set(report["conditions"]) >= {"processor", "cores", "threads", "repeats", "mpi", "date"})
    check("two repeats", all(len(run["repeats"]) == 2 for run in runs))
    check("the median lies between the repeats", all(min(run["repeats"]) <= run["seconds"] <= max(run["repeats"])
                                                     for run in runs))
    check("images per second", all(abs(run["images_per_second"] * run["seconds"] / 8 - 1) < 1e-9 for run in runs))
    check("speed-up and efficiency", runs[0]["speed_up"] == runs[0]["efficiency"] == 1 and
          abs(runs[1]["speed_up"] - runs[0]["seconds"] / runs[1]["seconds"]) < 1e-9 and
          abs(runs[1]["efficiency"] - runs[1]["speed_up"] / 2) < 1e-9)
    check("efficiency against the serial time", runs[0]["against_serial"] == 1 and
          abs(runs[1]["against_serial"] - runs[1]["efficiency"]) < 1e-9)
    check("numbers of ranks run in turns", [re.search(r"(\d) ranks?,", line).group(1) for line in ran.err.splitlines()
                                            if line.startswith("run ")] == ["1", "2", "1", "2"], ran.err)
    check("one line per run in the table", len(re.findall(r"^data=\{\} +\d", ran.out, re.M)) == 2, ran.out)
    rows = read_csv("r.csv")
    check("the CSV file has the same rows", [(row["strategy"], int(row["ranks"]), float(row["seconds"]))
                                             for row in rows] == [(run["strategy"], run["ranks"], run["seconds"])
                                                                  for run in runs])
    check("its last columns too", [(float(row["against_serial"]), row["predicted"], row["error"], row["status"])
                                   for row in rows] == [(run["against_serial"], "", "", "0") for run in runs], rows)
    check("no other files are left", sorted(os.listdir()) == ["r.csv", "r.json"])
    again = scale(*SMALL, "--ranks", "1", "2", "--repeats", "2", *out)
    check("none is run twice", "4 of 4 runs" in again.err and "run 1" not in again.err and
          read_json("r.json") == report)
    scale(*SMALL, "--ranks", "1", "2", "3", "--repeats", "2", *out)
    check("more numbers of ranks can be added later", read_json("r.json")["runs"][:2] == runs and
          read_json("r.json")["runs"][2]["ranks"] == 3)
    ran = scale(*SMALL, "--ranks", "1", "--out", "r.json", "--weak", status=2)
    check("another experiment is refused", "its scaling is 'strong', here 'weak'" in ran.err, ran.err)


def strategies():
    """Several strategies, of which one fails."""
    write("spatial.toml", SPATIAL)
    write("broken.toml", BROKEN)
    ran = scale(*SMALL, "--ranks", "1", "2", "--repeats", "2", "--strategy", "broken.toml", "spatial.toml", "--out",
                "r.json", status=1)
    runs = {run["strategy"]: run for run in read_json("r.json")["runs"]}
    check("the other runs continue", set(runs) == {"serial", "broken.toml", "spatial.toml"} and
          len(runs["spatial.toml"]["repeats"]) == 2, runs)
    broken = runs["broken.toml"]
    check("a failed run is recorded", broken["status"] == 2 and broken["seconds"] is None and
          "no-such-layer" in broken["message"])
    check("a failed run is printed once", ran.err.count("no-such-layer") == 1 and "failed with status 2" in ran.out,
          ran.err)
    serial = runs["serial"]
    check("the speed-up of a fixed grid refers to the serial program",
          abs(runs["spatial.toml"]["speed_up"] * runs["spatial.toml"]["seconds"] / serial["seconds"] - 1) < 1e-9)
    best = min(run["seconds"] for run in runs.values() if run["ranks"] == 1 and run["seconds"])
    check("a fixed grid has an efficiency against the best serial time",
          abs(runs["spatial.toml"]["against_serial"] * 2 * runs["spatial.toml"]["seconds"] / best - 1) < 1e-9 and
          broken["against_serial"] is None)
    write("spatial.toml", SPATIAL.replace("H@y", "W@y"))
    ran = scale(*SMALL, "--ranks", "1", "2", "--repeats", "2", "--strategy", "spatial.toml", "--out", "r.json",
                status=2)
    check("another strategy of a name is refused", "'spatial.toml' on 2 ranks was different" in ran.err, ran.err)
    ran = scale(*SMALL, "--ranks", "2", "--repeats", "1", "--weak", "--grid", "data={}", "y={}", "data={} y=3",
                "--rule", "*: N@data H@y", status=1)
    check("grids with a wildcard", "y={}" in ran.out and "note: data={} y=3 fits none of --ranks 2" in ran.err)
    check("a rule with an unknown axis fails in its run", 'run 1/2  data={}, 2 ranks, batch 16: failed' in ran.err,
          ran.err)


def resume():
    """An experiment that is interrupted and goes on."""
    arguments = [*SMALL, "--ranks", "1", "2", "--repeats", "3", "--out", "r.json"]
    job = partita.start("scale", *arguments)
    begin(job, "run 1/")
    job.kill()
    job.wait()
    job.stdout.close()
    done = [run["repeats"] for run in read_json("r.json")["runs"]]
    check(f"an interrupted experiment leaves a complete file: {done}", 1 <= sum(map(len, done)) < 6)
    time.sleep(1)  # until the launcher has ended its ranks
    ran = scale(*arguments)
    count = sum(map(len, done))
    check("the others are done", f"{count} of 6 runs are already in r.json" in ran.err and "run 6/6" in ran.err)
    after = [run["repeats"] for run in read_json("r.json")["runs"]]
    check("earlier results stay", all(len(b) == 3 and b[:len(a)] == a for a, b in zip(done, after)), after)
    check("no other files are left", os.listdir() == ["r.json"])
    for name, text in (("cut", json.dumps(read_json("r.json"))[:200]), ("other", '{"subject": "train"}'),
                       ("empty", "")):
        write("r.json", text)
        refused(f"a file ({name})", scale(*arguments, status=2), "--out r.json: it is not a file that scale wrote")
    launcher('shift 2\nexec "$@"\n')
    ran = scale(*SMALL, "--ranks", "2", "--repeats", "2", "--mpiexec", "./launch", status=1)
    check("a launcher that starts one rank for two", "but 1 was started" in ran.err, ran.err)


def hosts():
    """Host files, with a launcher that reads them as Hydra does, and a launcher that never starts any rank."""
    for number, text in enumerate(("localhost\n", "# two ranks\n\nlocalhost:2\n")):
        write("hosts", text)
        scale(*SMALL, "--ranks", "2", "--repeats", "1", "--hostfile", "hosts", "--out", f"r{number}.json")
        report = read_json(f"r{number}.json")
        check("no run on one rank, no serial time", report["runs"][0]["against_serial"] is None)
        check("ranks run on the host in the file", "--hostfile hosts" in report["conditions"]["launcher"] and
              report["runs"][0]["seconds"] > 0, report)
        os.remove(f"r{number}.json")
        if "MPICH" not in report["conditions"]["mpi"]:
            break  # Open MPI has another syntax for numbers of ranks
    launcher("echo host b: connection refused >&2\nexec sleep 60\n")
    start = time.monotonic()
    ran = scale(*SMALL, "--ranks", "2", "--repeats", "2", "--mpiexec", "./launch", "--timeout", "1", "--out", "r.json",
                status=1)
    check("a launcher that hangs is reported and ended", time.monotonic() - start < 10 and
          "note: no rank has started yet; the launcher printed\nhost b: connection refused\n" in ran.err, ran.err)
    run = read_json("r.json")["runs"][0]
    check("the failure is recorded", run["status"] == 143 and run["repeats"] == [] and
          run["message"] == "no rank had started after 1 s: host b: connection refused", run)
    check("no files of its runs are left", sorted(os.listdir()) == ["hosts", "launch", "r.json"])


def two_at_once():
    """An experiment neither uses nor removes the files of another one that is running."""
    runs = "r.json.runs"
    os.mkdir(runs)
    with open(os.path.join(runs, "of-partita-scale"), "w", encoding="utf-8") as mark:
        fcntl.lockf(mark, fcntl.LOCK_EX)
        ran = scale(*SMALL, "--ranks", "1", "--repeats", "1", "--out", "r.json", status=2)
        check("another experiment is writing the file", "--out r.json: another scale is writing this file now" in
              ran.err and os.listdir(runs) == ["of-partita-scale"], ran.err)
    scale(*SMALL, "--ranks", "1", "--repeats", "1", "--out", "r.json")
    check("the folder of an ended experiment is taken over", os.listdir() == ["r.json"])


def refusals():
    """What is refused before any run."""
    for refused_hosts, line in (("localhost:2\nno-such-host.invalid:2\n",
                                 "hosts, line 2: the host 'no-such-host.invalid' is unknown"),
                                ("# none\n\n", "hosts: it names no host")):
        bad("hosts", [*SMALL, "--ranks", "1", "--hostfile", "hosts", "--out", "r.json"], line,
            prepare=lambda text=refused_hosts: write("hosts", text))
    bad("no ranks", SMALL, "needs the numbers of ranks")
    bad("not a number", ["--ranks", "two"], "two")
    bad("results to a device", [*SMALL, "--ranks", "1", "--out", "/dev/null"],
        "--out /dev/null: it is not seekable; pass a regular file")
    bad("no folder for temporary files", [*SMALL, "--ranks", "1"], "set TMPDIR", variables={"TMPDIR": "/nowhere"})
    bad("more samples than fit", ["--data", "synthetic", "--model", "lenet5", "--ranks", "1", "4096", "--weak",
                                  "--batch", "1048576"],
        "--batch 1048576: with 4096 ranks a step takes 4294967296 samples, but the most is 2147483648")
    bad("zero ranks", [*SMALL, "--ranks", "0", "2"], "--ranks 0")
    bad("ranks twice", [*SMALL, "--ranks", "1", "2", "2"], "--ranks 1 2 2", "ascending")
    bad("ranks in descending order", [*SMALL, "--ranks", "2", "1"], "ascending")
    bad("unknown option", [*SMALL, "--ranks", "1", "--widht", "2"], "widht")
    bad("an option that scale sets itself", [*SMALL, "--ranks", "1", "--json", "x.json"], "--json", "leave it out")
    bad("no repeats", [*SMALL, "--ranks", "1", "--repeats", "0"], "--repeats 0")
    bad("unwritable", [*SMALL, "--ranks", "1", "--out", "nowhere/r.json"], "--out nowhere/r.json")
    bad("a folder", [*SMALL, "--ranks", "1", "--csv", "."], "--csv .")
    bad("no launcher", [*SMALL, "--ranks", "1", "--mpiexec", "no-such-launcher -x"], "no program no-such-launcher")
    bad("no host file", [*SMALL, "--ranks", "1", "--hostfile", "hosts"], "--hostfile hosts", "No such file")
    bad("no strategy file", [*SMALL, "--ranks", "2", "--strategy", "no.toml"], "no.toml")
    bad("a strategy that fits no number of ranks", [*SMALL, "--ranks", "1", "3", "--strategy", "s.toml"],
        "s.toml fits none of --ranks 1 3", prepare=lambda: write("s.toml", SPATIAL))
    bad("two wildcards", [*SMALL, "--ranks", "4", "--grid", "data={} y={}", "--rule", "*: N@data"],
        r"only one axis can have \{\}")
    bad("a grid without rules", [*SMALL, "--ranks", "2", "--grid", "rows={}"],
        "only axes named data, c, z, y, x and seq say which dimension")
    bad("too few samples", [*SMALL, "--ranks", "1", "--samples", "4"], "takes 8 samples", "has 4")
    bad("missing data", ["--ranks", "1", "--data", "fashion-mnist", "--data-dir", "nowhere"], "nowhere")
    bad("inside an MPI job", [*SMALL, "--ranks", "1"], "starts mpiexec itself", variables={"PMI_RANK": "0"})


run_parts(strong, strategies, resume, two_at_once, hosts, refusals, apart=True)
