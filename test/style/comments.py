"""Comments wrap at 120 columns, as do docstrings and the text of README.md and docs/. Recorded commands and their
output in the header of an example ("// $ ...") do not wrap."""

import io
import itertools
import re
import tokenize

import sources

COLUMNS = 120
CPP = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])\'', re.DOTALL)
QUOTED = re.compile(r"'''.*?'''|'(?:\\.|[^'\\\n])*'|\"(?:\\.|[^\"\\\n])*\"", re.DOTALL)
LINK = re.compile(r"\]\([^)]*\)|\w+://\S+")


def lines_of(text, begin, end):
    """The numbers of the lines that hold text[begin:end]."""
    first = text.count("\n", 0, begin) + 1
    return range(first, first + text.count("\n", begin, end) + 1)


def recorded(text):
    """The numbers of the lines of the first comment from the first "// $ ..." on."""
    header = list(itertools.takewhile(lambda line: line.startswith("//"), text.splitlines()))
    first = next((number for number, line in enumerate(header, 1) if line.startswith("// $ ")), len(header) + 1)
    return range(first, len(header) + 1)


def in_cpp(text):
    """The numbers of the lines with a comment, without recorded commands and output."""
    skipped = recorded(text)
    for match in CPP.finditer(text):
        if match.group().startswith(("//", "/*")):
            yield from (number for number in lines_of(text, *match.span()) if number not in skipped)


def in_python(text):
    """The numbers of the lines with a comment or of a docstring."""
    alone = True  # whether a string here would be a docstring
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT or token.type == tokenize.STRING and alone:
            yield from range(token.start[0], token.end[0] + 1)
        if token.type not in (tokenize.COMMENT, tokenize.NL):
            alone = token.type in (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)


def in_script(text):
    """The numbers of the lines with a comment of Meson's or the shell's kind."""
    for number, line in enumerate(text.splitlines(), 1):
        if re.search(r"(^|\s)#", QUOTED.sub("''", line)):
            yield number


def in_markdown(text):
    """The numbers of the lines of text; tables, code and pictures are left out."""
    code = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            code = not code
        elif not code and not line.lstrip().startswith(("|", "<")) and not line.startswith("    "):
            yield number


def found():
    """Yields (path, the numbers of the lines to hold against the limit)."""
    for path in sources.files():
        text = path.read_text() if path.suffix in {*sources.CODE, ".py", ".sh", ".build"} else ""
        find = in_cpp if path.suffix in sources.CODE else in_python if path.suffix == ".py" else in_script
        yield path, text, find(text)
    for path in [sources.ROOT / "README.md", *sources.files(["docs"], {".md"})]:
        text = path.read_text()
        yield path, LINK.sub("", text), in_markdown(text)


def check():
    complaints = []
    for path, text, numbers in found():
        lines = text.splitlines()
        complaints += [f"{sources.name(path)}:{number}: {len(lines[number - 1])} columns; comments and text wrap at {COLUMNS}"
                       for number in sorted(set(numbers)) if len(lines[number - 1]) > COLUMNS]
    return complaints


sources.report(check(), "comments")
