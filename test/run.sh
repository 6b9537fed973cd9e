#!/bin/bash
# Runs the tests on Debian 12: installs missing packages, builds, tests, and prints a last line with the counts.
#   bash test/run.sh           GCC with -Werror, then Clang's address, undefined-behavior and thread sanitizers
#   bash test/run.sh --fast    without the sanitizers
#   bash test/run.sh --cuda    with the kernels for GPUs also where there is no nvcc: installs CUDA from PyPI for that
#   bash test/run.sh --long    also large sweeps, two hosts over TCP, the fuzzers and clang-tidy
#   bash test/run.sh --unit [MODULE]   for a small change, within a minute: builds and runs the unit and thread tests
#                              of one module (base, strategies, train ...); without MODULE the unit tests of all
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2
. test/setup.sh

fast=false
cuda=auto  # whether to build for GPUs: auto, where there is nvcc, or enabled
unit=""  # for --unit: the module, or "unit" for all unit tests; the suite's name, and tests-NAME is the target
multiplier=1
while [ $# -gt 0 ]; do
  case "$1" in
    --fast) fast=true ;;
    --cuda) cuda=enabled ;;
    --long) export PARTITA_LONG=1 multiplier=20 ;;
    --unit)
      unit=unit
      case "${2:--}" in -*) ;; *) unit=$2 && shift ;; esac
      ;;
    --help | -h) sed -n '2,8s/^# *//p' "$0" && exit 0 ;;
    *) echo "test/run.sh: unknown option '$1'; the options are --fast, --cuda, --long, --unit and --help" >&2 && exit 2 ;;
  esac
  shift
done

# shellcheck disable=SC2086
[ -n "$unit" ] && [ -f build/build.ninja ] || install_packages $run_packages $test_packages ${PARTITA_LONG:+$long_packages}

[ "$cuda" = auto ] || provide_cuda

failed_steps=()
logs=()  # the testlog.json of every run of Meson's tests
log_folder=build/test-logs

# step NAME COMMAND...: runs the command without output. If it fails, prints the end of its output and remembers the
# name.
step() {
  local name=$1 log
  shift
  say "$name"
  log=$log_folder/$(tr -c 'a-z0-9\n' '-' <<<"${name,,}").txt
  "$@" >"$log" 2>&1 </dev/null && return
  echo "---- $name failed; the end of $log:"
  grep -E 'error|warning|FAILED' "$log" | head -n 20
  tail -n 20 "$log"
  echo "----"
  failed_steps+=("$name")
  return 1
}

# configure FOLDER COMPILER OPTION...: sets up a build folder, or changes the options of an existing one.
configure() {
  local folder=$1 compiler=$2
  shift 2
  if [ -f "$folder/meson-private/coredata.dat" ]; then
    meson configure "$folder" "$@"
  else
    # Meson uses ccache by itself only if CXX is not set.
    CXX="$(command -v ccache) $compiler" meson setup "$folder" ${cuda_native:+--native-file "$cuda_native"} "$@"
  fi
}

compile() { ninja -C "$@" -k0; }

# run_tests NAME FOLDER SUITE...: runs the suites, prints failures, and keeps the log for the counts.
run_tests() {
  local name=$1 folder=$2 suite suites=() slower=1
  shift 2
  for suite in "$@"; do suites+=(--suite "$suite"); done
  say "$name"
  [ "$folder" = build ] || slower=3  # tests with a sanitizer are slower
  meson test -C "$folder" --no-rebuild --print-errorlogs --logbase testlog --timeout-multiplier $((multiplier > slower ? multiplier : slower)) \
    "${suites[@]}" 2>&1 </dev/null | tee "$log_folder/$(basename "$folder").txt"
  logs+=("$folder/meson-logs/testlog.json")
}

mkdir -p "$log_folder"
say "logs are in $log_folder"

