"""The networks of src/model/builtin in JAX, in channels-last form, with the shapes of their input and labels. Devices
share the first spatial dimension; for fashion-cnn they share the batch."""

import jax
import jax.numpy as jnp

LAYOUTS = {2: ("NHWC", "HWIO", "NHWC"), 3: ("NDHWC", "DHWIO", "NDHWC")}


class Weights:
    """Creates weights in the first pass through a network, and returns them in the same order in later passes."""

    def __init__(self, key=None, made=None):
        self.key, self.made, self.next = key, [] if made is None else made, 0

    def take(self, shape, scale):
        if self.key is not None:
            self.key, mine = jax.random.split(self.key)
            self.made.append(jax.random.normal(mine, shape) * scale if scale else jnp.ones(shape))
        self.next += 1
        return self.made[self.next - 1]


def conv(w, x, filters, kernel, stride=1):
    dims = x.ndim - 2
    weight = w.take((kernel,) * dims + (x.shape[-1], filters), (2 / (kernel ** dims * x.shape[-1])) ** 0.5)
    pad = [((kernel - 1) // 2,) * 2] * dims
    return jax.lax.conv_general_dilated(x, weight, (stride,) * dims, pad, dimension_numbers=LAYOUTS[dims])


def conv_bn_relu(w, x, filters, kernel, stride=1):
    x = conv(w, x, filters, kernel, stride)
    axes = tuple(range(x.ndim - 1))
    scale, shift = w.take((filters,), 0), w.take((filters,), 1e-3)
    return jax.nn.relu((x - x.mean(axes)) * jax.lax.rsqrt(x.var(axes) + 1e-5) * scale + shift)


def halve(x):
    window = (1,) + (2,) * (x.ndim - 2) + (1,)
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, window, "VALID")


def fashion_cnn(w, x, key):
    for filters in (32, 64):
        x = halve(conv_bn_relu(w, x, filters, 3))
    x = x.reshape(x.shape[0], -1)
    x = jax.nn.relu(x @ w.take((3136, 128), 0.02) + w.take((128,), 1e-3))
    x = jnp.where(jax.random.bernoulli(key, 0.8, x.shape), x / 0.8, 0)
    return x @ w.take((128, 10), 0.1) + w.take((10,), 1e-3)


def mesh_tangling(w, x, key):
    del key
    for block, filters in enumerate([128, 160, 192, 256, 384, 128]):
        for i in range(3):
            x = conv_bn_relu(w, x, filters, 5 if block == 0 else 3, 2 if i == 0 else 1)
    return conv(w, x, 2, 1)


def unet3d(w, x, key):
    del key
    twice = lambda x, first, second: conv_bn_relu(w, conv_bn_relu(w, x, first, 3), second, 3)
    skips = []
    for level in range(3):
        skips.append(twice(x, 32 << level, 64 << level))
        x = halve(skips[-1])
    x = twice(x, 256, 512)
    for level in reversed(range(3)):
        weight = w.take((2, 2, 2, x.shape[-1], 128 << level), 0.05)
        x = jax.lax.conv_transpose(x, weight, (2, 2, 2), "VALID", dimension_numbers=LAYOUTS[3])
        x = twice(jnp.concatenate([skips[level], x], -1), 64 << level, 64 << level)
    return conv(w, x, 3, 1)


# name -> network, shape of the input, shape of the labels
MODELS = {"fashion-cnn": (fashion_cnn, (128, 28, 28, 1), (128,)),
          "mesh-tangling": (mesh_tangling, (1, 1024, 1024, 18), (1, 16, 16)),
          "unet3d": (unet3d, (1, 64, 64, 64, 1), (1, 64, 64, 64))}
