"""Tests the course of a training as a user sees it: resuming, fine-tuning, signals, numbers that are not finite, and
files that must not be overwritten. Arguments: the launcher build/mpiexec and the program build/partita."""

import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import time

from checks import Program, begin, check, end_of, ended, processes, read, read_json, run, run_parts, write

partita = Program(sys.argv[2], sys.argv[1], status=None)
SMALL = {"--data": "synthetic", "--samples": 24, "--batch": 8, "--dtype": "f64", "--model": "lenet5", "--width": 0.5}


def options(*arguments):
    """The words of a training of a small network. `arguments` replace the options of SMALL."""
    small = [word for name, value in SMALL.items() if name not in arguments for word in (name, value)]
    return ["train", "--no-test", *small, *arguments]


def train(*arguments, **more):
    """Trains a small network."""
    return partita(*options(*arguments), **more)


def start(*arguments, **more):
    """Starts to train a small network."""
    return partita.start(*options(*arguments), **more)


def losses(path):
    """Returns the losses in a file of results."""
    return read_json(path)["losses"]


def content(path):
    """Returns the bytes of a file."""
    return pathlib.Path(path).read_bytes()


def resume_with_every_decay():
    """Resumed runs, and what they take from the checkpoint."""
    for decay in ("none", "linear", "cosine"):
        options = ["--decay", decay, "--warm-up", "2", "--epochs", "2"]
        train(*options, "--json", "whole.json")
        # 6 steps; the first run ends after 2 of the first epoch's 3.
        train(*options, "--steps", "2", "--decay-steps", "6", "--save", "w.h5", "--overwrite", "--json", "first.json",
              ranks=2)
        ran = train("--load", "w.h5", "--rate", "0.05", "--json", "second.json")
        ended(f"decay {decay}: a resumed run takes its course from the checkpoint", ran, 0,
              "note       --epochs: the checkpoint has 2, this command line 1; training goes on with 2, as without "
              "interruption",
              "note       --warm-up: the checkpoint has 2, this command line 0; training goes on with 2",
              r"epoch 1 .*\(steps 3 to 3 of 3\)")
        whole, parts = losses("whole.json"), losses("first.json") + losses("second.json")
        check(f"decay {decay}: losses as without interruption", len(parts) == 6 and
              all(abs(a - b) < 1e-11 for a, b in zip(whole, parts)), f"{whole}\n{parts}")
    ended("what the command line says wins, and is told", train("--load", "w.h5", "--rate", "0.1"), 0,
          "note       --rate: the checkpoint has 0.05, this command line 0.1; training goes on with 0.1, because this "
          "command line says so")
    train("--steps", 4, "--flip", "--epochs", 2, "--save", "flip.h5", "--save-every", 1)
    ended("a switch that is off beats the checkpoint", train("--load", "flip.h5", "--flip=false"), 0,
          "note       --flip: the checkpoint has yes, this command line no; training goes on with no, because this "
          "command line says so", "note       --steps: the checkpoint has 4; they are done, and training goes on")
    job = start("--steps", 30000, "--epochs", 90000, "--save", "cut.h5")
    begin(job)
    job.send_signal(signal.SIGTERM)
    end_of(job)
    more = train("--load", "cut.h5", "--epochs", 1)
    ended("more epochs go beyond --steps", more, 0,
          "--steps: the checkpoint has 30000; training goes on to the end of --epochs")
    ended("no step at rate 0", train("--load", "w.h5", "--epochs", "4"), 2, "--decay-steps 12")
    ended("another optimizer", train("--load", "w.h5", "--optimizer", "adam"), 2,
          r'another optimizer: "sgd", here it is "adam"; give --optimizer sgd', "--new-run")
    ended("other data", train("--load", "w.h5", "--data", "fashion-mnist"), 2, 'another data: "synthetic"', "--new-run")


