#!/bin/bash
# Tests and measures one NVIDIA GPU, within eight minutes: builds with CUDA and without MPI, HDF5 and oneDNN, runs the
# tests of the suite gpu on the card, compute-sanitizer on a few of them, and the benchmarks beside PyTorch.
#   bash bench/gpu.sh [FOLDER]    results go to FOLDER (bench/results/DATE-CARD by default): results.jsonl, table.md,
#                                 properties.json of the card, and a log of each step
# bash bench/gpu.sh --pack      collects the headers and libraries that the build needs in .build-gpu-packages, for a
# machine
#                                 that can install nothing; the build uses them where that folder exists
# The machine needs nvcc, a C++ compiler, Meson and Ninja. It may have PyTorch; without it, nothing is compared.
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2
packages=$PWD/.build-gpu-packages

# pack: the headers of Eigen, fmt, toml++, nlohmann-json, Boost and GoogleTest, zlib, static libraries, and pkg-config.
pack() {
  local lib
  lib=/usr/lib/$(gcc -print-multiarch)
  rm -rf "$packages"
  mkdir -p "$packages"/{include,lib,bin}
  cp -rL /usr/include/{eigen3,fmt,toml++,nlohmann,boost,gtest} "$packages/include"
  find "$packages/include/eigen3/unsupported" -delete
  # Of Boost, only what program_options includes.
  cp /usr/include/{zlib,zconf}.h "$packages/include"
  [ -f "/usr/include/$(gcc -print-multiarch)/zconf.h" ] && cp "/usr/include/$(gcc -print-multiarch)/zconf.h" "$packages/include"
  cp "$lib"/{libz.a,libboost_program_options.a,libgtest.a,libgtest_main.a} "$packages/lib"
  echo '#include <boost/program_options.hpp>' | g++ -std=c++20 -M -x c++ - | tr ' \\' '\n\n' | sed -n 's|^/usr/include/||p' |
    grep '^boost/' | sort -u >"$packages/boost.txt"
  mv "$packages/include/boost" "$packages/all-boost"
  while read -r header; do install -D -m 644 "$packages/all-boost/${header#boost/}" "$packages/include/$header"; done <"$packages/boost.txt"
  rm -rf "$packages/all-boost" "$packages/boost.txt"
  cat >"$packages/bin/pkg-config" <<'SCRIPT'
#!/bin/sh
# Answers for the packages in this folder.
here=$(cd "$(dirname "$0")/.." && pwd)
for word; do name=$word; done
case "$*" in --version) echo 0.29.2; exit ;; esac
case "$name" in
  eigen3) version=3.4.0 cflags="-I$here/include/eigen3" libs= ;;
  fmt) version=9.1.0 cflags="-I$here/include -DFMT_HEADER_ONLY=1" libs= ;;
  nlohmann_json) version=3.11.2 cflags="-I$here/include" libs= ;;
  tomlplusplus) version=3.3.0 cflags="-I$here/include" libs= ;;
  zlib) version=1.2.13 cflags="-I$here/include" libs="-L$here/lib -lz" ;;
  gtest) version=1.12.1 cflags="-I$here/include" libs="-L$here/lib -lgtest -lpthread" ;;
  gtest_main) version=1.12.1 cflags="-I$here/include" libs="-L$here/lib -lgtest_main -lgtest -lpthread" ;;
  *) exit 1 ;;
esac
case "$*" in
  *--modversion*) echo "$version" ;;
  *--cflags*) echo "$cflags" ;;
  *--libs*) echo "$libs" ;;
esac
SCRIPT
  chmod +x "$packages/bin/pkg-config"
  du -sh "$packages"
}

case "${1:-}" in
  --pack) pack; exit ;;
  -h | --help) sed -n '2,9s/^# *//p' "$0"; exit ;;
  -*) echo "bench/gpu.sh: unknown option '$1'; there are --pack and --help" >&2; exit 2 ;;
esac

card=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1 | tr ' ' '-')
results=${1:-bench/results/$(date +%F)-${card:-no-card}}
mkdir -p "$results"
results=$(cd "$results" && pwd)
lines=$results/results.jsonl
: >"$lines"
started=$(date +%s)
build=$PWD/.build-gpu
not_run=() failed=()

# step SECONDS NAME COMMAND...: runs a step with a time limit. Its output goes to a log; lines of JSON go to the
# results.
step() {
  local limit=$1 name=$2 log status
  shift 2
  log=$results/$name.txt
  printf '[%4d s] %s\n' "$(($(date +%s) - started))" "$name"
  timeout "$limit" "$@" >"$log" 2>&1 </dev/null
  status=$?
  grep '^{' "$log" >>"$lines"
  [ $status = 0 ] && return
  failed+=("$name (status $status)")
  tail -n 15 "$log"
  return 1
}

