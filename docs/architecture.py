"""Draws docs/images/architecture.svg from the includes: modules, the folders inside the larger ones, and arrows to what
they include. An arrow is left out if a longer way leads there too, and is red if it breaks the rule in
test/style/dependencies.py. Run it after a change of the modules: python3 -B docs/architecture.py"""

import collections
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "test/style"))
import dependencies as rule  # noqa: E402, after its folder is known
import includes  # noqa: E402
import sources  # noqa: E402

PICTURE = ROOT / "docs/images/architecture.svg"
FOLDER_WIDTH, FOLDER_HEIGHT, FOLDER_GAP, FOLDER_STEP = 88, 26, 10, 50
MODULE_WIDTH, TITLE, PADDING, GAP, STEP = 310, 34, 14, 40, 56
WORDS = {
    "base": "boxes, grids, errors, random numbers",
    "system": "cores, files, clocks, libraries",
    "device": "devices, local tensors, memory, profiles",
    "layouts": "layouts, redistributions, products",
    "model": "layers, operators, built-in models",
    "comm": "communicators on MPI and threads, collectives",
    "backend": "local kernels: oneDNN and a reference",
    "tensor": "partitioned tensors and their exchanges",
    "distconv": "partitioned convolution and pooling",
    "matmul": "partitioned products of matrices",
}
Box = collections.namedtuple("Box", "x y width height")


def folder(place):
    """The folder of a module that the picture shows, or None. The verbs have one each."""
    folders = rule.FOLDERS.get(place.split("/")[0], {})
    if place.startswith(rule.SEPARATE):
        return "/".join(place.split("/")[1:3])
    return rule.folder_of(place, folders) if len([name for name in folders if name]) > 1 else None


def folder_allowed(module, name, other):
    folders = rule.FOLDERS[module]
    own, its = ("verbs" if part.startswith("verbs/") else part for part in (name, other))
    return its in rule.allowed(folders, own) and (own, its) != ("verbs", "verbs")


def read():
    """The includes between modules, and by module the includes between its folders, as sets of pairs. Folders that
    include nothing stand in pairs with themselves."""
    modules, folders = set(), collections.defaultdict(set)
    for path in sources.files(includes.FOLDERS, sources.CODE):
        place = includes.place(sources.name(path))
        module, own = place.split("/")[0], folder(place)
        if module not in rule.MODULES:
            continue
        if own:
            folders[module].add((own, own))
        for _, _, included in includes.of(path):
            other = includes.place_of_include(included) or ""
            its_module, its = other.split("/")[0], folder(other)
            if its_module in rule.MODULES and its_module != module:
                modules.add((module, its_module))
            elif its_module == module and own and its and own != its:
                folders[module].add((own, its))
    return modules, folders


def reach(edges, start):
    """Everything that edges lead to from one node."""
    found, waiting = set(), [start]
    while waiting:
        here = waiting.pop()
        new = {b for a, b in edges if a == here and b != here} - found
        found |= new
        waiting += new
    return found


def reduced(edges):
    """The edges without those that a longer way replaces. There must be no cycle."""
    return {(a, b) for a, b in edges if a != b and
            not any(b in reach(edges, middle) for first, middle in edges if first == a and middle not in (a, b))}


def levels(nodes, edges):
    """The nodes by the length of the longest way down, in the order in which they were given."""
    def depth(node):
        return max((depth(b) + 1 for a, b in edges if a == node and b != node), default=0)
    rows = collections.defaultdict(list)
    for node in nodes:
        rows[depth(node)].append(node)
    return [rows[level] for level in sorted(rows)]


def text(x, y, words, size=13, weight="normal"):
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" font-weight="{weight}" text-anchor="middle">{words}</text>'


def rectangle(box, fill, stroke):
    return (f'<rect x="{box.x:g}" y="{box.y:g}" width="{box.width:g}" height="{box.height:g}" rx="5" fill="{fill}" '
            f'stroke="{stroke}"/>')


def arrow(a, b, wrong=False):
    """From the lower edge of box a to the upper edge of box b, or the other way round if b is above a."""
    down = a.y < b.y
    x1, y1 = a.x + a.width / 2, a.y + (a.height if down else 0)
    x2, y2 = b.x + b.width / 2, b.y + (0 if down else b.height)
    if b.width > 2 * a.width:
        x2 = x1
    elif a.width > 2 * b.width:
        x1 = x2
    bend = (y2 - y1) * 0.4
    color = "red" if wrong else "gray"
    return (f'<path d="M{x1:g},{y1:g} C{x1:g},{y1 + bend:g} {x2:g},{y2 - bend:g} {x2:g},{y2:g}" fill="none" '
            f'stroke="{"#c0392b" if wrong else "#555"}" marker-end="url(#{color})"/>')