def not_finite():
    """Numbers that are not finite."""
    wild = ["--rate", "1e308", "--epochs", "3"]
    for ranks in (0, 3):
        ran = train(*wild, "--save", f"wild{ranks}.h5", ranks=ranks)
        ended(f"NaN ends a run on {ranks or 1} ranks", ran, 3, r"step \d+: ", r"layer '\w+' on rank \d",
              "try a lower --rate")
    train("--epochs", "1", "--save", "good.h5", "--decay-steps", "9")
    before = content("good.h5")
    ran = train("--load", "good.h5", "--save", "good.h5", *wild)
    ended("the good checkpoint stays", ran, 3, "good.h5")
    check("the good checkpoint is as it was", content("good.h5") == before)
    ran = train(*wild, "--on-nan", "skip", "--json", "skip.json", ranks=2)
    skipped = read_json("skip.json")["skipped_steps"]
    ended("--on-nan skip goes on and counts", ran, 0, f"{skipped} steps? left the weights as they were")
    check("skipped steps in the results", skipped > 0)
    ended("--check-replicas below 0", train("--check-replicas", "-2"), 2, "--check-replicas -2: it must be 0 or more")
    ended("--on-nan of another word", train("--on-nan", "retry"), 2, "--on-nan retry: write stop or skip")


def f16():
    """The loss scale of f16."""
    ran = train("--dtype", "f16", "--json", "f16.json")
    ended("f16 prints its loss scale", ran, 0, f"loss scale {read_json('f16.json')['loss_scale']:g}")


def two_at_once(path, epochs):
    """Starts two jobs that save to one file. Returns their exit statuses in order, and what they printed."""
    jobs = [start("--epochs", epochs, "--seed", seed, "--save", path, stderr=subprocess.PIPE) for seed in (1, 2)]
    ends = [end_of(job, timeout=60) for job in jobs]
    return sorted(ran.status for ran in ends), "".join(ran.text for ran in ends)


def overwriting():
    """Files that must not be overwritten, and jobs that save to one file."""
    write("notes.txt", "notes")
    ended("--save of another file", train("--save", "notes.txt"), 2,
          "notes.txt: the file there is not a checkpoint of Partita", "save to another name, or remove it")
    check("the other file stays", content("notes.txt") == b"notes")
    train("--epochs", "1", "--save", "mine.h5", "--decay-steps", "6")
    first = content("mine.h5")
    ended("--save of another run's checkpoint", train("--save", "mine.h5"), 2,
          "it belongs to another run, of the model", "with seed 1 after 3 steps", "--load mine.h5", "--overwrite")
    check("the other run's checkpoint stays", content("mine.h5") == first)
    ended("--overwrite", train("--save", "mine.h5", "--overwrite", "--epochs", "1", "--decay-steps", "6"), 0)
    check("equal runs save equal bytes", content("mine.h5") == first)
    os.chmod(write("private.json", ""), 0o600)
    train("--json", "private.json")
    check("a file that is replaced keeps its permissions", os.stat("private.json").st_mode & 0o777 == 0o600 and
          len(losses("private.json")) == 3)
    validated = ["--validate", "0.25", "--epochs", 1]
    train(*validated, "--best", "best.h5", "--seed", 7)
    train(*validated, "--save", "own.h5", "--best", "own_best.h5")
    train("--load", "own.h5", "--validate", "0.25", "--epochs", 2, "--flip", "--write-options", "own.toml")
    lines = read("own.toml").splitlines()
    check("what a resumed run takes from its checkpoint is not written", "flip = true" in lines and
          "# rate = 0.05" in lines and "rate = 0.05" not in lines)
    ran = train("--validate", "0.25", "--epochs", 2, "--load", "own.h5", "--best", "best.h5")
    ended("a run does not replace another run's best", ran, 2, "--best best.h5: it belongs to another run")
    ended("but its own", train("--validate", "0.25", "--epochs", 2, "--load", "own.h5", "--best", "own_best.h5"), 0)
    for option in ("--json", "--trace", "--write-options"):
        ended(f"{option} of a checkpoint", train(option, "own.h5"), 2,
              f"{option} own.h5: the file there is a checkpoint or another HDF5 file")
    ended("--json of a text", train("--json", "notes.txt"), 2,
          "--json notes.txt: the file there is not JSON, so it is not replaced")
    for option in ("--save", "--load", "--json"):
        ended(f"an empty {option}", train(option, ""), 2, f"{option} is empty; give a value, or leave it out")
    ended("another --validate", train("--load", "own.h5", "--epochs", 2), 2,
          "give the same data, --samples and --validate as then")
    # Two jobs at once: the slower one finds the file of the other at its first save.
    statuses, text = two_at_once("both.h5", 40)
    check("of two jobs with one --save, one says so and ends", statuses in ([0, 3], [0, 2]) and
          re.search("(another run has written it meanwhile|it belongs to another run|another run is writing it now)",
                    text), text)
    # Two jobs that begin at once and save after the same step: exactly one goes on. PARTITA_LONG tries it more often.
    for attempt in range(40 if os.environ.get("PARTITA_LONG") else 4):
        statuses, text = two_at_once(f"race{attempt}.h5", 2)
        check(f"of two jobs that save at once, one ends, attempt {attempt}", statuses == [0, 3] or
              (statuses == [0, 2] and "it belongs to another run" in text), text)


