"""Jobs of Slurm without Slurm: the scripts of `scale --slurm` and `train --slurm`, and what becomes of them when
programs stand in for sbatch, srun, squeue and scontrol. test/deploy/slurm.py runs them under Slurm. Arguments: the
launcher build/mpiexec and the program build/partita."""

import json
import os
import pathlib
import re
import shutil
import sys

from checks import Program, check, read, read_json, refused, refuses, run_parts, write

partita = Program(sys.argv[2], sys.argv[1])
POINTS = ["--model", "lenet5", "--width", "0.25", "--batch", "8", "--steps", "3", "--ranks", "1", "2", "--repeats", "2",
          "--grid", "data={}", "y={}", "data={} c=1"]
OUT = ["--out", "r.json"]
TRAIN = ["train", "--model", "lenet5", "--width", "0.25", "--data", "synthetic", "--samples", "64", "--batch", "16",
         "--dtype", "f64", "--no-test", "--epochs", "4"]
# sbatch notes its words. Then it runs each job of the array, but none that the file "dead" names.
PROGRAMS = {
    "sbatch": """echo "$@" >>submitted
[ -e refused ] && { echo "sbatch: error: invalid partition" >&2; exit 1; }
for word; do case $word in --array=*) array=${word#--array=};; esac; script=$word; done
for job in ${array//,/ }; do
  grep -qsx "$job" dead && continue
  SLURM_ARRAY_TASK_ID=$job bash "$script" >"r.json.slurm/$job.txt" 2>&1
done
echo 7""",
    "srun": f"""echo "$@" >>started
[ "$1" = --cpu-bind=cores ] || exit 9
shift
[ "$1" = -n ] || set -- -n 2 "$@"
exec {os.path.abspath(sys.argv[1])} "$@" """,
    "squeue": "cat queue 2>/dev/null; exit 0",
    "scontrol": 'echo "$@" >>requeued',
}


def stand_ins():
    """Writes the programs. Returns the variables with which they are found."""
    os.makedirs("programs")
    for name, text in PROGRAMS.items():
        pathlib.Path(write(f"programs/{name}", f"#!/bin/bash\n{text}\n")).chmod(0o755)
    return {"PATH": f"{os.getcwd()}/programs:{os.environ['PATH']}"}


def a_dry_run_writes_nothing():
    """The scripts: an array for each number of ranks, with its nodes and binding, and a job for each point."""
    ran = partita("scale", *POINTS, *OUT, "--slurm", "--dry-run", "--ranks-per-node", "1", "--threads", "2", "--sbatch",
                  "--partition=gpu --time=5")
    check("it writes nothing", os.listdir() == [], os.listdir())
    one, two = ran.out.split("#!/bin/bash\n")[1:]
    for line in ("--job-name=partita-2", "--nodes=2", "--ntasks-per-node=1", "--ntasks=2", "--cpus-per-task=2",
                 "--distribution=block:block", "--no-requeue", "--partition=gpu", "--time=5",
                 f"--output={os.getcwd()}/r.json.slurm/%a.txt"):
        check(f"#SBATCH {line}", f"#SBATCH {line}\n" in two, two)
    check("one node for one rank", "#SBATCH --nodes=1\n#SBATCH --ntasks-per-node=1\n#SBATCH --ntasks=1\n" in one, one)
    jobs = re.findall(r"^  (\d+)\) run srun --cpu-bind=cores -n (\d) (\S+) train (.*) ;;$", ran.out, re.M)
    check("six points", [(number, ranks) for number, ranks, *_ in jobs] == [
        ("0", "1"), ("2", "1"), ("4", "1"), ("1", "2"), ("3", "2"), ("5", "2")], ran.out)
    check("they run this program", all(pathlib.Path(path).samefile(partita.path) for _, _, path, _ in jobs), jobs)
    check("and the commands that submit them", re.search(
        r"^# sbatch --parsable --array=0,2,4 \S+/ranks-1.sh$", ran.out, re.M) and "--array=1,3,5 " in ran.out, ran.out)
    check("threads", ran.out.count("export OMP_NUM_THREADS=2\n") == 2, ran.out)