versions() {
  nvidia-smi
  nvcc --version
  g++ --version | head -n 1
  meson --version
  python3 -c 'import torch; print("PyTorch", torch.__version__, "cuDNN", torch.backends.cudnn.version())'
  true
}

build_all() {
  local options=(-Dcuda=enabled -Dmpi=disabled -Dhdf5=disabled -Donednn=disabled -Dreport=disabled -Dbuildtype=release)
  if [ -d "$packages" ]; then
    export PATH=$packages/bin:$PATH PKG_CONFIG=$packages/bin/pkg-config CPLUS_INCLUDE_PATH=$packages/include LIBRARY_PATH=$packages/lib
  fi
  [ -f "$build/build.ninja" ] || meson setup "$build" "${options[@]}" || return
  ninja -C "$build" partita bench/gpu test/unit_backend test/threads_train
}

tests() { PARTITA_SOURCE=$PWD PARTITA_CASES=${PARTITA_CASES:-60} meson test -C "$build" --no-rebuild --setup gpu --suite gpu --print-errorlogs; }

# The CPU waits for every kernel in the tests above, which hides a missing order. Not here.
tests_without_waiting() {
  PARTITA_SOURCE=$PWD PARTITA_DEVICE=cuda:0 PARTITA_CASES=${PARTITA_CASES:-60} "$build/test/threads_train" --gtest_filter='Graph.*:DeviceMaster.*'
}

# sanitize TOOL: the kernels against the CPU, under a tool of compute-sanitizer.
sanitize() {
  PARTITA_SOURCE=$PWD PARTITA_DEVICE=cuda:0 CUDA_LAUNCH_BLOCKING=1 compute-sanitizer --tool "$1" --error-exitcode 9 \
    "$build/test/unit_backend" --gtest_filter='Functors*:Moves*'
}

# The card's properties are one JSON object on one line or several; they are no result.
properties() { "$build/bench/gpu" properties | tr -d '\n' >"$results/properties.json"; }

convs() { "$build/bench/gpu" convs "$1" "$2" "$3" >"$results/convs-$1-$3.jsonl" && torch_convs "$1" "$3"; }
torch_convs() {
  if $torch; then python3 -B bench/peers/torch_gpu.py convs "$results/convs-$1-$2.jsonl"; else cat "$results/convs-$1-$2.jsonl"; fi
}

# predicted MODEL BATCH TYPE: a step by the machine file of this card, beside the measured one.
predicted() {
  "$build/partita" compare --measure --device cuda --machine "$results/machine.toml" --model "$1" --batch "$2" --dtype "$3" \
    --json "$results/compare-$1.json" &&
    python3 -B bench/support/gpu_table.py predicted "$results/compare-$1.json" "$1" "$2" "$3"
}

torch=false
python3 -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2>/dev/null && torch=true
step 60 versions versions
if step 300 build build_all; then
  step 30 properties properties
  step 120 tests tests
  step 60 tests-without-waiting tests_without_waiting
  step 30 nccl "$build/bench/gpu" nccl
  step 60 halos "$build/bench/gpu" halos
  step 60 gaps "$build/bench/gpu" gaps
  step 90 convs-resnet50-bf16 convs resnet50 32 bf16
  step 90 convs-mesh-bf16 convs mesh-tangling 1 bf16
  step 90 convs-resnet50-f32 convs resnet50 32 f32
  step 60 step-resnet50-256 "$build/bench/gpu" step resnet50 256 bf16
  step 60 step-resnet50-32 "$build/bench/gpu" step resnet50 32 bf16
  if $torch; then
    step 60 torch-resnet50-256 python3 -B bench/peers/torch_gpu.py step resnet50 256 bf16
    step 60 torch-resnet50-32 python3 -B bench/peers/torch_gpu.py step resnet50 32 bf16 graph
  else
    not_run+=("PyTorch: it is not there, or sees no card")
  fi
  step 120 calibrate "$build/partita" calibrate --device cuda --dtype bf16 --model resnet50 --batch 32 --out "$results/machine.toml"
  for model in resnet50 vgg16 mesh-tangling unet3d; do
    case $model in resnet50 | vgg16) batch=32 ;; *) batch=1 ;; esac
    step 60 "predicted-$model" predicted "$model" $batch bf16
  done
  if command -v compute-sanitizer >/dev/null; then
    step 120 memcheck sanitize memcheck
    step 120 racecheck sanitize racecheck
  else
    not_run+=("compute-sanitizer: it is not on the PATH")
  fi
else
  not_run+=("everything: the build failed")
fi
python3 -B bench/support/gpu_table.py table "$lines" "${failed[@]/#/failed: }" "${not_run[@]/#/not run: }" | tee "$results/table.md"
printf '[%4d s] results are in %s\n' "$(($(date +%s) - started))" "$results"
[ ${#failed[@]} = 0 ]
