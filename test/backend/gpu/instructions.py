"""Counts the instructions of compiled kernels, for one pack of eight bf16 elements, and refuses more than a budget: a
kernel with too many is slower than the memory of a GPU. Each load and store must move 16 bytes. Argument: a build
folder with CUDA. Prints one JSON object per kernel. The disassemblers come from PyPI where the toolkit has none."""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

BUILD = pathlib.Path(sys.argv[1]).resolve()
ARCHITECTURE = "sm_90"
WHEELS = ["nvidia-cuda-cuobjdump==13.5.37", "nvidia-cuda-nvdisasm==13.5.37"]
ELEMENTS = 8  # of a pack: 16 bytes of bf16
# Functors as demangled names have them, and what none may exceed: what they take today, rounded up. A pack that reads
# 16 bytes and writes 16 takes an SM of an H100 2.4 cycles of memory bandwidth, in which it issues 300 instructions.
BUDGETS = {
    "Activate<bfloat16, ActivationFunction<relu> >": 48,
    "ActivateBackward<bfloat16, ActivationFunction<relu> >": 60,
    "AddElements<bfloat16, false>": 52,
    "AddElements<bfloat16, true>": 68,
    "AddBias<bfloat16>": 40,
    "NormForward<bfloat16, false>": 50,
    "NormForward<bfloat16, true>": 66,
    "NormBackward<bfloat16, false>": 76,
    "NormBackward<bfloat16, true>": 104,
}


def tools():
    """The paths of cuobjdump and nvdisasm."""
    found = [shutil.which("cuobjdump"), shutil.which("nvdisasm")]
    if all(found):
        return found
    folder = BUILD / "disassemblers"
    programs = folder / "nvidia/cu13/bin"
    if not programs.exists():
        subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
        subprocess.run([folder / "venv/bin/pip", "install", "--quiet", "--no-deps", "--target", folder, *WHEELS], check=True)
    for name in ("cuobjdump", "nvdisasm"):
        (programs / name).chmod(0o755)
    return [programs / "cuobjdump", programs / "nvdisasm"]


def kernels(cuobjdump, nvdisasm, compiled):
    """The kernels of an object file: (mangled name, instructions, place of each label)."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([cuobjdump, "-xelf", ARCHITECTURE, compiled], cwd=folder, check=True, capture_output=True)
        for cubin in pathlib.Path(folder).glob(f"*{ARCHITECTURE}*"):
            text = subprocess.run([nvdisasm, "-c", cubin], check=True, capture_output=True, text=True).stdout
            for section in re.split(r"^\.text\.(?=\S+:$)", text, flags=re.MULTILINE)[1:]:
                name, _, body = section.partition(":")
                code, labels = [], {}
                for line in body.splitlines():
                    if label := re.match(r"(\.L\w+):", line):
                        labels[label[1]] = len(code)
                    elif instruction := re.match(r"\s+/\*[0-9a-f]+\*/\s+(.*?)\s*;", line):
                        code.append(instruction[1])
                yield name, code, labels


def loop_with_packs(code, labels):
    """The shortest loop that stores 16 bytes: it goes over the packs of a thread."""
    loops = []
    for end, instruction in enumerate(code):
        target = re.search(r"\bBRA\b.*`\((\.L\w+)\)", instruction)
        if target and labels.get(target[1], end + 1) <= end:
            body = code[labels[target[1]]:end + 1]
            if any(is_store(each) and ".128" in each for each in body):
                loops.append(body)
    return min(loops, key=len, default=[])


def is_store(instruction):
    return re.search(r"\bSTG\b", instruction) is not None


def is_load(instruction):
    return re.search(r"\bLDG\b", instruction) is not None


def readable(names):
    """The functors of kernels, by demangled names without namespaces."""
    text = subprocess.run(["c++filt"], input="\n".join(names), check=True, capture_output=True, text=True).stdout
    for line in text.splitlines():
        line = re.sub(r"partita::|Eigen::|cuda::", "", line).replace("(Activation::Kind)0", "relu")
        match = re.match(rf"void elements_kernel<{ELEMENTS}, (.*?) ?>\(Stack", line)
        yield match[1] if match else ""


def main():
    cuobjdump, nvdisasm = tools()
    complaints, seen = [], set()
    for kind in ("activation", "elementwise", "normalization"):
        compiled = next(BUILD.glob(f"**/{kind}.cu.o"))
        all_kernels = list(kernels(cuobjdump, nvdisasm, compiled))
        for functor, (_, code, labels) in zip(readable([name for name, _, _ in all_kernels]), all_kernels):
            if functor not in BUDGETS:
                continue
            seen.add(functor)
            loop = [each for each in loop_with_packs(code, labels) if not each.startswith("NOP")]
            packs = sum(is_store(each) and ".128" in each for each in loop)
            count = len(loop) / packs if packs else 0
            print(json.dumps({"subject": "instructions", "case": functor, "architecture": ARCHITECTURE,
                              "of_a_pack": count, "budget": BUDGETS[functor]}))
            if not packs:
                complaints.append(f"{functor}: no loop stores 16 bytes")
            elif count > BUDGETS[functor]:
                complaints.append(f"{functor}: {count:.1f} instructions a pack of {ELEMENTS}; the budget is {BUDGETS[functor]}")
            narrow = [each for each in loop if is_load(each) and ".128" not in each]
            if narrow:
                complaints.append(f"{functor}: a load of less than 16 bytes: {narrow[0]}")
    complaints += [f"{functor}: no such kernel is compiled" for functor in BUDGETS.keys() - seen]
    print("\n".join(complaints), file=sys.stderr)
    sys.exit(1 if complaints else 0)


main()
