"""Runs training steps of a network in JAX, in channels-last form: on one device with all threads, or on N devices that
share the batch (fashion-cnn) or the rows. Prints the median seconds per step. Arguments: MODEL N SECONDS."""

import os
import statistics
import sys
import time

NAME, DEVICES, SECONDS = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={DEVICES}"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax  # noqa: E402: JAX reads the flags above when it is imported
import jax.numpy as jnp  # noqa: E402

from jax_models import MODELS, Weights  # noqa: E402

NETWORK, SHAPE, PLACES = MODELS[NAME]


def loss(w, images, labels, key):
    x = jax.nn.log_softmax(NETWORK(Weights(made=w), images, key))
    return -jnp.take_along_axis(x, labels[..., None], -1).mean()


@jax.jit
def step(w, v, images, labels, key):
    gradient = jax.grad(loss)(w, images, labels, key)
    v = jax.tree.map(lambda a, g: 0.9 * a + g, v, gradient)
    return jax.tree.map(lambda a, b: a - 0.001 * b, w, v), v


def main():
    mesh = jax.make_mesh((DEVICES,), ("p",))
    spec = jax.sharding.PartitionSpec
    shared = jax.sharding.NamedSharding(mesh, spec("p") if SHAPE[0] > 1 else spec(None, "p"))
    whole = jax.sharding.NamedSharding(mesh, spec())
    key = jax.random.key(1)
    images = jax.device_put(jax.random.normal(key, SHAPE), shared)
    labels = jax.device_put((jnp.arange(jnp.prod(jnp.array(PLACES))) % 2).reshape(PLACES), shared)
    made = Weights(key)
    jax.eval_shape(lambda x: NETWORK(made, x, key), jax.ShapeDtypeStruct(SHAPE, jnp.float32))
    shapes = [w.shape for w in made.made]
    w = [jax.device_put(jax.random.normal(jax.random.fold_in(key, i), shape) * 0.03, whole)
         for i, shape in enumerate(shapes)]
    v = jax.tree.map(jnp.zeros_like, w)
    few = 5 if NAME == "fashion-cnn" else 1  # first steps that do not count, because they include compilation
    times, end = [], None
    while end is None or len(times) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        w, v = jax.block_until_ready(step(w, v, images, labels, jax.random.fold_in(key, len(times))))
        times.append(time.perf_counter() - start)
        if end is None and len(times) == few:
            times, end = [], time.perf_counter() + SECONDS
    print(statistics.median(times))


if __name__ == "__main__":
    main()
