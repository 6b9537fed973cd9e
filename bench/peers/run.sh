#!/bin/bash
# Compares outputs and gradients of 500 random layers of images and 500 of sequences with PyTorch, exchanges schedules
# with it and compares the loss of 200 steps. Then trains the same networks with Partita, PyTorch and JAX in turns, and
# times attention alone. Prints one JSON object per line.
#   bash bench/peers/run.sh [MODEL...]    models: fashion-cnn resnet50 mesh-tangling unet3d gpt vit attention
# Installs PyTorch and JAX into build/peers (a virtual environment of several gigabytes) if they are missing.
set -eu
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
if [ ! -x build/peers/bin/python ] || ! build/peers/bin/python -c 'import torch, jax, h5py' 2>/dev/null; then
  echo "installing PyTorch and JAX into build/peers" >&2
  python3 -m venv build/peers || { echo "bench/peers/run.sh: the Debian package python3-venv is missing" >&2; exit 2; }
  build/peers/bin/pip install --quiet --requirement bench/peers/requirements.txt >&2
fi
set -o pipefail
build/bench/oracle 500 | build/peers/bin/python -B bench/peers/oracle.py
build/peers/bin/python -B bench/peers/schedule.py build/partita
build/peers/bin/python -B bench/peers/gpt_curve.py
exec build/peers/bin/python -B bench/peers/compare.py build/peers/bin/python "$@"
