"""Reads examples/deploy/Dockerfile."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
INSTRUCTIONS = {"FROM", "RUN", "COPY", "USER", "WORKDIR", "CMD"}


def steps():
    """The instructions in order: (name, argument). Lines that end with a backslash go on."""
    text = (ROOT / "examples/deploy/Dockerfile").read_text()
    text = re.sub(r"^#.*\n", "", text, flags=re.M)
    found = [line.split(maxsplit=1) for line in re.sub(r"\\\n", " ", text).splitlines() if line.strip()]
    for name, _ in found:
        assert name in INSTRUCTIONS, f"{name} is not among {sorted(INSTRUCTIONS)}"
    return [(name, re.sub(r" +", " ", argument).strip()) for name, argument in found]
