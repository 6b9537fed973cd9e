"""docs/json.md lists the keys that the program writes as JSON: all of them, and no others.
Arguments: the launcher build/mpiexec and the program build/partita."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

LAUNCHER, PROGRAM = map(os.path.abspath, sys.argv[1:3])
ROOT = pathlib.Path(__file__).resolve().parents[2]
STRATEGIES = ROOT / "examples/strategies"
MACHINES = ROOT / "examples/machines"
SMALL = ["--data", "synthetic", "--samples", "16", "--batch", "8", "--dtype", "f64"]


def listed(text):
    """The rows of each section's table: section -> {key: it is optional}."""
    sections, here = {}, None
    for line in text.splitlines():
        if line.startswith("## "):
            here = sections.setdefault(line[3:], {})
        elif row := re.match(r"\| `([^`]+)` \|(.*)\|$", line):
            assert row[1] not in here, f"docs/json.md lists {row[1]} twice"
            here[row[1]] = "*optional*" in row[2]
    return sections


def keys(value, path=""):
    """The paths of all numbers, texts and nulls, e.g. "strategies[].parts.halo". An empty list has none."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from keys(inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for inner in value:
            yield from keys(inner, path + "[]")
    else:
        yield path


def run(ranks, *arguments, status=0):
    command = ([LAUNCHER, "-n", str(ranks)] if ranks else []) + [PROGRAM, *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == status, f"{command}: status {result.returncode}\n{result.stdout}{result.stderr}"
    return result.stdout


def documents(folder):
    """What each verb writes: verb -> documents."""
    def read(name):
        return json.loads((folder / name).read_text(encoding="utf-8"))

    written = {}
    pipeline = folder / "pipeline.toml"
    pipeline.write_text('grid = "data=1"\nstages = 2\n[schedule]\nkind = "1f1b"\nmicrobatches = 2\n', encoding="utf-8")
    run(2, "train", *SMALL, "--strategy", pipeline, "--save", folder / "w.h5", "--json", folder / "train.json")
    run(1, "train", *SMALL, "--no-test", "--json", folder / "serial.json")
    segments = ["--model", "unet3d", "--size", "16", "--width", "0.25", "--batch", "1", "--data", "synthetic", "--samples", "2"]
    run(1, "train", *segments, "--validate", "0.5", "--save", folder / "s.h5", "--json", folder / "segments.json")
    run(1, "train", *SMALL, "--no-test", "--validate", "test", "--json", folder / "validated.json")
    run(1, "train", *SMALL[:-1], "f16", "--no-test", "--json", folder / "f16.json")
    written["train"] = [read(f"{name}.json") for name in ("train", "serial", "segments", "validated", "f16")]
    run(2, "evaluate", *SMALL, "--strategy", pipeline, "--load", folder / "w.h5", "--json", folder / "evaluate.json")
    run(1, "evaluate", *segments, "--load", folder / "s.h5", "--json", folder / "segmented.json")
    written["evaluate"] = [read("evaluate.json"), read("segmented.json")]
    run(0, "compare", "--strategies", STRATEGIES / "fashion-cnn-hybrid.toml", STRATEGIES / "fashion-cnn-pipeline.toml",
        "--memory-limit", "1MiB", "--json", folder / "compare.json", status=2)
    run(2, "compare", "--batch", "8", "--strategies", pipeline, "--measure", "--json", folder / "measured.json")
    run(0, "compare", "--batch", "4096", "--machine", MACHINES / "dgx-a100.toml", "--strategies", STRATEGIES / "fashion-cnn-pipeline.toml",
        "--json", folder / "chosen.json")
    written["compare"] = [read("compare.json"), read("measured.json"), read("chosen.json")]
    run(0, "simulate", "--batch", "8", "--grid", "data=2", "--out", folder / "replay", "--json", folder / "simulate.json")
    written["simulate"] = [read("simulate.json")]
    run(0, "explain", "--batch", "8", "--strategy", STRATEGIES / "fashion-cnn-hybrid.toml", "--json", folder / "explain.json")
    run(0, "explain", "--batch", "8", "--grid", "c=2", "--rule", "*: C@c", "--rule", "relu*: C@c", "--machine", MACHINES / "dgx-a100.toml", "--json",
        folder / "channels.json")
    run(0, "explain", "--batch", "8", "--evaluation", "--json", folder / "evaluated.json")
    written["explain"] = [read("explain.json"), read("channels.json"), read("evaluated.json")]
    run(0, "compare", "--ranks", "1", "2", "3", "--grid", "data={} y=2", "--rule", "*: N@data H@y", "--json", folder / "curves.json")
    written["curves"] = [read("curves.json")]
    written["schedule"] = [json.loads(run(0, "schedule", "--kind", "chimera", "--json", "/dev/stdout"))]
    written["info"] = [json.loads(run(0, "info", "--json"))]
    run(0, "scale", "--ranks", "1", "2", "--steps", "2", "--repeats", "1", "--batch", "8", "--out", folder / "scale.json")
    written["scale"] = [read("scale.json")]
    return written


def complaints(expected, written):
    """What is wrong between the rows of a section and the documents of its verb."""
    found = [set(keys(document)) for document in written]
    together = set().union(*found)
    open_ended = tuple(key[:-1] for key in expected if key.endswith(".*"))
    known = {key for key in together if key.startswith(open_ended) or f"{key}.*" in expected}
    wrong = [f"{key} is written, but docs/json.md does not list it" for key in sorted(together - known - set(expected))]
    for key, optional in expected.items():
        if key.endswith(".*"):
            continue
        if not optional and not all(key in one for one in found):
            wrong.append(f"{key} is listed as always written, but is not")
        elif optional and "message" not in key and key != "warnings[]" and key not in together:
            wrong.append(f"{key} is listed, but no run wrote it")
    return wrong


def main():
    sections = listed((ROOT / "docs/json.md").read_text(encoding="utf-8"))
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        for verb, written in documents(pathlib.Path(folder)).items():
            wrong = complaints(sections[verb], written)
            print(f"{'FAIL' if wrong else 'ok  '} {verb}: {len(sections[verb])} keys")
            for each in wrong:
                print(f"     {each}")
            failed = failed or bool(wrong)
    return 1 if failed else 0


sys.exit(main())
