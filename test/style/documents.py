"""The pages in docs/ and the README: links lead somewhere, every page can be reached, commands are tested, lines are
short, and the files and members that a page names exist."""

import re

import sources

DOCS = sources.ROOT / "docs"
LINK = re.compile(r"\]\(([^)\s]+)\)")
MOST_COLUMNS = 120


def outside_fences(text):
    return re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors(text):
    """The names of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", outside_fences(text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(page, text):
    """(what the link says, the file, the anchor) of all links but those to the network."""
    for target in LINK.findall(outside_fences(text)):
        if not re.match(r"[a-z]+:", target):
            path, _, anchor = target.partition("#")
            yield target, (page.parent / path).resolve() if path else page, anchor


def check_links(page, text):
    for target, path, anchor in links(page, text):
        if not path.exists():
            yield f"{sources.name(page)}: there is no {target}"
        elif anchor and anchor not in anchors(path.read_text()):
            yield f"{sources.name(page)}: {target} has no such heading"


def check_columns(page, text):
    for number, line in enumerate(outside_fences(text).splitlines(), 1):
        if len(line) > MOST_COLUMNS and not line.startswith("|"):
            yield f"{sources.name(page)}: line {number} without the fenced blocks has {len(line)} columns: {line[:40]}..."


CODE_SPAN = re.compile(r"`([^`\n]+)`")
MEMBER = re.compile(r"^([A-Za-z_]\w*)::(~?[A-Za-z_]\w*)(?:\(.*\))?$")
PATH = re.compile(r"^(?:include|src|distconv|layouts|strategies|examples|test|bench|docs|partita)/[\w./-]*\w$")
OTHERS = {"std", "boost", "nlohmann", "toml", "Eigen", "fmt", "po"}  # classes and namespaces of libraries


def words_of_classes():
    """The words in the bodies that begin with the name of each class, struct, enum and namespace, and those that follow
    its name and "::"."""
    words = {}
    for path in sources.files(suffixes=sources.CODE | {".cuh"}):
        text = re.sub(r"//.*", "", path.read_text())
        # looks ahead, since a parameter of a template stands before the class
        for begin in re.finditer(r"\b(?=(?:class|struct|enum class|namespace) (\w+)([^;{}()]*\{))", text):
            words.setdefault(begin[1], set()).update(re.findall(r"\w+", body(text, begin.end(2))))
        for kind, member in re.findall(r"\b(\w+)::(\w+)", text):
            words.setdefault(kind, set()).add(member)
    return words


def body(text, begin):
    """The text from `begin`, which is behind an opening brace, to the brace that closes it."""
    depth = 1
    for brace in re.finditer(r"[{}]", text[begin:]):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return text[begin:begin + brace.start()]
    return text[begin:]


def check_names(page, text, words):
    for span in CODE_SPAN.findall(outside_fences(text)):
        member = MEMBER.match(span)
        if member and member[1] not in OTHERS and member[2] not in words.get(member[1], ()):
            yield f"{sources.name(page)}: there is no {span}"
        folder = sources.ROOT / "include" if span.startswith("partita/") else sources.ROOT
        if PATH.match(span) and not (folder / span).exists() and not (folder / f"{span}.cpp").exists():
            yield f"{sources.name(page)}: there is no file or folder {span}"


def reached_from(page):
    """All pages that links lead to from one."""
    found, open_pages = {page}, [page]
    while open_pages:
        here = open_pages.pop()
        new = {path for _, path, _ in links(here, here.read_text()) if path.suffix == ".md" and path.exists()} - found
        found |= new
        open_pages += new
    return found


def check():
    readme, tests = sources.ROOT / "README.md", (sources.ROOT / "test/meson.build").read_text()
    pages = sorted(DOCS.rglob("*.md"))
    complaints, words = [], words_of_classes()
    for page in [readme, *pages]:
        text = page.read_text()
        complaints += [*check_links(page, text), *check_columns(page, text), *check_names(page, text, words)]
        if page != readme and re.search(r"^\$ ", text, re.MULTILINE) and f"'{page.stem}'" not in tests:
            complaints.append(f"{sources.name(page)}: it shows commands, but test/meson.build does not run them")
    reached = reached_from(readme)
    return complaints + [f"{sources.name(page)}: no link leads to it" for page in pages if page not in reached]


sources.report(check(), "documents")
