#!/bin/bash
# Tests and measures one NVIDIA GPU in a single run of at most nine minutes: builds with CUDA and without MPI, HDF5 and
# oneDNN, runs the tests of the kernels on the card, and the benchmarks beside PyTorch. What is worth most comes first;
# what no time is left for is named.
#   bash bench/gpu.sh [FOLDER]    results go to FOLDER (bench/results/DATE-CARD by default), as three files: table.md,
#                                 results.jsonl, and logs.tar.gz with a log of each step, the properties of the card
#                                 and its machine file
#   bash bench/gpu.sh --pack      collects the headers and libraries that the build needs in .build-gpu-packages, for a
#                                 machine that can install nothing; the build uses them where that folder exists
# The machine needs nvcc, a C++ compiler, Meson and Ninja. cuDNN and NCCL lie beside the toolkit or in the wheels of
# PyTorch. It may have PyTorch; without it, nothing is compared. PARTITA_GPU_SECONDS is another time limit,
# PARTITA_GPU_BUILD another build folder.
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
  -h | --help) sed -n '2,13s/^# *//p' "$0"; exit ;;
  -*) echo "bench/gpu.sh: unknown option '$1'; there are --pack and --help" >&2; exit 2 ;;
esac

started=$(date +%s)
deadline=$((started + ${PARTITA_GPU_SECONDS:-540} - 10))  # the table and the archive take the last seconds
card=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1 | tr ' ' '-')
results=${1:-bench/results/$(date +%F)-${card:-no-card}}
mkdir -p "$results" || exit 2
results=$(cd "$results" && pwd)
lines=$results/results.jsonl
: >"$lines"
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
build=${PARTITA_GPU_BUILD:-$PWD/.build-gpu}
left_out=() failed=()

