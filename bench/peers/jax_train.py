"""Training steps of fashion-cnn in JAX, channels last: one device with all threads, or N devices that share the batch.
Prints the median seconds of a step. Arguments: N SECONDS."""

import os
import statistics
import sys
import time

DEVICES = int(sys.argv[1])
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={DEVICES}"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax  # noqa: E402: after the flags that it reads
import jax.numpy as jnp  # noqa: E402

BATCH = 128


def weights(key):
    keys = jax.random.split(key, 4)
    normal = jax.random.normal
    return {"conv1": normal(keys[0], (3, 3, 1, 32)) * 0.3, "scale1": jnp.ones(32), "shift1": jnp.zeros(32),
            "conv2": normal(keys[1], (3, 3, 32, 64)) * 0.08, "scale2": jnp.ones(64), "shift2": jnp.zeros(64),
            "fc1": normal(keys[2], (3136, 128)) * 0.02, "bias1": jnp.zeros(128),
            "fc2": normal(keys[3], (128, 10)) * 0.1, "bias2": jnp.zeros(10)}


def block(x, kernel, scale, shift):
    """Convolution, batch normalisation, ReLU, 2x2 maxima."""
    x = jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    mean, variance = x.mean((0, 1, 2)), x.var((0, 1, 2))
    x = jax.nn.relu((x - mean) * jax.lax.rsqrt(variance + 1e-5) * scale + shift)
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def loss(w, images, labels, key):
    x = block(images, w["conv1"], w["scale1"], w["shift1"])
    x = block(x, w["conv2"], w["scale2"], w["shift2"]).reshape(BATCH, -1)
    x = jax.nn.relu(x @ w["fc1"] + w["bias1"])
    x = jnp.where(jax.random.bernoulli(key, 0.8, x.shape), x / 0.8, 0)
    x = jax.nn.log_softmax(x @ w["fc2"] + w["bias2"])
    return -jnp.take_along_axis(x, labels[:, None], 1).mean()


@jax.jit
def step(w, v, images, labels, key):
    gradient = jax.grad(loss)(w, images, labels, key)
    v = jax.tree.map(lambda a, g: 0.9 * a + g, v, gradient)
    return jax.tree.map(lambda a, b: a - 0.001 * b, w, v), v


def main():
    mesh = jax.make_mesh((DEVICES,), ("data",))
    shared = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
    whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    key = jax.random.key(1)
    images = jax.device_put(jax.random.normal(key, (BATCH, 28, 28, 1)), shared)
    labels = jax.device_put(jnp.arange(BATCH) % 10, shared)
    w = jax.device_put(weights(key), whole)
    v = jax.tree.map(jnp.zeros_like, w)
    times, end = [], None
    while end is None or time.perf_counter() < end:
        start = time.perf_counter()
        w, v = jax.block_until_ready(step(w, v, images, labels, jax.random.fold_in(key, len(times))))
        times.append(time.perf_counter() - start)
        if end is None and len(times) == 5:  # not counted: compilation
            times, end = [], time.perf_counter() + float(sys.argv[2])
    print(statistics.median(times))


if __name__ == "__main__":
    main()
