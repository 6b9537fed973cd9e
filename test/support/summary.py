"""Adds up the tests of several Meson runs and prints "N passed, N failed, N skipped" as its last line. The exit status
is 1 if a test failed or none passed. Arguments: the number of steps that failed before they ran tests, and the
testlog.json of each run."""

import json
import re
import sys


def cases(test):
    """Returns (passed, failed, skipped) of one Meson test: GoogleTest's counts if it prints them, else one case."""
    text = test.get("stdout") or ""
    counts = [sum(map(int, re.findall(rf"^\[  {word} \] (\d+) tests?", text, re.MULTILINE)))
              for word in ("PASSED ", "FAILED ", "SKIPPED")]
    good = test["result"] in ("OK", "EXPECTEDFAIL", "SKIP")
    if not any(counts):
        return (0, 0, 1) if test["result"] == "SKIP" else (int(good), int(not good), 0)
    if not good and counts[1] == 0:
        counts[1] = 1  # it failed outside its cases: a crash, a leak, a timeout
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
