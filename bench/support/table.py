"""Prints the results of benchmarks as a Markdown table. Argument: a file with one JSON object per line."""

import json
import platform
import sys

print(f"{platform.machine()}, {platform.system()} {platform.release()}\n")
print("| subject | case | ranks | seconds | spread | ratio | against | sum of 64 KiB, us |\n|---|---|---|---|---|---|---|---|")
with open(sys.argv[1], encoding="utf-8") as file:
    for row in map(json.loads, file):
        if not row["case"].startswith("summary"):
            ratio = row["ratio"] if "ratio" in row else row["predicted"] / row["seconds"]
            spread = f"{row['spread']:.2f}" if "spread" in row else ""
            print(f"| {row['subject']} | {row['case']} | {row['ranks']} | {row['seconds']:.2e} | {spread} | {ratio:.2f} | "
                  f"{row['against']} | {row.get('sum_us', '')} |")
