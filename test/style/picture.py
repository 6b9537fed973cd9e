"""docs/images/architecture.svg is what docs/architecture.py draws from the includes."""

import sys

import sources

sys.path.insert(0, str(sources.ROOT / "docs"))
import architecture  # noqa: E402, after its folder is known


def check():
    picture = architecture.PICTURE
    if picture.exists() and picture.read_text(encoding="utf-8") == architecture.draw():
        return []
    return [f"{sources.name(picture)}: the includes have changed; run python3 -B docs/architecture.py"]


sources.report(check(), "picture")
