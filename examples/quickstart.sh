#!/bin/bash
# The quick start, for a fresh Debian 12: installs missing packages, builds into build/, trains a network with and
# without partitioning, and compares the results.
set -eu
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. test/setup.sh

# shellcheck disable=SC2086
install_packages $run_packages

mkdir -p build
log=build/quickstart-build.txt
show_log() {
  tail -n 40 "$log" >&2
  echo "the build failed; all of its output is in $log" >&2
}
trap show_log ERR
if [ ! -f build/meson-private/coredata.dat ]; then
  say "configuring build/"
  # Without kernels for GPUs, and several files as one: that takes about half the CPU time.
  meson setup build --buildtype release -Dtests=false -Dcuda=disabled -Dunity=on -Dunity_size=12 >"$log" 2>&1 </dev/null
fi
say "compiling (a few minutes, once)"
ninja -C build partita examples/quickstart_report >"$log" 2>&1 </dev/null
trap - ERR

folder=build/quickstart
rm -rf "$folder"
mkdir -p "$folder"
began=$(date +%s)
export OMP_NUM_THREADS=1  # one thread per rank in all runs
train="build/partita train --model fashion-cnn --batch 128 --seed 1"
f32="--dtype f32 --epochs 2 --rate 0.1 --nesterov --weight-decay 5e-4 --warm-up 100 --decay linear"
f64="--dtype f64 --steps 50 --rate 0.05 --no-test"
hybrid="--strategy examples/strategies/fashion-cnn-hybrid.toml"

# shellcheck disable=SC2086
{
  say "serial: 2 epochs of Fashion-MNIST on 1 rank, f32"
  $train $f32 --json $folder/serial-f32.json
  say "hybrid: the same on 4 ranks; samples are split over 2, the rows of every image over 2"
  build/mpiexec -n 4 $train $f32 $hybrid --json $folder/hybrid-f32.json
  say "serial: 50 steps in f64"
  $train $f64 --save $folder/serial-f64.h5 --json $folder/serial-f64.json
  say "hybrid: the same on 4 ranks"
  build/mpiexec -n 4 $train $f64 $hybrid --save $folder/hybrid-f64.h5 --json $folder/hybrid-f64.json
}
say "comparing"
build/examples/quickstart_report $folder build/quickstart.json $(($(date +%s) - began))
say "wrote build/quickstart.json"
say "to build for GPUs too: meson configure build -Dcuda=auto; to rebuild quickly after changes: meson configure build -Dunity=off"
