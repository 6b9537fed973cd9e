"""docs/json.md lists the keys that the program writes as JSON: all of them, and no others.
Arguments: the launcher build/mpiexec and the program build/partita."""

import json
import re
import sys

from checks import MACHINES, ROOT, STRATEGIES, Program, check, finish, new_folder, read, read_json, write

partita = Program(sys.argv[2], sys.argv[1])
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


def documents():
    """What each verb writes: verb -> documents."""
    written = {}
    write("pipeline.toml", 'grid = "data=1"\nstages = 2\n[schedule]\nkind = "1f1b"\nmicrobatches = 2\n')
    partita("train", *SMALL, "--strategy", "pipeline.toml", "--save", "w.h5", "--json", "train.json", ranks=2)
    partita("train", *SMALL, "--no-test", "--delay", "random:1ms", "--json", "serial.json", ranks=1)
    segments = ["--model", "unet3d", "--size", "16", "--width", "0.25", "--batch", "1", "--data", "synthetic",
                "--samples", "2"]
    partita("train", *segments, "--validate", "0.5", "--save", "s.h5", "--json", "segments.json", ranks=1)
    partita("train", *SMALL, "--no-test", "--validate", "test", "--json", "validated.json", ranks=1)
    partita("train", *SMALL[:-1], "f16", "--no-test", "--json", "f16.json", ranks=1)
    tokens = ["--model", "gpt", "--layers", "1", "--hidden", "8", "--heads", "2", "--sequence", "4", "--vocabulary", "8",
              "--batch", "2", "--data", "synthetic", "--samples", "4"]
    partita("train", *tokens, "--validate", "0.5", "--save", "t.h5", "--json", "tokens.json", ranks=1)
    written["train"] = [read_json(f"{name}.json")
                        for name in ("train", "serial", "segments", "validated", "f16", "tokens")]
    partita("evaluate", *SMALL, "--strategy", "pipeline.toml", "--load", "w.h5", "--json", "evaluate.json", ranks=2)
    partita("evaluate", *segments, "--load", "s.h5", "--json", "segmented.json", ranks=1)
    partita("evaluate", *tokens, "--load", "t.h5", "--json", "predicted.json", ranks=1)
    written["evaluate"] = [read_json(f"{name}.json") for name in ("evaluate", "segmented", "predicted")]
    partita("compare", "--strategies", STRATEGIES / "fashion-cnn-hybrid.toml", STRATEGIES / "fashion-cnn-pipeline.toml",
            "--memory-limit", "1MiB", "--json", "compare.json", status=2)
    write("letters.txt", "ab" * 30)
    partita("train", *tokens[:10], "--batch", "2", "--data", "text", "--data-dir", "letters.txt", "--no-test", "--save",
            "u.h5", ranks=1)
    for count in ("1", "3"):
        partita("generate", *tokens[:10], "--load", "u.h5", "--prompt", "a", "--tokens", count, "--json",
                f"text{count}.json", ranks=1)
    written["generate"] = [read_json("text1.json"), read_json("text3.json")]
    partita("compare", "--batch", "8", "--strategies", "pipeline.toml", "--measure", "--json", "measured.json", ranks=2)
    partita("compare", "--batch", "4096", "--machine", MACHINES / "dgx-a100.toml", "--strategies",
            STRATEGIES / "fashion-cnn-pipeline.toml", "--json", "chosen.json")
    written["compare"] = [read_json("compare.json"), read_json("measured.json"), read_json("chosen.json")]
    partita("simulate", "--batch", "8", "--grid", "data=2", "--out", "replay", "--json", "simulate.json")
    written["simulate"] = [read_json("simulate.json")]
    partita("explain", "--batch", "8", "--strategy", STRATEGIES / "fashion-cnn-hybrid.toml", "--json", "explain.json")
    partita("explain", "--batch", "8", "--grid", "c=2", "--rule", "*: C@c", "--rule", "relu*: C@c", "--machine",
            MACHINES / "dgx-a100.toml", "--json", "channels.json")
    partita("explain", "--batch", "8", "--evaluation", "--json", "evaluated.json")
    partita("explain", *tokens[:12], "--batch", "8", "--grid", "l=2", "--rule", "*: L@l", "--json", "ring.json")
    partita("explain", "--batch", "16", "--grid", "data=16", "--rule", "*: N@data", "--machine",
            MACHINES / "dgx-a100.toml", "--json", "nodes.json")
    written["explain"] = [read_json(f"{name}.json") for name in ("explain", "channels", "evaluated", "ring", "nodes")]
    partita("compare", "--ranks", "1", "2", "3", "--grid", "data={} y=2", "--rule", "*: N@data H@y", "--json", "n.json")
    written["curves"] = [read_json("n.json")]
    written["schedule"] = [json.loads(partita("schedule", "--kind", "chimera", "--json", "/dev/stdout").out)]
    written["info"] = [json.loads(partita("info", "--json").out)]
    partita("scale", "--ranks", "1", "2", "--steps", "2", "--repeats", "1", "--batch", "8", "--out", "scale.json")
    written["scale"] = [read_json("scale.json")]
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


with new_folder():
    sections = listed(read(ROOT / "docs/json.md"))
    for verb, written in documents().items():
        wrong = complaints(sections[verb], written)
        check(f"{verb}: {len(sections[verb])} keys", not wrong, "\n".join(wrong))
finish()
