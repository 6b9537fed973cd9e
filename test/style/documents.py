"""The pages in docs/ and the README: links lead somewhere, every page can be reached, commands are tested and lines are
short."""

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
    complaints = []
    for page in [readme, *pages]:
        text = page.read_text()
        complaints += [*check_links(page, text), *check_columns(page, text)]
        if page != readme and re.search(r"^\$ ", text, re.MULTILINE) and f"'{page.stem}'" not in tests:
            complaints.append(f"{sources.name(page)}: it shows commands, but test/meson.build does not run them")
    reached = reached_from(readme)
    return complaints + [f"{sources.name(page)}: no link leads to it" for page in pages if page not in reached]


sources.report(check(), "documents")