def a_point_is_lost():
    """Of six points, the job of one leaves no result."""
    variables = stand_ins()
    write("dead", "3\n")
    partita("scale", *POINTS, *OUT, "--slurm", variables=variables)
    check("two arrays were submitted", [line.split()[1] for line in read("submitted").splitlines()] == [
        "--array=0,2,4", "--array=1,3,5"], read("submitted"))
    first = {path.name: path.stat().st_mtime_ns for path in pathlib.Path("r.json.slurm").glob("*.json")}
    write("queue", "7 3 PENDING\n8 2 RUNNING\n")
    ran = partita("scale", *POINTS, *OUT, "--collect", variables=variables, status=1)
    check("--collect names the missing point", "missing: y={} on 2 ranks: 2 of 2 runs, its job is PENDING\n" in ran.out and
          ran.out.count("missing:") == 1, ran)
    report = read_json("r.json")
    check("and has the others", [(run["strategy"], run["ranks"], len(run["repeats"])) for run in report["runs"]] == [
        (name, ranks, 2) for name, ranks in (("data={}", 1), ("data={}", 2), ("y={}", 1), ("data={} c=1", 1),
                                             ("data={} c=1", 2))], report["runs"])
    ran = partita("scale", *POINTS, *OUT, "--slurm", "--resubmit", variables=variables)
    check("what is in the queue is not submitted again", "nothing is left" in ran.out and
          len(read("submitted").splitlines()) == 2, ran)
    write("queue", "")
    write("dead", "")
    shutil.copy("r.json.slurm/2.1.json", "r.json.slurm/3.1.json")  # its first run was done before it was lost
    first["3.1.json"] = os.stat("r.json.slurm/3.1.json").st_mtime_ns
    ran = partita("scale", *POINTS, *OUT, "--collect", variables=variables, status=1)
    check("it is in no queue now", "1 of 2 runs, in no queue of Slurm\n" in ran.out, ran)
    partita("scale", *POINTS, *OUT, "--slurm", "--resubmit", variables=variables)
    check("--resubmit submits it alone", read("submitted").splitlines()[2:] == [
        f"--parsable --array=3 {os.getcwd()}/r.json.slurm/ranks-2.sh"], read("submitted"))
    check("no run that was done runs again", all(pathlib.Path("r.json.slurm", name).stat().st_mtime_ns == when
                                           for name, when in first.items()) and len(first) == 12, first)
    ran = partita("scale", *POINTS, *OUT, "--csv", "r.csv", "--collect", variables=variables)
    check("then all points are there", len(read_json("r.json")["runs"]) == 6 and "missing" not in ran.out and
          read("r.csv").count("\n") == 7, ran)
    refused("another experiment", partita("scale", *POINTS, "--weak", *OUT, "--collect", variables=variables, status=2),
            "are of another experiment: its scaling is 'strong', here 'weak'")
    fewer = [*POINTS[:-2], *OUT, "--collect"]
    refused("other points", partita("scale", *fewer, variables=variables, status=2),
            "it has other strategies or numbers of ranks")
    refused("jobs are there", partita("scale", *POINTS, *OUT, "--slurm", variables=variables, status=2),
            "has jobs of an earlier scale --slurm; add --resubmit")


def a_point_fails():
    """A strategy that cannot be bound, and one run of two."""
    variables = stand_ins()
    write("broken.toml", 'grid = "data=1"\n[[layer]]\nmatch = "no-such-layer"\noutput = "N@data"\n')
    words = ["scale", *POINTS[:6], "--steps", "3", "--ranks", "1", "--repeats", "2", "--strategy", "broken.toml", *OUT]
    partita(*words, "--slurm", variables=variables)
    ran = partita(*words, "--collect", variables=variables, status=1)
    run = read_json("r.json")["runs"][0]
    check("its status and message are collected", run["status"] == 2 and "no-such-layer" in run["message"] and
          "failed with status 2" in ran.out and "--resubmit" in ran.out, ran)
    check("its other repeat does not run", len(read("started").splitlines()) == 1, read("started"))
    write("broken.toml", 'grid = "data=1"\n[[layer]]\nmatch = "*"\noutput = "N@data"\n')
    refused("another text of the strategy", partita(*words, "--slurm", "--resubmit", variables=variables, status=2),
            "'broken.toml' on 1 ranks was different")
    write("refused", "")
    refused("sbatch fails", partita("scale", *POINTS, "--out", "s.json", "--slurm", variables=variables, status=2),
            "sbatch ended with status 1: sbatch: error: invalid partition")