# use_libraries: finds nvcc and the headers and libraries of cuDNN, NCCL, cuBLAS and NVRTC. PyTorch's wheels hold them
# in a folder nvidia/. meson.build looks for cuDNN and NCCL beside the folder of the toolkit, so links bring them
# together.
use_libraries() {
  local nvcc toolkit links=$build-toolkit wheels folder name
  wheels=$(python3 -c 'import importlib.util as u; print(list(u.find_spec("nvidia").submodule_search_locations)[0])' 2>/dev/null)
  for nvcc in "$(command -v nvcc)" /usr/local/cuda/bin/nvcc "$wheels"/cu13/bin/nvcc; do
    [ -x "$nvcc" ] && break
  done
  [ -x "$nvcc" ] || { echo "bench/gpu.sh: there is no nvcc on the PATH, in /usr/local/cuda or in PyTorch's wheels"; return 1; }
  toolkit=$(dirname "$(dirname "$(readlink -f "$nvcc")")")
  echo "nvcc $nvcc, toolkit $toolkit, wheels ${wheels:-none}"
  for folder in "${wheels:-/nowhere}"/*/lib; do
    [ -d "$folder" ] && LD_LIBRARY_PATH=$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  done
  PATH=$toolkit/bin:$PATH
  if [ -n "$wheels" ] && [ ! -e "$toolkit/include/cudnn_graph.h" ]; then
    rm -rf "$links"
    mkdir -p "$links/toolkit"
    ln -s "$toolkit"/* "$links/toolkit/"
    for name in cudnn nccl; do [ -d "$wheels/$name" ] && ln -s "$wheels/$name" "$links/$name"; done
    PATH=$links/toolkit/bin:$PATH
  fi
  for folder in "$wheels"/cublas/include "$wheels"/cu13/include; do
    [ -e "$toolkit/include/cublasLt.h" ] || [ ! -e "$folder/cublasLt.h" ] || CPLUS_INCLUDE_PATH=$folder${CPLUS_INCLUDE_PATH:+:$CPLUS_INCLUDE_PATH}
  done
  if [ -d "$packages" ]; then
    PATH=$packages/bin:$PATH PKG_CONFIG=$packages/bin/pkg-config
    CPLUS_INCLUDE_PATH=$packages/include${CPLUS_INCLUDE_PATH:+:$CPLUS_INCLUDE_PATH} LIBRARY_PATH=$packages/lib
    export PKG_CONFIG LIBRARY_PATH
  fi
  export PATH CPLUS_INCLUDE_PATH="${CPLUS_INCLUDE_PATH:-}" LD_LIBRARY_PATH="${LD_LIBRARY_PATH:-}"
}

# step SECONDS NAME COMMAND...: runs a command or a function below with a time limit, if the deadline leaves it ten
# seconds. Its output goes to a log; lines of JSON go to the results.
step() {
  local limit=$1 name=$2 left status
  shift 2
  left=$((deadline - $(date +%s)))
  if [ $left -lt 10 ]; then
    left_out+=("$name: no time was left")
    return 1
  fi
  [ "$limit" -lt $left ] || limit=$left
  printf '[%4d s] %s\n' "$(($(date +%s) - started))" "$name"
  timeout "$limit" bash -c '"$@"' step "$@" >"$logs/$name.txt" 2>&1 </dev/null
  status=$?
  grep '^{' "$logs/$name.txt" >>"$lines"
  [ $status = 0 ] && return
  failed+=("$name ($([ $status = 124 ] && echo "ended after $limit s" || echo "status $status"))")
  tail -n 15 "$logs/$name.txt"
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
  local capability
  capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d .)
  [ -f "$build/build.ninja" ] ||
    meson setup "$build" -Dcuda=enabled -Dcapabilities="${capability:-90}" -Dmpi=disabled -Dhdf5=disabled -Donednn=disabled \
      -Dreport=disabled -Dbuildtype=release || return
  ninja -C "$build" partita bench/gpu test/unit_backend test/threads_train
}

tests() { meson test -C "$build" --no-rebuild --setup gpu --suite gpu --print-errorlogs; }

# The CPU waits for every kernel in the tests above, which hides a missing order. Not here.
tests_without_waiting() { PARTITA_DEVICE=cuda:0 "$build/test/threads_train" --gtest_filter='Graph.*:DeviceMaster.*'; }

# sanitize TOOL: the kernels against the CPU, under a tool of compute-sanitizer.
sanitize() {
  PARTITA_DEVICE=cuda:0 CUDA_LAUNCH_BLOCKING=1 compute-sanitizer --tool "$1" --error-exitcode 9 "$build/test/unit_backend" \
    --gtest_filter='*Launcher*:*Functor*:Moves*:*Pool*:*Norm*:Sum*:Relu*:Activation*:Update*:*Conv*'
}

# The card's properties are one JSON object on one line or several; they are no result.
properties() { "$build/bench/gpu" properties | tr -d '\n' >"$logs/properties.json"; }

convs() { "$build/bench/gpu" convs "$1" "$2" "$3" >"$logs/convs-$1-$3.jsonl" && torch_convs "$1" "$3"; }
torch_convs() {
  if $torch; then python3 -B bench/peers/torch_gpu.py convs "$logs/convs-$1-$2.jsonl"; else cat "$logs/convs-$1-$2.jsonl"; fi
}

# predicted MODEL BATCH TYPE: a step by the machine file of this card, beside the measured one.
predicted() {
  "$build/partita" compare --measure --device cuda --machine "$logs/machine.toml" --model "$1" --batch "$2" --dtype "$3" \
    --json "$logs/compare-$1.json" &&
    python3 -B bench/support/gpu_table.py predicted "$logs/compare-$1.json" "$1" "$2" "$3"
}

# measure: the steps, by their worth.
measure() {
  local model batch
  step 20 properties properties
  step 60 tests tests
  step 40 step-resnet50-256 "$build/bench/gpu" step resnet50 256 bf16
  $torch && step 40 torch-resnet50-256 python3 -B bench/peers/torch_gpu.py step resnet50 256 bf16
  step 40 step-resnet50-32 "$build/bench/gpu" step resnet50 32 bf16
  $torch && step 40 torch-resnet50-32 python3 -B bench/peers/torch_gpu.py step resnet50 32 bf16 graph
  step 30 halos "$build/bench/gpu" halos
  step 30 gaps "$build/bench/gpu" gaps
  step 40 tests-without-waiting tests_without_waiting
  step 20 nccl "$build/bench/gpu" nccl
  step 60 convs-resnet50-bf16 convs resnet50 32 bf16
  step 60 convs-mesh-bf16 convs mesh-tangling 1 bf16
  if step 60 calibrate "$build/partita" calibrate --device cuda --dtype bf16 --model resnet50 --batch 32 --out "$logs/machine.toml"; then
    for model in resnet50 vgg16 mesh-tangling unet3d; do
      case $model in resnet50 | vgg16) batch=32 ;; *) batch=1 ;; esac
      step 30 "predicted-$model" predicted "$model" $batch bf16
    done
  else
    left_out+=("predicted steps: there is no machine file")
  fi
  if command -v compute-sanitizer >/dev/null; then
    step 60 memcheck sanitize memcheck
    step 60 racecheck sanitize racecheck
  else
    left_out+=("compute-sanitizer: it is not on the PATH")
  fi
  step 60 convs-resnet50-f32 convs resnet50 32 f32
}

torch=false
export PARTITA_SOURCE=$PWD PARTITA_CASES=${PARTITA_CASES:-60} XDG_CACHE_HOME=$build/cache  # measured engines
if use_libraries >"$logs/libraries.txt" 2>&1; then
  python3 -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2>/dev/null && torch=true
  $torch || left_out+=("PyTorch: it is not there, or sees no card")
  export packages build logs torch
  export -f versions build_all tests tests_without_waiting sanitize properties convs torch_convs predicted
  step 30 versions versions
  if step 300 build build_all; then measure; else left_out+=("everything: the build failed"); fi
else
  cat "$logs/libraries.txt"
  left_out+=("everything: $(tail -n 1 "$logs/libraries.txt")")
fi
python3 -B bench/support/gpu_table.py table "$lines" "${failed[@]/#/failed: }" "${left_out[@]/#/left out: }" | tee "$results/table.md"
tar -czf "$results/logs.tar.gz" -C "$logs" .
printf '[%4d s] results are in %s\n' "$(($(date +%s) - started))" "$results"
[ ${#failed[@]} = 0 ]
