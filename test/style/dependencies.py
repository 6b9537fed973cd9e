"""Dependencies point down only: which module, and which folder of a module, may include whose headers."""

import re

import includes
import sources

# A module may include the modules named here and everything that those may include.
MODULES = {
    "base": [],
    "system": ["base"],
    "device": ["system"],
    "layouts": ["base"],
    "model": ["layouts"],
    "strategies": ["layouts", "model", "system"],
    "comm": ["device"],
    "backend": ["device"],
    "tensor": ["layouts", "comm"],
    "distconv": ["tensor", "backend"],
    "matmul": ["tensor", "backend"],
    "train": ["strategies", "model", "distconv", "matmul"],
    "cli": ["train"],
}
# The same inside a module, for its folders. "" is the module's own folder. A header lies in the deepest folder named.
FOLDERS = {
    "layouts": {"": [], "product": [""]},
    "comm": {
        "": [],
        "job": [""],
        "levels": [""],
        "shared_memory": [""],
        "threads": ["shared_memory", "job"],
        "mpi": ["levels", "shared_memory", "job"],
        "device": ["job"],
    },
    "backend": {"": [], "common": [""], "cpu": ["common"], "gpu": ["common"]},
    "model": {"": [], "builtin": [""]},
    "strategies": {
        "declare": [],
        "schedule": ["declare"],
        "schedule/generators": ["schedule"],
        "machine": ["declare"],
        "plan": ["schedule", "machine"],
        "cost": ["plan"],
        "planner": ["cost"],
        "traces": ["cost"],
    },
    "train": {
        "files": [],
        "kernels": [],
        "data": ["files"],
        "": ["data"],
        "checkpoint": ["", "files"],
        "executor": ["kernels", "checkpoint"],
        "trainer": ["executor", "data"],
        "measure": ["trainer"],
    },
    "cli": {
        "": [],
        "files": [],
        "options": ["", "files"],
        "inputs": ["options"],
        "output": ["inputs"],
        "verbs": ["output"],
        "program": ["verbs"],
    },
}
SEPARATE = "cli/verbs/"  # its folders do not include each other
PURE = ["base", "system", "device", "layouts", "model", "strategies"]  # these decide without MPI and without a GPU
IMPURE = re.compile(r"^(mpi|cuda|cudnn|cublas|nccl)[\w./]*\.h")
NO_MODULE = ("include/partita/partita.hpp", "src/pch.hpp")


def allowed(below, name):
    """The name itself and everything below it."""
    return {name}.union(*(allowed(below, other) for other in below[name]))


def folder_of(place, folders):
    """The deepest of the folders that holds this place of a module, or None."""
    inside = place.partition("/")[2]
    holding = [folder for folder in folders if folder == "" and "/" not in inside or folder and inside.startswith(folder + "/")]
    return max(holding, key=len, default=None)


def wrong_folder(place, other):
    """The complaint about an include inside one module, or None."""
    module = place.split("/")[0]
    folders = FOLDERS.get(module)
    if folders is None:
        return None
    own, its = folder_of(place, folders), folder_of(other, folders)
    if own is None or its is None:
        return f"{place if own is None else other}: the module {module} has no such folder"
    if its not in allowed(folders, own):
        below = sorted(f"{module}/{name}".rstrip("/") for name in allowed(folders, own) - {own})
        return f"{module}/{own} must not include {other}: it may use {', '.join(below) or 'nothing'}"
    if place.startswith(SEPARATE) and other.startswith(SEPARATE) and place.split("/")[2] != other.split("/")[2]:
        return f"one verb must not include another: {other}"
    return None


def complaint(place, quote, included):
    """What is wrong with one include of the file at this place, or None."""
    module = place.split("/")[0]
    if module in PURE and IMPURE.match(included):
        return f"{module} decides without a device, and must not include {included}"
    other = includes.place_of_include(included)
    if other is None:
        return f'"{included}" is neither partita/... nor a header by its path from the root' if quote == '"' else None
    its = other.split("/")[0]
    if included == "partita/partita.hpp":
        return "the library must not include partita.hpp, which includes all of it"
    if its not in MODULES:
        return f"there is no module {its}: {included}"
    if its not in allowed(MODULES, module):
        below = ", ".join(sorted(allowed(MODULES, module) - {module})) or "nothing"
        return f"{module} must not include {included}: {module} may use {below}"
    if its == module:
        return wrong_folder(place, other)
    return None


def unreachable():
    """Complaints about headers that are installed, but that partita.hpp does not include, directly or not."""
    reached, ahead = set(), ["partita/partita.hpp"]
    while ahead:
        header = ahead.pop()
        if header not in reached:
            reached.add(header)
            ahead += [included for _, _, included in includes.of(sources.ROOT / "include" / header)
                      if included.startswith("partita/")]
    return [f"{sources.name(path)}: users cannot reach it from partita.hpp; a header that only the project includes "
            "lies beside its source" for path in sources.files(["include"], sources.CODE)
            if sources.name(path).removeprefix("include/") not in reached]


def check():
    complaints = unreachable()
    for path in sources.files(includes.FOLDERS, sources.CODE):
        name = sources.name(path)
        place = includes.place(name)
        if name in NO_MODULE:
            continue
        if place.split("/")[0] not in MODULES:
            complaints.append(f"{name}: belongs to no module")
            continue
        for line, quote, included in includes.of(path):
            if wrong := complaint(place, quote, included):
                complaints.append(f"{name}:{line}: {wrong}")
    return complaints


if __name__ == "__main__":
    sources.report(check(), "dependencies")
