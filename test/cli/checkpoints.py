"""Tests the course of a training as a user sees it: resuming, fine-tuning, signals, numbers that are not finite, and
files that must not be overwritten. Arguments: the launcher build/mpiexec and the program build/partita."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time

LAUNCHER, PROGRAM = map(os.path.abspath, sys.argv[1:3])
SMALL = {"--data": "synthetic", "--samples": 24, "--batch": 8, "--dtype": "f64", "--model": "lenet5", "--width": 0.5}
failures = []


def check(name, holds, shown=""):
    print(f"{'ok  ' if holds else 'FAIL'} {name}")
    if not holds:
        failures.append(name)
        print(shown)


def command(*arguments, ranks=1):
    """A command line that trains a small network. `arguments` replace the options of SMALL."""
    small = [str(word) for name, value in SMALL.items() if name not in arguments for word in (name, value)]
    return ([LAUNCHER, "-n", str(ranks)] if ranks > 1 else []) + [PROGRAM, "train", "--no-test", *small, *map(str, arguments)]


def train(*arguments, ranks=1):
    return subprocess.run(command(*arguments, ranks=ranks), capture_output=True, text=True, timeout=60, check=False)


def expect(name, status, result, *patterns):
    """The exit status is `status`, and each pattern is in the output."""
    text = result.stdout + result.stderr
    missing = [p for p in patterns if not re.search(p, text)]
    ours = [line for line in result.stderr.splitlines() if line.startswith("partita: ")]
    check(name, result.returncode == status and not missing and len(ours) == (1 if status else 0),
          f"status {result.returncode}, missing {missing}\n{text}")


def losses(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)["losses"]


def content(path):
    with open(path, "rb") as file:
        return file.read()


def resume_with_every_decay():
    for decay in ("none", "linear", "cosine"):
        options = ["--decay", decay, "--warm-up", "2", "--epochs", "2"]
        train(*options, "--json", "whole.json")
        # 6 steps; the first run ends after 2 of the first epoch's 3.
        train(*options, "--steps", "2", "--decay-steps", "6", "--save", "w.h5", "--overwrite", "--json", "first.json", ranks=2)
        result = train("--load", "w.h5", "--rate", "0.05", "--json", "second.json")
        expect(f"decay {decay}: a resumed run takes its course from the checkpoint", 0, result,
               "note       --epochs: the checkpoint has 2, this command line 1; training goes on with 2, as without interruption",
               "note       --warm-up: the checkpoint has 2, this command line 0; training goes on with 2",
               r"epoch 1 .*\(steps 3 to 3 of 3\)")
        whole, parts = losses("whole.json"), losses("first.json") + losses("second.json")
        check(f"decay {decay}: losses as without interruption", len(parts) == 6 and
              all(abs(a - b) < 1e-11 for a, b in zip(whole, parts)), f"{whole}\n{parts}")
    expect("what the command line says wins, and is told", 0, train("--load", "w.h5", "--rate", "0.1"),
           "note       --rate: the checkpoint has 0.05, this command line 0.1; training goes on with 0.1, because this command line says so")
    train("--steps", 4, "--flip", "--epochs", 2, "--save", "flip.h5", "--save-every", 1)
    expect("a switch that is off beats the checkpoint", 0, train("--load", "flip.h5", "--flip=false"),
           "note       --flip: the checkpoint has yes, this command line no; training goes on with no, because this command line says so",
           "note       --steps: the checkpoint has 4; they are done, and training goes on")
    with subprocess.Popen(command("--steps", 30000, "--epochs", 90000, "--save", "cut.h5"), stdout=subprocess.PIPE, text=True) as job:
        next(line for line in job.stdout if line.startswith("epoch"))
        job.send_signal(signal.SIGTERM)
        job.stdout.read()
    more = train("--load", "cut.h5", "--epochs", 1)
    expect("more epochs go beyond --steps", 0, more, "--steps: the checkpoint has 30000; training goes on to the end of --epochs")
    expect("no step at rate 0", 2, train("--load", "w.h5", "--epochs", "4"), "--decay-steps 12")
    expect("another optimizer", 2, train("--load", "w.h5", "--optimizer", "adam"),
           r'another optimizer: "sgd", here it is "adam"; give --optimizer sgd', "--new-run")
    expect("another data set", 2, train("--load", "w.h5", "--data", "fashion-mnist"), 'another data: "synthetic"', "--new-run")


def not_finite():
    wild = ["--rate", "1e308", "--epochs", "3"]
    for ranks in (1, 3):
        result = train(*wild, "--save", f"wild{ranks}.h5", ranks=ranks)
        expect(f"NaN ends a run on {ranks} ranks", 3, result, r"step \d+: ", r"layer '\w+' on rank \d", "try a lower --rate")
    train("--epochs", "1", "--save", "good.h5", "--decay-steps", "9")
    before = content("good.h5")
    result = train("--load", "good.h5", "--save", "good.h5", *wild)
    expect("the good checkpoint stays", 3, result, "good.h5")
    check("the good checkpoint is as it was", content("good.h5") == before)
    result = train(*wild, "--on-nan", "skip", "--json", "skip.json", ranks=2)
    with open("skip.json", encoding="utf-8") as file:
        skipped = json.load(file)["skipped_steps"]
    expect("--on-nan skip goes on and counts", 0, result, f"{skipped} steps? left the weights as they were")
    check("skipped steps in the results", skipped > 0)
    expect("--check-replicas below 0", 2, train("--check-replicas", "-2"), "--check-replicas -2: it must be 0 or more")
    expect("--on-nan of another word", 2, train("--on-nan", "retry"), "--on-nan retry: write stop or skip")


def f16():
    result = train("--dtype", "f16", "--json", "f16.json")
    with open("f16.json", encoding="utf-8") as file:
        scale = json.load(file)["loss_scale"]
    expect("f16 prints its loss scale", 0, result, f"loss scale {scale:g}")


def overwriting():
    with open("notes.txt", "w", encoding="utf-8") as file:
        file.write("notes")
    expect("--save of another file", 2, train("--save", "notes.txt"), "notes.txt: the file there is not a checkpoint of Partita",
           "save to another name, or remove it")
    check("the other file stays", content("notes.txt") == b"notes")
    train("--epochs", "1", "--save", "mine.h5", "--decay-steps", "6")
    first = content("mine.h5")
    expect("--save of another run's checkpoint", 2, train("--save", "mine.h5"), "it belongs to another run, of the model",
           "with seed 1 after 3 steps", "--load mine.h5", "--overwrite")
    check("the other run's checkpoint stays", content("mine.h5") == first)
    expect("--overwrite", 0, train("--save", "mine.h5", "--overwrite", "--epochs", "1", "--decay-steps", "6"))
    check("equal runs save equal bytes", content("mine.h5") == first)
    with open("private.json", "w", encoding="utf-8"):
        os.chmod("private.json", 0o600)
    train("--json", "private.json")
    check("a file that is replaced keeps its permissions", os.stat("private.json").st_mode & 0o777 == 0o600 and len(losses("private.json")) == 3)
    validated = ["--validate", "0.25", "--epochs", 1]
    train(*validated, "--best", "best.h5", "--seed", 7)
    train(*validated, "--save", "own.h5", "--best", "own_best.h5")
    train("--load", "own.h5", "--validate", "0.25", "--epochs", 2, "--flip", "--write-options", "own.toml")
    with open("own.toml", encoding="utf-8") as file:
        lines = file.read().splitlines()
    check("what a resumed run takes from its checkpoint is not written", "flip = true" in lines and "# rate = 0.05" in lines and "rate = 0.05" not in lines)
    result = train("--validate", "0.25", "--epochs", 2, "--load", "own.h5", "--best", "best.h5")
    expect("a run that goes on does not replace another run's best", 2, result, "--best best.h5: it belongs to another run")
    expect("but its own", 0, train("--validate", "0.25", "--epochs", 2, "--load", "own.h5", "--best", "own_best.h5"))
    for option in ("--json", "--trace", "--write-options"):
        expect(f"{option} of a checkpoint", 2, train(option, "own.h5"), f"{option} own.h5: the file there is a checkpoint or another HDF5 file")
    expect("--json of a text", 2, train("--json", "notes.txt"), "--json notes.txt: the file there is not JSON, so it is not replaced")
    for option in ("--save", "--load", "--json"):
        expect(f"an empty {option}", 2, train(option, ""), f"{option} is empty; give a value, or leave it out")
    expect("another --validate", 2, train("--load", "own.h5", "--epochs", 2), "give the same data, --samples and --validate as then")
    # Two jobs at once: the slower one finds the file of the other at its first save.
    jobs = [subprocess.Popen(command("--epochs", 40, "--seed", seed, "--save", "both.h5"), stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True) for seed in (1, 2)]
    ended = [(job.communicate(timeout=60), job.returncode) for job in jobs]
    text = "".join(out + err for (out, err), _ in ended)
    check("of two jobs with one --save, one says so and ends", sorted(status for _, status in ended) in ([0, 3], [0, 2]) and
          re.search("(another run has written it meanwhile|it belongs to another run|another run is writing it now)", text), text)
    # Two jobs that begin at once and save after the same step: exactly one goes on. PARTITA_LONG tries it more often.
    for attempt in range(40 if os.environ.get("PARTITA_LONG") else 4):
        jobs = [subprocess.Popen(command("--epochs", 2, "--seed", seed, "--save", f"race{attempt}.h5"), stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, text=True) for seed in (1, 2)]
        ended = [(job.communicate(timeout=60), job.returncode) for job in jobs]
        if sorted(status for _, status in ended) not in ([0, 3], [0, 2]) or any(
                status == 2 and "it belongs to another run" not in err for (_, err), status in ended):
            check(f"two jobs that save at once, attempt {attempt}", False, ended)
    check("of jobs that save at once, all but one end with status 3", True)


def what_stops_a_save():
    """It is found before training, and leaves everything as it was."""
    os.symlink("loopb", "loopa")
    os.symlink("loopa", "loopb")
    os.mkdir("folder.h5.partial")
    with open("victim", "w", encoding="utf-8") as file:
        file.write("text")
    os.symlink("victim", "link.h5.partial")
    for name, part in (("loopa", "Too many levels of symbolic links"), ("folder.h5", "Is a directory"), ("link.h5", "it is a symbolic link")):
        for option in ("--save", "--best"):
            more = ["--validate", "0.25"] if option == "--best" else []
            result = train(option, name, *more)
            expect(f"{option} {name}", 2, result, f"{option} {name}: .*{part}")
            check(f"{option} {name}: found before training", "epoch" not in result.stdout, result.stdout)
    check("links, folders and files stay", os.readlink("loopa") == "loopb" and os.path.isdir("folder.h5.partial") and content("victim") == b"text")
    unshare = ["unshare", "--mount", "--map-root-user"]
    if subprocess.run([*unshare, "true"], check=False).returncode == 0:
        train("--save", "mounted.h5", "--epochs", "1", "--decay-steps", "3")
        words = " ".join(shlex.quote(word) for word in command("--load", "mounted.h5", "--save", "mounted.h5", "--epochs", "2"))
        result = subprocess.run([*unshare, "sh", "-c", f"mount --bind mounted.h5 mounted.h5 && {words}"], capture_output=True, text=True, timeout=60,
                                check=False)
        expect("--save of a mounted file", 2, result, "--save mounted.h5: .*a file is mounted there")
    result = train("--load", "mine.h5", "--epochs", "1", "--save", "copy.h5")
    expect("nothing left to train is saved under another name", 0, result, "nothing is left to train")
    check("the copy has the same weights", os.path.exists("copy.h5") and
          losses_after("mine.h5") == losses_after("copy.h5"))


def losses_after(path):
    train("--load", path, "--epochs", "2", "--decay-steps", "6", "--json", "after.json")
    return losses("after.json")


def rates():
    expect("no step of a fresh run at rate 0", 2, train("--decay", "linear", "--decay-steps", "5", "--steps", "10", "--epochs", "9"),
           "--decay-steps 5: the learning rate would be 0 after these steps, but 10 are asked for; give --decay-steps 10")
    expect("a decay that nothing asks for", 0, train("--decay-steps", "5"), "note       --decay-steps 5: it has no effect without --decay")
    expect("a warm-up beyond the end", 0, train("--warm-up", "1000000000000"), "note       --warm-up 1000000000000: the training has 3 steps, so")
    result = train("--warm-up", "2", "--decay", "cosine", "--decay-steps", "3")
    check("a decay to the last step needs no note", result.returncode == 0 and "note" not in result.stdout, result.stdout)


def epochs_and_numbers():
    train("--epochs", 2, "--save", "two.h5", "--overwrite")
    small = [word for word in command("--load", "two.h5") if word != "--no-test"]
    small[small.index("train")] = "evaluate"
    result = subprocess.run(small, capture_output=True, text=True, timeout=60, check=False)
    expect("evaluate names the epoch of the checkpoint", 0, result, r"test  2  +loss")
    result = train("--rate", "1e308", "--epochs", 2, "--on-nan", "skip", "--log", "skip.csv")
    text = result.stdout + result.stderr + content("skip.csv").decode()
    check("no number is -nan", not re.search(r"(?<!\w)-nan", text) and result.returncode == 0, text)
    check("an epoch of skipped steps has no loss", "epoch 2    no loss: all steps were skipped" in result.stdout, result.stdout)


def start(*arguments):
    """Starts a long training on two ranks. Returns it, and the process numbers of its ranks, after the first epoch."""
    job = subprocess.Popen(command("--epochs", 100000, *arguments, ranks=2), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                           text=True)
    pids, text = [], ""
    for line in job.stdout:
        text += line
        if line.startswith("ranks"):
            pids = [int(pid) for pid in re.findall(r"\b\d+:(\d+)", line)]
        if line.startswith("epoch"):
            return job, pids
    raise AssertionError(text)


def signals():
    job, pids = start("--save", "s.h5")
    os.kill(pids[1], signal.SIGUSR1)
    line = next((line for line in job.stdout if "SIGUSR1" in line), "")
    check("SIGUSR1 to any rank saves and goes on", re.search(r"saved s\.h5 after \d+ steps \(SIGUSR1\)", line), line)
    os.kill(pids[1], signal.SIGTERM)
    out = job.stdout.read()
    check("SIGTERM to any rank saves and ends with status 0", job.wait(timeout=30) == 0 and "stopped    by SIGTERM" in out, out[-2000:])
    done = int(re.search(r"stopped    by SIGTERM after (\d+) step", out)[1])
    words = shlex.split(out.splitlines()[-1])
    check("it prints how to resume", words[:2] == ["mpiexec", "-n"] and words[-2:] == ["--load", "s.h5"], out[-2000:])
    steps = ["--steps", str(done + 2)]
    resumed = subprocess.run([LAUNCHER, *words[1:], *steps], capture_output=True, text=True, timeout=60, check=False)
    expect("the line resumes", 0, resumed, "epoch")
    job = subprocess.Popen(command("--epochs", 1, "--samples", 2000, "--save", "early.h5"), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    line = job.stdout.readline()  # before the first step
    job.send_signal(signal.SIGUSR1)
    out = line + job.communicate(timeout=60)[0]
    check("an early SIGUSR1 does not end the run, and saves", job.returncode == 0 and "after 1 step (SIGUSR1)" in out, out)
    job, pids = start()
    os.kill(pids[0], signal.SIGTERM)
    out = job.stdout.read()
    check("SIGTERM without --save says that nothing was saved", job.wait(timeout=30) == 3 and "nothing was saved" in out, out[-2000:])


def saving_every_some_steps():
    with subprocess.Popen(command("--samples", 80000, "--save", "e.h5", "--save-every", 2), stdout=subprocess.DEVNULL) as job:
        while not os.path.exists("e.h5") and job.poll() is None:
            time.sleep(0.05)
        job.kill()
    done = train("--samples", 80000, "--load", "e.h5", "--steps", 1)
    steps = int(re.search(r"(\d+) steps were done", done.stdout)[1])
    check("--save-every saves in the middle of an epoch", 0 < steps < 10000 and steps % 2 == 0, done.stdout)
    expect("nothing left is said", 0, done, f"nothing is left to train: {steps} steps were done")
    expect("an epoch that began before says so", 0, train("--samples", 80000, "--load", "e.h5", "--steps", steps + 1),
           rf"\(steps {steps + 1} to {steps + 1} of 10000\)")
    every = ["--samples", 240, "--save-every", 7, "--json", "every.json"]
    train(*every, "--save", "every.h5", "--steps", 21)
    train(*every, "--save", "every.h5", "--load", "every.h5")
    train("--samples", 240, "--json", "whole.json")
    check("results go on in the middle of an epoch", len(losses("every.json")) == 30 and
          all(abs(a - b) < 1e-11 for a, b in zip(losses("every.json"), losses("whole.json"))), losses("every.json"))
    expect("--save-every without --save", 2, train("--save-every", "2"), "--save-every 2: it needs --save FILE")


def fine_tuning():
    train("--epochs", "1", "--save", "base.h5")
    base = ["--load", "base.h5"]
    classes = ["--classes", "4"]
    expect("another last layer needs --new-run", 2, train(*base, *classes), "another model", "--new-run")
    expect("--new-run names what does not fit", 2, train(*base, *classes, "--new-run"), "--skip \"fc3\"")
    expect("--skip leaves layers out and says so", 0,
           train(*base, *classes, "--new-run", "--skip", "fc3*", "--batch", "6", "--seed", "5", "--optimizer", "adam",
                 "--samples", "12", ranks=2),
           "not loaded, with new values: 'fc3/weight', 'fc3/bias'")
    expect("--skip without --new-run", 2, train(*base, "--skip", "fc3"), "add --new-run")
    expect("--new-run without --load", 2, train("--new-run"), "--load FILE")


def full_output():
    with open("/dev/full", "w", encoding="utf-8") as full:
        result = subprocess.run(command("--save", "full.h5"), stdout=full, stderr=subprocess.PIPE, text=True, timeout=60,
                                check=False)
    check("a full standard output does not end training, and is told once", result.returncode == 0 and
          os.path.exists("full.h5") and result.stderr.count("standard output cannot be written: No space left on device") == 1,
          f"{result.returncode} {result.stderr}")


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    for part in (resume_with_every_decay, not_finite, f16, overwriting, what_stops_a_save, rates, epochs_and_numbers, signals, saving_every_some_steps, fine_tuning, full_output):
        began = time.monotonic()
        part()
        print(f"     {part.__name__}: {time.monotonic() - began:.1f} s")
    os.chdir("/")

print(f"{len(failures)} failed")
sys.exit(1 if failures else 0)
