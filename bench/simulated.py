"""Holds prices against SimGrid, a second opinion: draws plans, and compares the price of each with the time of its
messages in `partita simulate`, both without overlap in layers. Prints one JSON object per plan, and on standard error
how many lie within 2 % and 10 %, and the worst. Needs smpirun (libsimgrid-dev).
  python3 -B bench/simulated.py [build/partita] [--seed 1] [--plans 120] [--jobs 1]"""

import argparse
import concurrent.futures
import json
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

MACHINES = pathlib.Path(__file__).resolve().parents[1] / "examples/machines"
USED = "dgx-h100 abci lassen frontier perlmutter".split()
MODELS = {"vgg16": [64, 256], "resnet50": [64, 128], "mlp": [256, 2048], "lenet5": [64, 512], "googlenet": [64]}
OPTIONS = {"mlp": "--channels 1024 --size 1 --classes 1024 --widths 4096 4096 1024".split()}
KINDS = "gpipe 1f1b zb-h1 interleaved zb-v chimera dualpipe-v".split()
RANKS = [2, 3, 4, 5, 8, 9, 12, 16, 17, 20, 23, 24, 32, 48, 64, 128, 256]


def factors(draw, ranks, most):
    """Between one and `most` factors of a number."""
    parts = []
    while ranks > 1 and len(parts) < most - 1 and draw.random() < 0.7:
        part = draw.choice([f for f in range(2, ranks + 1) if ranks % f == 0])
        parts.append(part)
        ranks //= part
    return parts + ([ranks] if ranks > 1 or not parts else [])


def drawn(draw):
    """A strategy as a file's text, the number of ranks, the options for the model, the machine and the scale."""
    ranks, model = draw.choice(RANKS), draw.choice(list(MODELS))
    stages = draw.choice([s for s in (2, 3, 4, 8) if ranks % s == 0] or [1]) if draw.random() < 1 / 3 else 1
    dims = draw.sample("NC" if model == "mlp" else "NCHW", 3 if model != "mlp" else 2)
    extents = factors(draw, ranks // stages, len(dims))
    cut = list(zip(dims, extents))
    text = 'grid = "{}"\n'.format(" ".join(f"{dim.lower()}={extent}" for dim, extent in cut))
    if stages > 1:
        kind = draw.choice(KINDS)
        text += f'stages = {stages}\n[schedule]\nkind = "{kind}"\nmicrobatches = {draw.choice([1, 2, 3, 4, 8, 16])}\n'
    text += '[[layer]]\nmatch = "*"\noutput = "{}"\n'.format(" ".join(f"{dim}@{dim.lower()}" for dim, _ in cut))
    batch = draw.choice(MODELS[model])
    size = ["--size", "224"] if model in ("vgg16", "resnet50", "googlenet") else []
    machine, scale = draw.choice(USED), draw.choice([1, 0.1, 0.001])
    return {"subject": "simulated", "case": f"{model}-{machine}", "ranks": ranks, "against": "SimGrid", "machine": machine, "scale": scale,
            "options": ["--model", model, "--batch", str(batch), *size, *OPTIONS.get(model, [])], "strategy": text}


def compared(program, case):
    """The case with its price and its simulated time, or None if the strategy is refused."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        (path / "strategy.toml").write_text(case["strategy"], encoding="utf-8")
        ran = subprocess.run([program, "simulate", "--machine", MACHINES / f"{case['machine']}.toml", "--strategy", path / "strategy.toml",
                              "--scale-compute", str(case["scale"]), "--memory-limit", "1TiB", "--out", path / "replay", "--json",
                              path / "results.json", *case["options"]], check=False, capture_output=True, text=True)
        if ran.returncode == 2:
            return None  # a strategy that the model refuses
        if ran.returncode != 0:
            raise RuntimeError(f"{case}: {ran.stdout}{ran.stderr}")
        results = json.loads((path / "results.json").read_text(encoding="utf-8"))
    return case | {"seconds": results["simulated"], "predicted": results["predicted"],
                   "error": results["predicted"] / results["simulated"] - 1}


def report(results):
    """Prints how far the prices are from the simulation."""
    errors = [each["error"] for each in results]
    shares = [f"{sum(abs(each) <= most for each in errors) / len(errors):.0%} within {most:.0%}" for most in (0.02, 0.1)]
    print(f"{len(errors)} plans: {', '.join(shares)}, from {min(errors):+.1%} to {max(errors):+.1%}", file=sys.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", nargs="?", default="build/partita")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plans", type=int, default=120)
    parser.add_argument("--jobs", type=int, default=1)
    args = parser.parse_args()
    if shutil.which("smpirun") is None:
        sys.exit("bench/simulated.py: this needs smpirun; on Debian: apt-get install libsimgrid-dev")
    draw, results, drawn_plans = random.Random(args.seed), [], 0
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        while len(results) < args.plans:
            cases = [drawn(draw) for _ in range(args.plans - len(results))]
            drawn_plans += len(cases)
            if drawn_plans > 20 * args.plans:
                sys.exit("bench/simulated.py: nearly all plans are refused; does `partita simulate` take these options?")
            for case in pool.map(lambda each: compared(args.program, each), cases):
                if case is not None:
                    results.append(case)
                    print(json.dumps(case), flush=True)
    report(results)


if __name__ == "__main__":
    main()
