"""Checks that modules include only headers of modules below them."""

import re

import sources

# A module may include headers of the modules named here, and of all modules that those may include.
BELOW = {
    "base": [],
    "layouts": ["base"],
    "model": ["layouts"],
    "strategies": ["layouts", "model"],
    "comm": ["base"],
    "backend": ["base"],
    "tensor": ["layouts", "comm"],
    "distconv": ["tensor", "backend"],
    "matmul": ["tensor", "backend"],
    "train": ["strategies", "model", "distconv", "matmul"],
    "cli": ["train"],
}
DECIDE = ["base", "layouts", "model", "strategies"]  # pure modules, which must not use MPI or a GPU
IMPURE = re.compile(r"^(mpi|cuda|cudnn|cublas|nccl)[\w./]*\.h")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
UMBRELLA = "include/partita/partita.hpp"


def allowed(module):
    """The modules whose headers a module may include: itself and all modules below."""
    return {module}.union(*(allowed(below) for below in BELOW[module]))


def module_of(path):
    """The module that a file belongs to, or None."""
    parts = path.relative_to(sources.ROOT).parts
    if parts[0] == "include":
        return parts[2] if len(parts) > 3 else None
    if parts[0] == "src":
        return parts[1] if len(parts) > 2 else None
    return parts[0]


def complaint(path, module, quote, included):
    """Returns what is wrong with an include, or None."""
    if module in DECIDE and IMPURE.match(included):
        return f"{module} is a pure module and must not include {included}"
    if included.startswith("partita/"):
        other = included.split("/")[1] if included.count("/") > 1 else "cli"
    elif quote == '"':
        private = sources.ROOT / included
        if not private.exists() and not list(private.parent.rglob(private.name + ".in")):  # .in: Meson generates it
            return f'"{included}" is neither partita/... nor the path of a file from the root'
        other = module_of(private)
    else:
        return None
    if other not in BELOW:
        return f"there is no module {other}: {included}"
    if other not in allowed(module):
        return f"{module} must not include {included}: {module} may use {', '.join(sorted(allowed(module) - {module})) or 'nothing'}"
    return None


def check():
    complaints = []
    for path in sources.files(["include", "src", "layouts", "distconv", "strategies"], sources.CODE):
        module = module_of(path)
        if module is None:
            if sources.name(path) not in (UMBRELLA, "src/pch.hpp"):
                complaints.append(f"{sources.name(path)}: belongs to no module")
            continue
        if module not in BELOW:
            complaints.append(f"{sources.name(path)}: there is no module {module}")
            continue
        text = path.read_text()
        for match in INCLUDE.finditer(text):
            if wrong := complaint(path, module, *match.groups()):
                complaints.append(f"{sources.name(path)}:{text.count(chr(10), 0, match.start()) + 1}: {wrong}")
    return complaints


sources.report(check(), "dependencies")
