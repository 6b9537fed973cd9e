"""Tests that `report` survives any file: it draws the page or refuses the file in one line, whatever is in it. Takes
results of `compare` and damages them at random, with a fixed seed. Arguments: the program build/partita and how many
files to try."""

import pathlib
import random
import re
import sys

from checks import MACHINES, Program, check, finish, new_folder, read, read_json

partita, TRIES = Program(sys.argv[1]), int(sys.argv[2])
DEEP = 200_000
PIECES = ['[', '{', '"', '\\', ',', ':', 'null', '-1e999', '1e308', '""', '[]', '{}', '\x00', '\xff', '"seconds":null',
          '[[[[', '"a":[', '18446744073709551616', '"\\ud800"', '"name":7']


def report(name, content, *statuses):
    """Gives `content` to `report`. It must end with one of the statuses, and print one line if it fails."""
    pathlib.Path("damaged.json").write_bytes(content)
    # The messages show what was damaged, which differs between machines, so errors.txt does not have them.
    ran = partita("report", "damaged.json", "--out", "page.html", status=None, errors="replace", listed=False)
    check(f"{name}: status {ran.status}, {ran.err[:200].rstrip()}", ran.status in statuses and
          re.fullmatch(r"[^\r\n]+\n" if ran.status else "", ran.err), content[:400])


def damage(text, dice):
    """Deletes, repeats, replaces or inserts a few pieces."""
    for _ in range(dice.randint(1, 4)):
        at = dice.randrange(len(text) + 1)
        end = min(len(text), at + dice.choice([1, 1, 2, 10, 100]))
        piece = dice.choice([*PIECES, text[at:end], text[at:end] * 3])
        text = text[:at] + piece + text[dice.choice([at, end]):]
    return text


with new_folder():
    partita("compare", "--model", "lenet5", "--batch", "8", "--machine", MACHINES / "two-cores.toml", "--grid",
            "data=2", "--json", "good.json")
    text = read("good.json")
    subject = read_json("good.json")["subject"]
    report("an undamaged file", text.encode(), 0)
    report("many open lists", b"[" * DEEP, 2)
    report("nested lists", b"[" * DEEP + b"]" * DEEP, 2)
    report("nested objects", b'{"a":' * DEEP + b"1" + b"}" * DEEP, 2)
    report("a deep field that nobody reads",
           b'{"subject":"' + subject.encode() + b'","strategies":[],"x":' + b"[" * DEEP + b"]" * DEEP + b"}", 2)
    report("brackets in a text", text.replace('"subject"', '"note":"\\"' + "[" * DEEP + '","subject"', 1).encode(), 0)
    dice = random.Random(27)
    for i in range(TRIES):
        report(f"file {i}", damage(text, dice).encode("utf-8", "surrogateescape"), 0, 2)
finish()
