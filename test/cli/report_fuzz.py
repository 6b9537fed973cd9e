"""Tests that `report` survives any file: it draws the page or refuses the file in one line, whatever is in it. Takes
results of `compare` and damages them at random, with a fixed seed. Arguments: the program build/partita and how many
files to try."""

import json
import os
import random
import subprocess
import sys
import tempfile

PROGRAM, TRIES = os.path.abspath(sys.argv[1]), int(sys.argv[2])
MACHINE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../examples/machines/two-cores.toml")
DEEP = 200_000
PIECES = ['[', '{', '"', '\\', ',', ':', 'null', '-1e999', '1e308', '""', '[]', '{}', '\x00', '\xff', '"seconds":null', '[[[[', '"a":[',
          '18446744073709551616', '"\\ud800"', '"name":7']
failures = []


def report(name, content, folder, status=None):
    """Gives `content` to `report`. It must end with `status`, or with 0 or 2, and print one line if it is 2."""
    path = os.path.join(folder, "damaged.json")
    with open(path, "wb") as out:
        out.write(content)
    result = subprocess.run([PROGRAM, "report", path, "--out", os.path.join(folder, "page.html")], capture_output=True, timeout=60,
                            check=False)
    lines = result.stderr.splitlines()
    good = result.returncode in ((0, 2) if status is None else (status,)) and len(lines) == (result.returncode != 0)
    if not good or status is not None:
        print(f"{'ok  ' if good else 'FAIL'} {name}: status {result.returncode}, {lines[:3]}")
    if not good:
        failures.append(name)
        print(content[:400])


def damage(text, dice):
    """Deletes, repeats, replaces or inserts a few pieces."""
    for _ in range(dice.randint(1, 4)):
        at = dice.randrange(len(text) + 1)
        end = min(len(text), at + dice.choice([1, 1, 2, 10, 100]))
        piece = dice.choice([*PIECES, text[at:end], text[at:end] * 3])
        text = text[:at] + piece + text[dice.choice([at, end]):]
    return text


with tempfile.TemporaryDirectory() as folder:
    good = os.path.join(folder, "good.json")
    subprocess.run([PROGRAM, "compare", "--model", "lenet5", "--batch", "8", "--machine", MACHINE, "--grid", "data=2", "--json", good],
                   check=True, capture_output=True, timeout=60)
    with open(good, encoding="utf-8") as file:
        text = file.read()
    subject = json.loads(text)["subject"]
    report("an undamaged file", text.encode(), folder, 0)
    report("many open lists", b"[" * DEEP, folder, 2)
    report("nested lists", b"[" * DEEP + b"]" * DEEP, folder, 2)
    report("nested objects", b'{"a":' * DEEP + b"1" + b"}" * DEEP, folder, 2)
    report("a deep field that nobody reads",
           b'{"subject":"' + subject.encode() + b'","strategies":[],"x":' + b"[" * DEEP + b"]" * DEEP + b"}", folder, 2)
    report("brackets in a text", text.replace('"subject"', '"note":"\\"' + "[" * DEEP + '","subject"', 1).encode(), folder, 0)
    dice = random.Random(27)
    for i in range(TRIES):
        report(f"file {i}", damage(text, dice).encode("utf-8", "surrogateescape"), folder)
print(f"{TRIES} damaged files, {len(failures)} failures")
sys.exit(1 if failures else 0)
