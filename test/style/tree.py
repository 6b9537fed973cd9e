"""Checks that the root has no other files than it should, that files are short, and that no text uses words that the
project avoids."""

import re
import subprocess

import sources

TOP = set(sources.FOLDERS) | {"meson.build", "meson_options.txt", "README.md", "LICENSE"}
MOST_LINES = 400
TEXT = sources.CODE | {".py", ".sh", ".md", ".build", ".txt", ".toml", ".in"}
NOT_USED = re.compile(r"\b(mesh tensor|ghost cell|resharding|locale|shuffle exchange)s?\b", re.IGNORECASE)


def top_level():
    """The names in the root: those that git knows or, if this is not a git repository, all except build folders."""
    git = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=sources.ROOT,
                         capture_output=True, text=True)
    if git.returncode == 0:
        return {line.split("/")[0] for line in git.stdout.splitlines()}
    return {path.name for path in sources.ROOT.iterdir() if not (path / "meson-private").exists()}


def check():
    complaints = [f"{name}: does not belong in the root" for name in sorted(top_level())
                  if name not in TOP and not name.startswith(".")]
    texts = [path for path in sources.files() if path.suffix in TEXT] + sorted(sources.ROOT.glob("*.md"))
    for path in texts:
        lines = path.read_text().splitlines()
        if len(lines) > MOST_LINES and path.suffix != ".md":
            complaints.append(f"{sources.name(path)}: {len(lines)} lines; the limit is {MOST_LINES}")
        for number, line in enumerate(lines, 1):
            if (word := NOT_USED.search(line)) and path.name != "tree.py":
                complaints.append(f"{sources.name(path)}:{number}: '{word.group()}' is a word that we avoid")
    return complaints


sources.report(check(), "tree")