def a_training_returns_to_the_queue():
    """The script of train --slurm: a run that the time limit ends is resumed in the next job, until it is finished."""
    variables = stand_ins()
    slow = ["--delay", "rank=0:120ms", "--save", "w.h5", "--time-limit", "2s"]
    partita(*TRAIN, *slow, "--keep", "2", "--slurm", "job.sh", "--ranks", "2", "--sbatch", "--partition=gpu")
    script = read("job.sh")
    for line in ("--ntasks=2", "--requeue", "--open-mode=append", "--time=11", "--partition=gpu", "--output=w.h5.txt"):
        check(f"#SBATCH {line}", f"#SBATCH {line}\n" in script, script)
    check("only the script is written", not os.path.exists("w.h5") and "--slurm" not in script and
          "--ranks" not in script, script)
    check("the next job resumes", re.search(r"^if \[ -e w.h5 \]; then\n  srun .* --load w.h5\nelse\n  srun .*\nfi$", script,
                                            re.M) and script.count("--load") == 1, script)
    jobs = 0
    while jobs < 8 and (jobs == 0 or len(read("requeued").splitlines() if os.path.exists("requeued") else []) == jobs):
        os.system(f"PATH={variables['PATH']} SLURM_JOB_ID=12 bash job.sh >>w.h5.txt 2>&1")
        jobs += 1
    check(f"{jobs} jobs train", 2 <= jobs < 8 and read("requeued") == "requeue 12\n" * (jobs - 1), read("w.h5.txt"))
    check("the last one says so", read("w.h5.txt").endswith("the training is finished\n"), read("w.h5.txt"))
    partita(*TRAIN, "--save", "whole.h5", "--json", "whole.json", ranks=2)
    chain, whole = read_json("w.h5.json"), read_json("whole.json")
    check("its losses are those of one run", chain["losses"] == whole["losses"] and len(chain["losses"]) == 16,
          json.dumps([chain["losses"], whole["losses"]]))
    check("and so are its weights, bit for bit", pathlib.Path("w.h5").read_bytes() == pathlib.Path(
        "whole.h5").read_bytes())
    write("programs/srun", "#!/bin/bash\nexit 3\n")
    failed = os.system(f"PATH={variables['PATH']} SLURM_JOB_ID=12 bash job.sh") >> 8
    check("a run that fails ends the job", failed == 3 and read("requeued").count("\n") == jobs - 1, failed)


def errors():
    """Options that do not fit together."""
    scale = ["scale", *POINTS]
    for name, words, *patterns in (
            ("no file for results", [*scale, "--slurm"], "--slurm needs --out FILE"),
            ("nothing to collect", [*scale, *OUT, "--collect"], "there is no experiment in .*; begin with scale --slurm"),
            ("nothing to submit again", [*scale, *OUT, "--slurm", "--resubmit"], "leave --resubmit out"),
            ("both", [*scale, *OUT, "--slurm", "--collect"], "give one of them"),
            ("without --slurm", [*scale, "--dry-run"], "--dry-run needs --slurm"),
            ("ranks of a node", [*scale, *OUT, "--slurm", "--ranks-per-node", "-1"], "--ranks-per-node -1: it must be"),
            ("no Slurm", [*scale, *OUT, "--slurm"], "there is no program sbatch"),
            ("a script without checkpoints", [*TRAIN, "--slurm", "job.sh"], "needs --save FILE and --time-limit TIME"),
            ("sbatch without a script", [*TRAIN, "--sbatch", "--time=5"], "--sbatch needs --slurm"),
            ("another number of ranks", [*TRAIN, "--grid", "data=4", "--ranks", "2", "--save", "w.h5", "--time-limit",
                                         "9s", "--slurm", "job.sh"], "has 4 ranks, but 2 were started")):
        bare = {"PATH": "/nowhere"} if name == "no Slurm" else None
        if name == "no Slurm":
            refused(name, partita(*words, variables=bare, status=2), *patterns)
        else:
            refuses(name, lambda words=words: partita(*words, status=2), *patterns)


run_parts(a_dry_run_writes_nothing, a_point_is_lost, a_point_fails, a_training_returns_to_the_queue, errors, apart=True)