if [ -n "$unit" ]; then
  # A folder that is configured stays as it is: to configure it again would take longer than the tests.
  [ -f build/build.ninja ] ||
    step "configure (g++, release)" configure build g++ --buildtype release -Dwerror=true -Dtests=true || exit 1
  modules=$(ninja -C build -t targets all | sed -n 's/^tests-\([a-z_]*\): phony$/\1/p' | sort | paste -sd ' ')
  case " $modules " in
    *" $unit "*) ;;
    *) echo "test/run.sh: no module '$unit' has unit tests; these have: $modules" >&2 && exit 2 ;;
  esac
  step "build tests of $unit" compile build -j2 "tests-$unit" && run_tests "tests of $unit" build "$unit"
  say "done"
  python3 -B test/support/summary.py "${#failed_steps[@]}" "${logs[@]}"
  exit
fi

step "configure (g++, release)" configure build g++ --buildtype release -Dwerror=true -Dtests=true -Dcuda=$cuda -Dcapabilities=90 &&
  step "build (g++, release)" compile build -j2 &&
  run_tests "tests" build unit threads mpi example style ${PARTITA_LONG:+long}

# A build for a machine without MPI, HDF5 and oneDNN. The thread sanitizer has one too, and runs fewer suites of it.
bare="-Dmpi=disabled -Dhdf5=disabled -Donednn=disabled -Dcuda=disabled"
if [ -n "${PARTITA_LONG:-}" ]; then
  step "configure (g++, without MPI, HDF5 and oneDNN)" configure .build-without g++ --buildtype debug -Ddebug=false -Doptimization=1 \
    -Dwerror=true $bare &&
    step "build (g++, without MPI, HDF5 and oneDNN)" compile .build-without -j2 &&
    run_tests "tests without MPI, HDF5 and oneDNN" .build-without unit threads mpi example
fi

if ! $fast; then
  # Each sanitizer has a build folder of its own. ThreadSanitizer does not know oneDNN's threads (libgomp), so its build
  # has no oneDNN. It lacks MPI and HDF5 too: so it also shows that the program does without them.
  # Line tables are enough for reports. Full debug information takes a quarter of the time of a build.
  # -Dunity=on compiles several files as one, which takes about half the time.
  lines="-Ddebug=false -Dcpp_args=-gline-tables-only -Dunity=on -Dunity_size=12"
  export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1 TSAN_OPTIONS=halt_on_error=1
  step "configure (clang++, address and undefined)" configure .build-asan clang++ --buildtype debugoptimized -Doptimization=1 \
    $lines -Db_sanitize=address,undefined -Dfuzz=true -Dcuda=disabled -Dwerror=true &&
    step "build (clang++, address and undefined)" compile .build-asan -j2 asan-tests fuzz-all &&
    ASAN_OPTIONS=detect_leaks=0 run_tests "tests with address and undefined sanitizers" .build-asan unit threads mpi-small
  step "configure (clang++, thread)" configure .build-tsan clang++ --buildtype debugoptimized -Doptimization=1 \
    $lines -Db_sanitize=thread $bare -Dwerror=true &&
    step "build (clang++, thread)" compile .build-tsan -j2 thread-tests small-tests &&
    run_tests "tests with the thread sanitizer" .build-tsan threads small
fi
if [ -n "${PARTITA_LONG:-}" ]; then
  # -fsanitize=fuzzer-no-link makes the fuzzers see branches in the libraries too.
  step "configure (fuzzers)" configure .build-fuzz clang++ --buildtype debugoptimized -Dfuzz=true -Dtests=false -Dcuda=disabled \
    -Db_sanitize=address,undefined -Db_lundef=false -Dcpp_args=-fsanitize=fuzzer-no-link &&
    step "build (fuzzers)" compile .build-fuzz -j2 fuzz-all
  for subject in notation strategy schedule machine idx checkpoint options options_file; do
    mkdir -p ".build-fuzz/corpus/$subject"
    step "fuzz $subject, 5 minutes" ".build-fuzz/test/fuzz/fuzz_$subject" -max_total_time=300 -timeout=20 -rss_limit_mb=4096 \
      -print_final_stats=1 -artifact_prefix=.build-fuzz/ ".build-fuzz/corpus/$subject" "test/fuzz/corpus/$subject"
  done
  step "clang-tidy" run-clang-tidy -quiet -j2 -p .build-asan "^$PWD/(src|layouts|distconv|strategies)/"
fi

say "done"
python3 -B test/support/summary.py "${#failed_steps[@]}" "${logs[@]}"
