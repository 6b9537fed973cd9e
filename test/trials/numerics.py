"""Cases about numbers: what is computed must not depend on ranks, grids, offsets or types."""

import re

from trial import case, tests


@case
def replicas_of_a_weight_stay_equal(shell):
    """Data-parallel replicas that drift apart, so that the saved network is not the trained one (kind of report:
    PyTorch and Megatron, replicas differ after an uneven cut). Right: training and evaluation print the same test
    loss."""
    model = ("--model resnet18 --size 32 --width 0.125 --classes 5 --data synthetic --samples 120 --batch 12 --kernels".split() + [""])
    trained = shell.partita("train", "--ranks", 6, *model, "--grid", "data=3 c=2", "--rule", "*: N@data", "--rule", "fc: N@data C@c",
                            "--epochs", 4, "--optimizer", "adam", "--rate", 0.02, "--save", "r.h5").out
    alone = shell.partita("evaluate", *model, "--load", "r.h5").out
    (loss, accuracy), (loss_alone, accuracy_alone) = tests(trained)[-1], tests(alone)[-1]
    assert abs(float(loss) - float(loss_alone)) <= 2e-4 and accuracy == accuracy_alone, trained + alone


def losses_of_shift(shell, kind, deviation, dtype, means):
    text = shell.run(shell.programs.shift, kind, deviation, dtype, *means).out
    lines = re.findall(r'^(\S+) "([^"]*)" (\S+)$', text, re.MULTILINE)
    assert len(lines) == 3 * len(means), text
    return {(mean, grid): float(loss) for mean, grid, loss in lines}


def expect_no_shift(shell, kind, deviation, dtype, right, bounds):
    """`bounds`: by mean, the relative error that the rounding of the inputs alone allows."""
    for (mean, grid), loss in losses_of_shift(shell, kind, deviation, dtype, list(bounds)).items():
        assert abs(loss / right - 1) <= bounds[mean], f"{kind} of mean {mean} on '{grid}': {loss}, right: {right}"


@case
def batch_normalization_of_a_large_mean(shell):
    """Batch normalization of images of 16 bits loses its digits, and other digits on several ranks (kind of report:
    PyTorch, variance by E[x^2] - E[x]^2). Right: BN(x + c) = BN(x)."""
    expect_no_shift(shell, "batch", 1, "f64", 0.609420289598, {"0": 1e-11, "1e4": 1e-9, "1e5": 1e-8, "1e6": 1e-7})


@case
def layer_normalization_of_a_large_mean(shell):
    """The same for layer normalization and for groups, where the deviation is small too. Right: LN(x + c) = LN(x)."""
    for kind in ("layer", "group", "instance"):
        expect_no_shift(shell, kind, 0.01, "f64", 0.569063577456, {"0": 1e-11, "1e5": 1e-6, "1e6": 1e-5})


@case
def normalization_of_a_large_mean_in_f32(shell):
    """In f32, y = a x + b with a rounded b loses what (x - mean) a keeps (kind of report: oneDNN). Right: the loss in
    f64 of the same inputs, which are rounded to f32."""
    for kind, deviation in (("batch", 1), ("layer", 0.5)):
        exact = losses_of_shift(shell, kind, deviation, "rounded", ["0", "1e4"])
        for (mean, grid), loss in losses_of_shift(shell, kind, deviation, "f32", ["0", "1e4"]).items():
            right = exact[mean, ""]
            assert abs(loss / right - 1) < 2e-5, f"{kind} of mean {mean} on '{grid}': {loss}, right: {right}"


@case
def normalization_of_a_constant_channel(shell):
    """A channel that is constant comes out as noise, up to 1e5 (kind of report: PyTorch). Right: it comes out as 0, so
    the loss is that of the target alone, whatever the constant."""
    for dtype in ("f32", "f64"):
        losses = losses_of_shift(shell, "batch", 0, dtype, ["0", "1000.1", "1e4", "1e10"])
        right = losses["0", ""]
        for (mean, grid), loss in losses.items():
            assert abs(loss - right) <= 1e-6 * abs(right) + 1e-9, f"{dtype}, constant {mean} on '{grid}': {loss}, right: {right}"


@case
def stride_and_dilation_above_1(shell):
    """A convolution with stride and dilation above 1 ends in an abort while kernels are measured (kind of report:
    oneDNN and cuDNN, odd shapes). Right: it trains, with the losses of one rank in f64."""
    words = "train --data synthetic --samples 8 --batch 4 --no-test --kernels".split()
    for name in ("dilated", "transposed"):
        shell.model(name, *words, "", "--dtype", "f64", "--json", "r.json")
        right = shell.json("r.json")["losses"]
        for ranks in (2, 3, 4):
            shell.model(name, *words, shell.folder / "kernels", "--json", "r.json", "--ranks", ranks, "--grid", f"y={ranks}",
                        "--rule", "*: H@y")
            losses = shell.json("r.json")["losses"]
            assert all(abs(a - b) < 1e-4 * max(right) for a, b in zip(losses, right)), f"{name} on {ranks}: {losses}, right: {right}"


@case
def large_messages_in_the_simulator(shell):
    """Messages of 2 GiB and more take no time, or forever (kind of report: MPI counts of 32 bits). Right: a sum of n
    bytes over two ranks takes n / bandwidth, since each sends half of the bytes twice; 4 GB/s in the default
    machine."""
    widths = 32768
    shell.partita("simulate", "--model", "mlp", "--channels", 1, "--size", 1, "--classes", 1, "--widths", widths, widths, "--batch", 2,
                  "--dtype", "f64", "--scale-compute", 0.001, "--grid", "data=2", "--rule", "*: N@data", "--out", "s", "--json", "s.json")
    result = shell.json("s.json")
    right = 8 * widths * widths / 4e9
    if result["simulated"] is not None:  # null without smpirun
        assert 0.99 * right < result["simulated"] < 1.35 * right, (result, right)  # adding the parts takes time too
        assert abs(result["simulated"] / result["predicted"] - 1) < 0.1, result


@case
def sums_of_bf16_gradients(shell):
    """Gradients in bf16 that are summed over many microbatches lose most of their size (kind of report: Megatron and
    DeepSpeed). Right: the losses are those of one microbatch, to the rounding of bf16."""
    shell.file("s.toml", 'grid = ""\n[schedule]\nkind = "gpipe"\nmicrobatches = 1024\n')
    words = ["train", "--model", "mlp", "--widths", 16, "--data", "synthetic", "--samples", 4096, "--batch", 1024, "--no-test",
             "--kernels", "", "--rate", 0.02, "--dtype", "bf16", "--json", "r.json"]
    shell.partita(*words)
    right = shell.json("r.json")["losses"]
    shell.partita(*words, "--strategy", "s.toml")
    losses = shell.json("r.json")["losses"]
    assert all(abs(a - b) < 5e-4 * b for a, b in zip(losses, right)), (losses, right)