def split(module, pairs):
    """The folders of a module by level, its arrows that keep the rule, reduced, and those that break it."""
    good = {(a, b) for a, b in pairs if a == b or folder_allowed(module, a, b)}
    order = {name: number for number, name in enumerate(rule.FOLDERS[module])}
    nodes = sorted({a for a, _ in pairs}, key=lambda name: (order.get(name, len(order)), name))
    return levels(nodes, good), reduced(good), sorted(pairs - good)


def height(folders):
    return TITLE + (len(folders) * FOLDER_STEP - (FOLDER_STEP - FOLDER_HEIGHT) if folders else FOLDER_HEIGHT / 2) + PADDING


def draw_module(module, box, folders):
    """A module with its folders."""
    pure = module in rule.PURE
    lines = [rectangle(box, "#eaf2fb" if pure else "#fdf3e3", "#4a7ab5" if pure else "#c98a2b"),
             text(box.x + box.width / 2, box.y + 22, module, 15, "bold")]
    rows, arrows, wrong = folders
    if not rows:
        lines.append(text(box.x + box.width / 2, box.y + 44, WORDS[module], 12))
    boxes = {}
    for level, names in enumerate(reversed(rows)):
        width = len(names) * (FOLDER_WIDTH + FOLDER_GAP) - FOLDER_GAP
        for number, name in enumerate(names):
            boxes[name] = Box(box.x + (box.width - width) / 2 + number * (FOLDER_WIDTH + FOLDER_GAP),
                              box.y + TITLE + level * FOLDER_STEP, FOLDER_WIDTH, FOLDER_HEIGHT)
    for name, one in boxes.items():
        lines += [rectangle(one, "white", "#999"), text(one.x + one.width / 2, one.y + 17, name.split("/")[-1], 12)]
    lines += [arrow(boxes[a], boxes[b]) for a, b in sorted(arrows)]
    return lines + [arrow(boxes[a], boxes[b], True) for a, b in wrong]


def place_modules(rows, folders):
    """The box of each module; a module that is alone in its row is as wide as the picture."""
    columns = max(map(len, rows))
    whole = columns * MODULE_WIDTH + (columns - 1) * GAP
    boxes, y = {}, GAP + 20
    for row in reversed(rows):
        tallest = max(height(folders[module][0]) for module in row)
        for column, module in enumerate(row):
            width = whole if len(row) == 1 else MODULE_WIDTH
            own = height(folders[module][0])
            boxes[module] = Box(GAP + column * (MODULE_WIDTH + GAP), y + (tallest - own) / 2, width, own)
        y += tallest + STEP
    return boxes, whole + 2 * GAP, y - STEP + GAP


def draw():
    """The text of the picture."""
    modules, pairs = read()
    folders = {module: split(module, pairs[module]) if module in pairs else ([], [], []) for module in rule.MODULES}
    good = {(a, b) for a, b in modules if b in rule.allowed(rule.MODULES, a)}
    boxes, width, tall = place_modules(levels(rule.MODULES, good), folders)
    marker = ('<marker id="{}" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
              '<path d="M0,0 L8,4 L0,8 z" fill="{}"/></marker>')
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {tall:g}" font-family="sans-serif">',
             f'<defs>{marker.format("gray", "#555")}{marker.format("red", "#c0392b")}</defs>',
             f'<rect width="{width:g}" height="{tall:g}" fill="white"/>',
             text(width / 2, 30, "An arrow leads from what includes to what is included. "
                  "Blue modules decide and know no MPI; the others run the plan.", 14)]
    for module in rule.MODULES:
        lines += draw_module(module, boxes[module], folders[module])
    lines += [arrow(boxes[a], boxes[b]) for a, b in sorted(reduced(good))]
    lines += [arrow(boxes[a], boxes[b], True) for a, b in sorted(modules - good)]
    return "\n".join([*lines, "</svg>"]) + "\n"


if __name__ == "__main__":
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    PICTURE.write_text(draw(), encoding="utf-8")
