"""Runs the standing trial: every public report that was ever tried, as one small case, with the right value.
Arguments: the launcher build/mpiexec, build/partita, the programs that models.cpp, shift.cpp and volumes.cpp make, and
perhaps words of names: then only cases run whose name has one of them."""

import os
import pathlib
import subprocess
import sys
import tempfile
import time

import command_line  # pylint: disable=unused-import
import data  # pylint: disable=unused-import
import numerics  # pylint: disable=unused-import
import running  # pylint: disable=unused-import
import trial


def main():
    programs = trial.Programs(*map(os.path.abspath, sys.argv[1:6]))
    words = sys.argv[6:]
    failed = []
    chosen = [case for case in trial.CASES if not words or any(word in case.name for word in words)]
    assert chosen, f"no case has one of {words} in its name"
    for case in chosen:
        start = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            try:
                case.run(trial.Shell(programs, pathlib.Path(folder)))
                problem = ""
            except (AssertionError, subprocess.TimeoutExpired) as error:
                problem = str(error) or "wrong"
        print(f"{'FAIL' if problem else 'ok  '} {time.monotonic() - start:5.1f} s  {case.name}", flush=True)
        if problem:
            failed.append(case.name)
            print(f"     reported: {' '.join(case.reported.split())}\n     now: {problem[-3000:]}", flush=True)
    print(f"{len(chosen) - len(failed)} of {len(chosen)} cases are right")
    return 1 if failed else 0


sys.exit(main())