def what_stops_a_save():
    """It is found before training, and leaves everything as it was."""
    os.symlink("loopb", "loopa")
    os.symlink("loopa", "loopb")
    os.mkdir("folder.h5.partial")
    write("victim", "text")
    os.symlink("victim", "link.h5.partial")
    for name, part in (("loopa", "Too many levels of symbolic links"), ("folder.h5", "Is a directory"),
                       ("link.h5", "it is a symbolic link")):
        for option in ("--save", "--best"):
            more = ["--validate", "0.25"] if option == "--best" else []
            ran = train(option, name, *more)
            ended(f"{option} {name}", ran, 2, f"{option} {name}: .*{part}")
            check(f"{option} {name}: found before training", "epoch" not in ran.out, ran.out)
    check("links, folders and files stay", os.readlink("loopa") == "loopb" and os.path.isdir("folder.h5.partial") and
          content("victim") == b"text")
    unshare = ["unshare", "--mount", "--map-root-user"]
    if run(*unshare, "true", status=None).status == 0:
        train("--save", "mounted.h5", "--epochs", "1", "--decay-steps", "3")
        ran = train("--load", "mounted.h5", "--save", "mounted.h5", "--epochs", "2",
                    before=[*unshare, "sh", "-c", 'mount --bind mounted.h5 mounted.h5 && exec "$@"', "sh"])
        ended("--save of a mounted file", ran, 2, "--save mounted.h5: .*a file is mounted there")
    ran = train("--load", "mine.h5", "--epochs", "1", "--save", "copy.h5")
    ended("nothing left to train is saved under another name", ran, 0, "nothing is left to train")
    check("the copy is the same", os.path.exists("copy.h5") and
          losses_after("mine.h5") == losses_after("copy.h5"))


def losses_after(path):
    """Returns the losses of a run that goes on from a checkpoint."""
    train("--load", path, "--epochs", "2", "--decay-steps", "6", "--json", "after.json")
    return losses("after.json")


def rates():
    """Learning rates of 0."""
    ran = train("--decay", "linear", "--decay-steps", "5", "--steps", "10", "--epochs", "9")
    ended("no step of a fresh run at rate 0", ran, 2, "--decay-steps 5: the learning rate would be 0 after these "
          "steps, but 10 are asked for; give --decay-steps 10")
    ended("a decay that nothing asks for", train("--decay-steps", "5"), 0,
          "note       --decay-steps 5: it has no effect without --decay")
    ended("a warm-up beyond the end", train("--warm-up", "1000000000000"), 0,
          "note       --warm-up 1000000000000: the training has 3 steps, so")
    ran = train("--warm-up", "2", "--decay", "cosine", "--decay-steps", "3")
    check("a decay to the last step needs no note", ran.status == 0 and "note" not in ran.out, ran.out)


def epochs_and_numbers():
    """Epochs as they are counted, and how numbers are printed."""
    train("--epochs", 2, "--save", "two.h5", "--overwrite")
    ran = partita("evaluate", *options("--load", "two.h5")[2:])
    ended("evaluate names the epoch of the checkpoint", ran, 0, r"test  2  +loss")
    ran = train("--rate", "1e308", "--epochs", 2, "--on-nan", "skip", "--log", "skip.csv")
    text = ran.text + read("skip.csv")
    check("no number is -nan", not re.search(r"(?<!\w)-nan", text) and ran.status == 0, text)
    check("an epoch of skipped steps has no loss", "epoch 2    no loss: all steps were skipped" in ran.out, ran.out)


