"""Cases about files of data and checkpoints."""

import re

from trial import case

SMALL = ["--data", "synthetic", "--samples", 64, "--batch", 32, "--no-test", "--kernels", ""]


@case
def targets_that_need_f64(shell):
    """Targets in f64, such as times in seconds, are rounded to f32 on their way into an f64 run (kind of report:
    PhysicsNeMo). Right: with weights of 0, the loss is the mean of 1.7e9 + 0, 0.25, ..., 1.75: 1700000000.875."""
    shell.run(shell.programs.volumes, "targets", ".")
    shell.model("regression", "train", "--data", "hdf5", "--data-dir", ".", "--batch", 8, "--rate", "1e-300", "--momentum", 0, "--dtype", "f64",
                "--no-test", "--json", "r.json")
    # The first weights are drawn, and samples are 0: so the output is the bias, which is 0.
    assert shell.json("r.json")["losses"] == [1700000000.875], shell.json("r.json")["losses"]


@case
def a_mask_of_bool(shell):
    """A mask that h5py stores as bool is refused (kind of report: h5py). Right: it is read as 0 and 1, or the message
    says how to store it."""
    shell.run(shell.programs.volumes, "mask", ".")
    ran = shell.partita("train", "--model", "unet3d", "--data", "hdf5", "--data-dir", ".", status=None)
    assert "does not hold numbers" not in ran.text or "uint8" in ran.text, ran.text


@case
def locks_that_a_file_system_refuses(shell):
    """Where flock() fails, as on some NFS, a sound file is called damaged after the first epoch (kind of report:
    HDF5). Right: it works without locks, or the message names the variable before the training."""
    for code in ("ENOLCK", "EOPNOTSUPP", "EROFS", "EACCES"):
        library = shell.preload(code, f"#include <errno.h>\nint flock(int fd, int op) {{ (void)fd; (void)op; errno = {code}; return -1; }}\n")
        ran = shell.partita("train", *SMALL, "--save", f"{code}.h5", status=None, LD_PRELOAD=library)
        assert "damaged" not in ran.text, ran.text
        assert ran.status == 0 or ("HDF5_USE_FILE_LOCKING" in ran.text and "epoch" not in ran.text), ran.text


@case
def options_that_were_written(shell):
    """A file of options that the program wrote is refused by the program (kind of report: argparse configurations).
    Right: it repeats the run."""
    words = "train --model lenet5 --data synthetic --samples 32 --batch 16 --steps 1 --no-test".split()
    first = shell.partita(*words, "--write-options", "o.toml").out
    again = shell.partita("train", "--options", "o.toml").out
    losses = [re.findall(r"loss (\S+)", text) for text in (first, again)]
    assert losses[0] == losses[1] != [], (first, again)


@case
def a_nul_byte_in_a_file(shell):
    """A NUL byte, as after a crash of the host, cuts a file off without a word (kind of report: TOML parsers). Right:
    the file is refused, with the line."""
    shell.file("s.toml", b'grid = "data=2 y=2"\n\0\n[[layer]]\nmatch = "*"\noutput = "N@data H@y"\n')
    ran = shell.partita("explain", "--model", "lenet5", "--batch", 16, "--strategy", "s.toml", status=2)
    assert "s.toml, line 2" in ran.text, ran.text
    shell.file("o.toml", b"batch = 8\n\0\nepochs = 3\n")
    ran = shell.partita("train", "--options", "o.toml", *SMALL[:4], status=2)
    assert "o.toml, line 2" in ran.text, ran.text


@case
def a_key_of_many_parts(shell):
    """A key with 40,000 dotted parts ends in a crash (kind of report: fuzzers of TOML parsers). Right: status 2 and
    one line."""
    shell.file("d.toml", ".".join(["a"] * 40000) + " = 1\n")
    ran = shell.partita("explain", "--strategy", "d.toml", status=2)
    assert ran.err.startswith("partita: ") and len(ran.err) < 2000, ran.err[:500]


@case
def a_loop_of_links(shell):
    """A checkpoint whose name is a loop of links replaces a link by a file (kind of report: editors that save). Right:
    it is refused, and the links stay."""
    (shell.folder / "a").symlink_to("b")
    (shell.folder / "b").symlink_to("a")
    ran = shell.partita("train", *SMALL, "--save", "a", status=2)
    assert (shell.folder / "a").is_symlink() and "epoch" not in ran.text, ran.text


@case
def what_stops_a_save(shell):
    """What stops a save is found after the first epoch, when its time is lost (kind of report: PyTorch checkpoints).
    Right: before the training."""
    (shell.folder / "w.h5.partial").mkdir()
    ran = shell.partita("train", *SMALL, "--save", "w.h5", status=2)
    assert "w.h5.partial" in ran.text and "epoch" not in ran.text, ran.text


@case
def the_epoch_of_a_checkpoint(shell):
    """An evaluation names epoch 0 whatever the checkpoint's (kind of report: training loops). Right: the epoch of the
    checkpoint."""
    words = ["--data", "synthetic", "--samples", 64, "--batch", 32, "--kernels", ""]
    trained = shell.partita("train", *words, "--epochs", 2, "--save", "w.h5").out
    tested = shell.partita("evaluate", *words, "--load", "w.h5").out
    assert re.search(r"^test +2 ", trained, re.MULTILINE) and re.search(r"^test +2 ", tested, re.MULTILINE), trained + tested
