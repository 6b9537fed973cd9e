"""Writes bench/results/summary.md from the JSON lines beside it, one row per subject, machine and date. Also writes the
table of results in README.md."""

import collections
import json
import pathlib
import re
import statistics

RESULTS = pathlib.Path(__file__).resolve().parents[1] / "results"
FILE = re.compile(r"(\d{4}-\d\d-\d\d)-(.*)\.jsonl$")
OPPONENTS = {"jax": "JAX", "mpi": "MPI", "onednn": "oneDNN", "pytorch": "PyTorch", "scalapack": "ScaLAPACK"}
README = RESULTS.parents[1] / "README.md"
# README's headlines: what, compared with, the opponent, file of results, case.
HEADLINES = [
    ("training `fashion-cnn`, batch 128, 2 cores", "PyTorch 2.15, its fastest mode", "PyTorch", "2026-11-23-vm-epyc",
     "fashion-cnn-sample-batch128-peers"),
    ("training `resnet50`, batch 16, 2 cores", "PyTorch 2.15, its fastest mode", "PyTorch", "2026-11-23-vm-epyc",
     "resnet50-sample-batch16-peers"),
    ("training `mesh-tangling`, one 1024x1024 sample over space, 2 cores", "PyTorch 2.15, its fastest mode", "PyTorch",
     "2026-11-21-vm-partitioned", "mesh-tangling-spatial-batch1-peers"),
    ("training `resnet50` over samples, 2 ranks", "one rank", "one rank", "2026-11-23-vm-epyc", "resnet50-sample-batch16"),
    ("training `mesh-tangling` over space, 2 ranks", "one rank", "one rank", "2026-11-23-vm-epyc",
     "mesh-tangling-spatial-batch1"),
    ("all-reduce of 16 MiB, 2 ranks", "MPICH 4.0", "MPI", "2026-11-23-vm-epyc", "all-reduce-16MiB"),
]
PREDICTIONS = "2026-11-23-vm-epyc-cost-model"
INTRODUCTION = """# Results of the benchmarks

`python3 -B bench/support/summary.py` writes this page from the `.jsonl` files in this folder; do not edit it.
`bash bench/run.sh` adds the results of your machine. The name of a machine links to every case. It names the machine and,
after a hyphen, the processor or the part of the code if several were measured.
"""