def start_on_two(*arguments):
    """Starts a long training on two ranks. Returns it, and the process numbers of its ranks, after the first epoch."""
    job = start("--epochs", 100000, *arguments, ranks=2)
    return job, processes(begin(job))


def signals():
    """Signals that save or end a training."""
    job, pids = start_on_two("--save", "s.h5")
    os.kill(pids[1], signal.SIGUSR1)
    line = next((line for line in job.stdout if "SIGUSR1" in line), "")
    check("SIGUSR1 to any rank saves and goes on", re.search(r"saved s\.h5 after \d+ steps \(SIGUSR1\)", line), line)
    os.kill(pids[1], signal.SIGTERM)
    ran = end_of(job)
    check("SIGTERM to any rank saves, with status 0", ran.status == 0 and "stopped    by SIGTERM" in ran.out, ran)
    done = int(re.search(r"stopped    by SIGTERM after (\d+) step", ran.out)[1])
    words = shlex.split(ran.out.splitlines()[-1])
    check("it prints how to resume", words[:2] == ["mpiexec", "-n"] and words[-2:] == ["--load", "s.h5"], ran)
    ended("the line resumes", run(partita.launcher, *words[1:], "--steps", done + 2, status=None), 0, "epoch")
    job = start("--epochs", 1, "--samples", 2000, "--save", "early.h5")
    job.stdout.readline()  # before the first step
    job.send_signal(signal.SIGUSR1)
    ran = end_of(job, timeout=60)
    check("an early SIGUSR1 does not end the run, and saves", ran.status == 0 and "after 1 step (SIGUSR1)" in ran.out,
          ran)
    job, pids = start_on_two()
    os.kill(pids[0], signal.SIGTERM)
    ran = end_of(job)
    check("SIGTERM without --save says that nothing was saved", ran.status == 3 and "nothing was saved" in ran.out, ran)


def saving_every_some_steps():
    """Checkpoints in the middle of an epoch."""
    with start("--samples", 80000, "--save", "e.h5", "--save-every", 2, stdout=subprocess.DEVNULL) as job:
        while not os.path.exists("e.h5") and job.poll() is None:
            time.sleep(0.05)
        job.kill()
    done = train("--samples", 80000, "--load", "e.h5", "--steps", 1)
    steps = int(re.search(r"(\d+) steps were done", done.out)[1])
    check("--save-every saves in the middle of an epoch", 0 < steps < 10000 and steps % 2 == 0, done.out)
    ended("nothing left is said", done, 0, f"nothing is left to train: {steps} steps were done")
    ended("an epoch that began before says so", train("--samples", 80000, "--load", "e.h5", "--steps", steps + 1), 0,
          rf"\(steps {steps + 1} to {steps + 1} of 10000\)")
    every = ["--samples", 240, "--save-every", 7, "--json", "every.json"]
    train(*every, "--save", "every.h5", "--steps", 21)
    train(*every, "--save", "every.h5", "--load", "every.h5")
    train("--samples", 240, "--json", "whole.json")
    check("results go on in the middle of an epoch", len(losses("every.json")) == 30 and
          all(abs(a - b) < 1e-11 for a, b in zip(losses("every.json"), losses("whole.json"))), losses("every.json"))
    ended("--save-every without --save", train("--save-every", "2"), 2, "--save-every 2: it needs --save FILE")


def fine_tuning():
    """Other layers than those of the checkpoint."""
    train("--epochs", "1", "--save", "base.h5")
    base = ["--load", "base.h5"]
    classes = ["--classes", "4"]
    ended("another last layer needs --new-run", train(*base, *classes), 2, "another model", "--new-run")
    ended("--new-run names what does not fit", train(*base, *classes, "--new-run"), 2, "--skip \"fc3\"")
    ended("--skip leaves layers out and says so",
          train(*base, *classes, "--new-run", "--skip", "fc3*", "--batch", "6", "--seed", "5", "--optimizer", "adam",
                "--samples", "12", ranks=2), 0,
          "not loaded, with new values: 'fc3/weight', 'fc3/bias'")
    ended("--skip without --new-run", train(*base, "--skip", "fc3"), 2, "add --new-run")
    ended("--new-run without --load", train("--new-run"), 2, "--load FILE")


