"""Tests that each mistake in a user's own model, layer or data set ends the program with one clear line and an exit
status, never with a signal. Arguments: the launcher build/mpiexec, and the programs build/test/user_errors and
build/partita."""

import os
import resource
import sys

from checks import Program, check, finish, refused

program, partita = (Program(path, sys.argv[1], status=None) for path in sys.argv[2:4])
ENVIRONMENT = {key: value for key, value in os.environ.items() if not key.startswith("UCX_")}
INPUT, FAILURE = 2, 1
TRAIN = ["train", "--data", "noise", "--batch", "8", "--epochs", "1", "--kernels", ""]
EXPLAIN = ["explain", "--batch", "8"]
NO_EXCEPTION = "an exception of type '{}', which is not a std::exception and has no message"
COPY = r"layer 'copy' \(copy\): "
# The mistake, a pattern of the line, and the exit status. The model's mistakes are found by verbs without ranks too.
MODEL = [
         ("model throws", "no model today", {"train": INPUT, "explain": FAILURE}),
         ("model throws an int", NO_EXCEPTION.format("int"), {"train": INPUT, "explain": FAILURE}),
         ("empty model", "the model 'net' has 0 losses; it must have exactly one, its last layer", INPUT),
         ("no loss", "the model 'net' has 0 losses; it must have exactly one, its last layer", INPUT),
         ("loss in the middle", "the model 'net' has 2 losses; it must have exactly one, its last layer", INPUT),
         ("null operator", r"layer 'copy': its operator is a null pointer; give it std::make_shared<...>\(\)", INPUT),
         ("no model function",
          "partita::main has an empty function for its model; give it a function that returns a Model", INPUT),
         ("data set registered twice", r'register_dataset\("noise", ...\): a data set of this name exists already; '
          'choose another', INPUT),
         ("no data factory", r'register_dataset\("more noise", ...\): the factory is empty; give it a function', INPUT),
         ("output without N", COPY + r'its output has the shape "C=4"; it must begin with the samples, N', INPUT),
         ("output without dimensions", COPY + r'its output has the shape ""; it must begin with the samples, N', INPUT),
         ("output of one sample", COPY +
          r"its output has 1 samples \(N\) for an input of \d+; it must keep the samples", INPUT),
         ("output with more samples", COPY + r"its output has 3 samples \(N\) for an input of 1; it must keep the "
          "samples", INPUT),
         ("output with an unknown dimension", COPY + "its output has a dimension 'q'; the dimensions are N C D H W L V",
          INPUT),
         ("empty output", COPY + "its output is empty: N=1 C=0", INPUT),
         ("output throws", "no shape fits", {"train": INPUT, "explain": FAILURE}),
         ("no layouts", COPY + r"its layouts\(\) gives 0 layouts for its 1 inputs \(x\)", INPUT),
         ("no layout of x", COPY + r"its layouts\(\) gives 0 layouts for its 1 inputs \(x\)", INPUT),
         ("no layout of dx", COPY + r"its layouts\(\) gives 0 layouts for its 1 gradients of inputs \(dx\)", INPUT),
         ("a layout of a weight that it lacks", COPY + r"its layouts\(\) gives 1 layouts for its 0 weights \(w\)",
          INPUT),
         ("a layout of another shape", COPY + r'its layouts\(\) gives input 0 a layout for the shape "N=1 C=3", but '
          'the shape is "N=', INPUT),
         ("a layout on another grid", COPY + r'its layouts\(\) gives input 0 a layout on the grid "", but the grid is '
          '"data=2"', INPUT),
         ("layouts throws", NO_EXCEPTION.format("int"), {"train": INPUT, "explain": FAILURE}),
         ]
TRAINING = [
            ("nobody catches it", r"rank 1: rank 1 alone fails", INPUT),
            ("forward throws an int", "rank \\d: " + NO_EXCEPTION.format("int"), FAILURE),
            ("forward throws nothing to read", r"rank \d: an exception of type 'std::runtime_error' without a message",
             FAILURE),
            ("backward uses what nobody saved", r"rank \d: layer 'copy': its forward saved no tensor 1", INPUT),
            ("size of -5", r"the data set 'noise' has -5 samples \(size\(\)\); it must have from 1 to 2\^40", INPUT),
            ("size of 0", r"the data set 'noise' has 0 samples \(size\(\)\); it must have from 1 to 2\^40", INPUT),
            ("size of 2^62", r"the data set 'noise' has 4611686018427387904 samples", INPUT),
            ("no classes", r"the data set 'noise' has one value per sample and 0 classes \(target\(\), classes\(\)\), "
             "but the loss 'loss' needs "
             "one label per sample", INPUT),
            ("classes of -3", r"the data set 'noise' has -3 classes \(classes\(\)\); 0 means values", INPUT),
            ("target without read_target", r"rank \d: data set 'noise': its labels have dimensions \(target\(\)\), so "
             "its class must define "
             r"read_labels\(\)", INPUT),
            ("hold throws", "nothing can be held", INPUT),
            ("read throws", r"rank \d: there is no such sample", FAILURE),
            ("read throws no exception", r"rank \d: " + NO_EXCEPTION.format("partita::Box"), FAILURE),
            ("read wants all memory", r"rank \d: out of memory: memory could not be allocated; this process holds "
             r"[\d.]+ \w+ in .* of "
             r"addresses, and the machine has .* left; use more ranks, a smaller --batch", FAILURE),
            ("label of 77", r"rank \d: data set 'noise': sample 21 has the label 77, but classes\(\) is 4; labels are "
             "0 to 3", INPUT),
            ("label of -1", r"rank \d: data set 'noise': sample 21 has the label -1, but classes\(\) is 4; labels are "
             "0 to 3", INPUT),
            ("no label", r"rank \d: data set 'noise': its class must define label\(\)", INPUT),
            ("data factory returns null", "--data noise: data set 'noise': its factory returned a null pointer", INPUT),
            ("data factory throws", NO_EXCEPTION.format(r"char const\*"), INPUT),
            ]


def mistaken(name, pattern, status, *arguments, ranks=0, copies=1):
    """Checks what the program prints about a mistake, and how it ends."""
    ran = program(*arguments, ranks=ranks, env={**ENVIRONMENT, "MISTAKE": name})
    refused(name, ran, "^(partita: )?" + pattern, status=status, copies=copies)


def of(verb, status):
    """Returns the exit status of a verb, where verbs differ or not."""
    return status[verb] if isinstance(status, dict) else status


ran = program(*TRAIN[:-2], ranks=2, env=ENVIRONMENT)
check("no mistake, so the verbs must run", ran.status == 0 and not ran.lines, ran)
for name, pattern, status in MODEL:
    mistaken(name, pattern, of("train", status), *TRAIN, ranks=2,
             copies=2 if name == "no model function" else 1)  # found before MPI starts, by each process
    mistaken(name, pattern, of("explain", status), *EXPLAIN, "--grid", "data=2")
for name, pattern, status in TRAINING:
    mistaken(name, pattern, status, *TRAIN, ranks=2)
ran = partita("train", "--model", "mlp", "--widths", "30000", "30000", "--data", "synthetic", "--batch", "8", ranks=1,
              env=ENVIRONMENT, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30)))
refused("memory of 2 GiB for 3.4 GiB of weights", ran,
        r"^rank \d: out of memory: 3.4 GiB for weights could not be allocated beside .* of tensors "
        r".*; this process holds .*; its limit is 2.0 GiB of addresses \(ulimit -v\); use more ranks, a smaller "
        "--batch", status=FAILURE)
finish()
