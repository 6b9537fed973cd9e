#!/bin/bash
# Compares outputs and gradients of 500 random layers with PyTorch's and exchanges schedules with it. Then trains the
# same networks with PyTorch, JAX and Partita, in turns. Prints one JSON object a line.
#   bash bench/peers/run.sh [MODEL...]    of: fashion-cnn resnet50 mesh-tangling unet3d
# Installs the peers into build/peers (a virtual environment, several
# gigabytes) unless they are there.
set -eu
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
if [ ! -x build/peers/bin/python ] || ! build/peers/bin/python -c 'import torch, jax' 2>/dev/null; then
  echo "installing the peers into build/peers" >&2
  python3 -m venv build/peers || { echo "bench/peers/run.sh: needs Debian's python3-venv" >&2; exit 2; }
  build/peers/bin/pip install --quiet --requirement bench/peers/requirements.txt >&2
fi
set -o pipefail
build/bench/oracle 500 | build/peers/bin/python -B bench/peers/oracle.py
build/peers/bin/python -B bench/peers/schedule.py build/partita
exec build/peers/bin/python -B bench/peers/compare.py build/peers/bin/python "$@"