def full_output():
    """Standard output that is full."""
    with open("/dev/full", "w", encoding="utf-8") as full:
        ran = train("--save", "full.h5", stdout=full)
    check("a full standard output does not end training, and is told once", ran.status == 0 and
          os.path.exists("full.h5") and ran.err.count("standard output cannot be written: No space left on device") ==
          1, ran)


def in_time():
    """A training in parts that end before a limit."""
    parts, done, words = [], 0, ["--save", "t.h5", "--epochs", 1, "--samples", 80000]
    for _ in range(2):
        ran = train(*words, "--time-limit", "3s", "--json", "part.json", ranks=2)
        ended("a run ends before its limit", ran, 0, rf"stopped    by --time-limit 3s after \d+ steps; t\.h5 was saved")
        parts, before = losses("part.json"), done
        done = int(re.search(r"by --time-limit 3s after (\d+) steps", ran.out)[1])
        check("it went on", done > before and len(parts) == done, (done, before))
        words = ["--save", "t.h5", "--load", "t.h5", "--samples", 80000]
    train("--samples", 80000, "--steps", done, "--json", "whole.json", ranks=2)
    check("all parts are one training", losses("whole.json") == parts, (losses("whole.json")[-3:], parts[-3:]))
    ended("a limit needs a file", train("--time-limit", "20s"), 2, "--time-limit 20s: it needs --save FILE")
    ended("a limit is a time", train("--time-limit", "20x", "--save", "t.h5"), 2, "--time-limit 20x: write a time above 0")


def keeping():
    """The checkpoints before the last one."""
    def there():
        return sorted(path.name for path in pathlib.Path().glob("k*.h5"))
    keep = ["--samples", 240, "--save", "k.h5", "--save-every", 5, "--keep", 3, "--steps"]
    train(*keep, 22)
    check("three are kept", there() == ["k.h5", "k.step15.h5", "k.step20.h5"], there())
    train("--load", "k.step20.h5", "--samples", 240, "--steps", 23, "--json", "from20.json")
    train("--samples", 240, "--steps", 23, "--json", "to23.json")
    check("it is what was saved then", losses("from20.json") == losses("to23.json")[20:], losses("from20.json"))
    write("k.step9.h5", "notes")
    train(*keep, 27, "--load", "k.h5", ranks=2)
    check("a resumed run goes on with them", there() == ["k.h5", "k.step22.h5", "k.step25.h5", "k.step9.h5"], there())
    write("k.step27.h5", "notes")
    ended("a file that is in the way stays", train(*keep, 30, "--load", "k.h5"), 0,
          "note       --keep 3: the checkpoint of step 27 is replaced, since .*k.step27.h5 is there")
    check("it is as it was", content("k.step27.h5") == b"notes")
    os.mkdir("far")
    os.symlink("far/k", "linked")
    train("--samples", 240, "--save", "linked", "--save-every", 5, "--keep", 2, "--steps", 12)
    train("--samples", 240, "--load", "linked", "--save", "linked", "--save-every", 5, "--keep", 2, "--steps", 16)
    check("a link has them beside its file", sorted(os.listdir("far")) == ["k", "k.step15"], os.listdir("far"))
    ended("--keep needs a file", train("--keep", "2"), 2, "--keep 2: it needs --save FILE")
    ended("--keep 0", train("--keep", "0"), 2, "--keep 0: it must be 1")


def apart():
    """Ranks that share no folder: rank 0 writes what they have."""
    words = [partita.path, *map(str, options("--width", 1, "--steps", 3, "--save", "apart.h5"))]
    for folder in ("here", "there"):
        os.mkdir(folder)
    ran = run(partita.launcher, "-wdir", "here", "-n", 1, *words, ":", "-wdir", "there", "-n", 1, *words)
    train("--width", 1, "--steps", 3, "--save", "apart.h5", ranks=2)
    check("the file is the same", content("here/apart.h5") == content("apart.h5"), ran)
    check("it is where rank 0 is", os.listdir("there") == [], os.listdir("there"))


run_parts(resume_with_every_decay, not_finite, f16, overwriting, what_stops_a_save, rates, epochs_and_numbers, signals,
          in_time, keeping, apart, saving_every_some_steps, fine_tuning, full_output)
