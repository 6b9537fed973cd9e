"""Adds up the tests of several Meson runs and prints "N passed, N failed, N skipped" as its last line; exit status 1 if
any failed or none ran. Arguments: the number of steps that failed before they had tests, and the runs' testlog.json."""

import json
import re
import sys


def cases(test):
    """(passed, failed, skipped) of one Meson test: GoogleTest's cases if it says so, else one."""
    text = test.get("stdout") or ""
    counts = [sum(map(int, re.findall(rf"^\[  {word} \] (\d+) tests?", text, re.MULTILINE)))
              for word in ("PASSED ", "FAILED ", "SKIPPED")]
    good = test["result"] in ("OK", "EXPECTEDFAIL", "SKIP")
    if not any(counts):
        return (0, 0, 1) if test["result"] == "SKIP" else (int(good), int(not good), 0)
    if not good and counts[1] == 0:
        counts[1] = 1  # it failed outside of its cases: a crash, a leak, a time-out
    return tuple(counts)


def main():
    total = [0, int(sys.argv[1]), 0]
    for log in sys.argv[2:]:
        with open(log, encoding="utf-8") as lines:
            for line in lines:
                test = json.loads(line)
                found = cases(test)
                total = [a + b for a, b in zip(total, found)]
                if found[1]:
                    print(f"FAILED: {test['name']} ({log.split('/')[0]}): {test['result']}")
    print(f"{total[0]} passed, {total[1]} failed, {total[2]} skipped")
    return 1 if total[1] or not total[0] else 0


sys.exit(main())
