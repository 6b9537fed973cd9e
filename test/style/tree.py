"""The root and the module folders hold what they should, files stay short, and the vocabulary is kept."""

import re
import shutil
import subprocess

import sources

TOP = set(sources.FOLDERS) | {"meson.build", "meson_options.txt", "README.md", "LICENSE"}
ONLY_FOLDERS = ["strategies", "src/cli", "src/train", "src"]  # their sources lie in folders
MOST_LINES = 600
MOST_LINES_README = 200
TEXT = sources.CODE | {".py", ".sh", ".md", ".build", ".txt", ".toml", ".in", ".js", ".css", ".html"}
NOT_USED = re.compile(r"\b(mesh tensor|ghost cell|resharding|shuffle exchange)s?\b", re.IGNORECASE)
BRITISH = re.compile(
    r"\w*(neighbour|colour|behaviour|favour|licence|centre|labell|modell|travell|"
    r"((normal|synchron|parallel|recogn|initial|final|serial|minim|maxim|optim|summar|general|special|util|organ)"
    r"is(e|es|ed|er|ing|ation)))\w*", re.IGNORECASE)


def top_level():
    """The names in the root: as git sees them, or as they lie there if git does not know this folder."""
    if shutil.which("git"):
        git = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=sources.ROOT,
                             capture_output=True, text=True)
        if git.returncode == 0:
            return {line.split("/")[0] for line in git.stdout.splitlines()}
    return {path.name for path in sources.ROOT.iterdir() if not (path / "meson-private").exists()}


def misplaced():
    """Complaints about files in folders that should not hold them."""
    complaints = [f"{name}: has no place in the root" for name in sorted(top_level())
                  if name not in TOP and not name.startswith(".")]
    for folder in ONLY_FOLDERS:
        complaints += [f"{sources.name(path)}: belongs into one of the folders of {folder}/"
                       for path in sorted((sources.ROOT / folder).iterdir())
                       if path.is_file() and path.name not in ("meson.build", "pch.hpp")]
    return complaints


def too_long(path, lines):
    """The complaint about a file's length, or none. Pages of docs/ and results may be longer."""
    most = MOST_LINES_README if path.name == "README.md" else MOST_LINES
    if len(lines) > most and (path.suffix != ".md" or path.name == "README.md"):
        return [f"{sources.name(path)}: {len(lines)} lines; {most} is the most"]
    return []


def wrong_words(path, lines):
    """Complaints about words."""
    complaints = []
    for number, line in enumerate(lines, 1):
        where = f"{sources.name(path)}:{number}"
        if word := NOT_USED.search(line):
            complaints.append(f"{where}: '{word.group()}' is not our word")
        if word := BRITISH.search(line):
            complaints.append(f"{where}: '{word.group()}': we use American spelling")
    return complaints


def check():
    complaints = misplaced()
    for path in sources.files() + sorted(sources.ROOT.glob("*.md")):
        if path.suffix in TEXT:
            lines = path.read_text().splitlines()
            complaints += too_long(path, lines)
            if path.name != "tree.py":
                complaints += wrong_words(path, lines)
    return complaints


sources.report(check(), "tree")