def table(title, explanation, heads, rows):
    """A table of Markdown, or nothing if it would have no rows."""
    if not rows:
        return ""
    lines = [f"\n## {title}\n", f"{explanation}\n", "| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return "\n".join(lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows]) + "\n"


def median(values, form):
    """The median in this form, or a dash if there are no values."""
    values = [value for value in values if value is not None]
    return format(statistics.median(values), form) if values else "-"


def read(folder):
    """All results, each with the keys "date" and "machine" (a link to the table of all cases, if there is one)."""
    found = []
    for path in sorted(folder.glob("*.jsonl")):
        name = FILE.fullmatch(path.name)
        page = path.with_suffix(".md") if path.with_suffix(".md").exists() else path
        for line in path.read_text(encoding="utf-8").splitlines():
            found.append(json.loads(line) | {"date": name[1], "machine": f"[{name[2]}]({page.name})"})
    return found


def grouped(results, key):
    """The results with the same key, machine and date: rows of (key..., machine, date) and a list, sorted."""
    groups = collections.defaultdict(list)
    for result in results:
        groups[*key(result), result["machine"], result["date"]].append(result)
    return sorted(groups.items(), key=lambda group: (group[0][:-2], group[0][-1], group[0][-2]))


def opponent(result):
    """Whom we are compared with, without versions and options: "PyTorch"."""
    return OPPONENTS.get(result["against"].split()[0].lower(), result["against"])


def subject_of_time(result):
    """The subject, for training steps with the model: "train resnet50"."""
    model = re.split(r"-(?:sample|spatial|peers|batch)", result["case"])[0]
    return result["subject"] + (f" {model}" if result["subject"] == "train" else "")


def ratios(group):
    """One ratio per case: against the fastest of the opponent's ways to run it."""
    least = {}
    for result in group:
        least[result["case"]] = min(result["ratio"], least.get(result["case"], result["ratio"]))
    return list(least.values())


def times(results):
    taken = [r for r in results if "ratio" in r and "predicted" not in r and "per_second" not in r]
    rows = []
    for key, group in grouped(taken, lambda r: (subject_of_time(r), opponent(r), r["ranks"])):
        found = ratios(group)
        rows.append([*key, len(found), median(found, ".2f"), f"{min(found):.2f}", f"{max(found):.2f}",
                     median([r["spread"] for r in group if r["seconds"]], ".0%")])
    return table("Time", "The ratio is the opponent's time by ours: above 1 we are faster. If an opponent has several ways to run a\n"
                 "case, its fastest counts. The spread is the distance of the quartiles of our time by its median.",
                 ["subject", "against", "ranks", "machine", "date", "cases", "median ratio", "lowest", "highest", "spread"], rows)


def predictions(results):
    summaries = collections.defaultdict(list)
    for r in results:
        if "rank_correlation" in r:
            summaries[r["case"].removeprefix("summary of "), r["machine"], r["date"]].append(r)
    rows = []
    taken = [r for r in results if "predicted" in r]
    for key, group in grouped(taken, lambda r: (r["subject"], "schedules" if r["subject"] == "pipeline" else r["case"].split()[0])):
        found = summaries[key[1:]]
        errors = [abs(r["error"]) for r in group]
        rows.append([f"{key[0]} {key[1]}", *key[2:], len(group), median(errors, ".1%"), f"{max(errors):.1%}",
                     median([r.get("memory_error") for r in group], ".1%"), median([r["rank_correlation"] for r in found], ".2f"),
                     median([r.get("regret_of_plan") for r in found], ".1%")])
    return table("Predictions", "The error is the distance of the predicted time of a step from the measured one, relative to it. The rank\n"
                 "correlation compares the orders of the strategies by predicted and by measured time. The regret says how much\n"
                 "slower the planner's strategy is than the fastest that was measured.",
                 ["subject", "machine", "date", "cases", "median error", "worst", "median memory error", "rank correlation",
                  "regret of the plan"], rows)


def rates(results):
    rows = [[*key, f"{statistics.median(r['per_second'] for r in group):,.0f}", median([r["spread"] for r in group], ".0%")]
            for key, group in grouped([r for r in results if "per_second" in r], lambda r: (f"{r['subject']} {r['case']}",))]
    return table("Rate", "How often a second the planner's steps run.",
                 ["subject", "machine", "date", "median a second", "spread"], rows)


def differences(results):
    rows = [[*key, sum(r["cases"] for r in group), sum(r["partitioned"] for r in group),
             f"{max(r['largest_difference'] for r in group):.1e}"]
            for key, group in grouped([r for r in results if "largest_difference" in r and "cases" in r],
                                      lambda r: (r["subject"], opponent(r)))]
    return table("Differences", "Outputs and gradients of random layers, compared with another framework's in f64.",
                 ["subject", "against", "machine", "date", "cases", "of them partitioned", "largest difference"], rows)


def curves(results):
    rows = [[*key, r["steps"], f"{r['first_loss']:.2f}", f"{r['last_loss']:.2f}", f"{r['largest_difference']:.1e}",
             f"{r['largest_norm_difference']:.1e}"]
            for key, group in grouped([r for r in results if r["subject"] == "curve"], lambda r: (r["case"], opponent(r)))
            for r in group]
    return table("Curves", "Training from the same weights, on the same data in the same order. The differences are relative to the other\n"
                 "framework's loss and norm of the gradients, and the largest of all steps.",
                 ["model", "against", "machine", "date", "steps", "first loss", "last loss", "difference of the loss",
                  "difference of the norm"], rows)


def exchanges(results):
    rows = [[*key, len(group), sum(r["ok"] for r in group)]
            for key, group in grouped([r for r in results if "direction" in r],
                                      lambda r: (f"{r['subject']}: {r['direction']}", opponent(r)))]
    return table("Exchange", "Schedules that pass between the two programs as CSV.",
                 ["subject", "against", "machine", "date", "cases", "as expected"], rows)


def headline(what, against, ratio_of, file, case):
    """One row of README's table: the ratio of a case in a file of results, against the opponent's fastest way."""
    lines = [json.loads(line) for line in (RESULTS / f"{file}.jsonl").read_text(encoding="utf-8").splitlines()]
    found = [r for r in lines if r.get("case") == case and r["ranks"] == 2 and opponent(r) == ratio_of]
    return f"| {what} ({file[5:10]}) | {against} | {min(r['ratio'] for r in found):.2f} |"


def prediction_headline(file):
    errors = [abs(r["error"]) for r in read(RESULTS) if "predicted" in r and f"({file}." in r["machine"]]
    return (f"| predicted time of a step, {len(errors)} strategies ({file[5:10]}) | measured time | "
            f"{statistics.median(errors):.1%} median error, {max(errors):.1%} worst |")


def headlines():
    """README's table of results."""
    rows = [headline(*row) for row in HEADLINES] + [prediction_headline(PREDICTIONS)]
    return "\n".join(["| what | compared with | ratio |", "|---|---|---|", *rows]) + "\n"


def readme(text):
    """README's text with the table of results as it should be."""
    return re.sub(r"\| what \| compared with \| ratio \|\n(\|.*\n)+", headlines(), text)


def summary(folder=RESULTS):
    """The whole page."""
    results = read(folder)
    return INTRODUCTION + "".join(part(results) for part in (times, predictions, rates, differences, curves, exchanges))


if __name__ == "__main__":
    (RESULTS / "summary.md").write_text(summary(), encoding="utf-8")
    README.write_text(readme(README.read_text(encoding="utf-8")), encoding="utf-8")
