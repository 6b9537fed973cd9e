#!/bin/bash
# Runs all benchmarks on this machine with one thread per rank. Writes bench/results/DATE-HOST.jsonl, and DATE-HOST.md
# with the same results as a table. By default runs all subjects:
#   checkpoint collective conv estimate halo matmul pipeline predict published redistribute schedule simulated train
#   bash bench/run.sh [SUBJECT...]
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 2
ninja -C build >/dev/null || { echo "bench/run.sh: the build failed; run test/run.sh --fast first" >&2; exit 2; }
export OMP_NUM_THREADS=1
results=bench/results/$(date +%F)-$(hostname).jsonl
mkdir -p bench/results
: >"$results"
# run RANKS SUBJECT: runs one benchmark and appends its output to the results.
run() {
  echo "$2 on $1 ranks" >&2
  build/mpiexec -n "$1" "build/bench/$2" | tee -a "$results"
}
for subject in "${@:-checkpoint collective conv estimate halo matmul pipeline predict published redistribute schedule simulated train}"; do
  for one in $subject; do
    case $one in
      checkpoint) run 1 checkpoint ;;
      conv) run 1 conv && run 2 conv ;;
      collective) run 2 collective && run 8 collective ;;
      estimate) run 1 estimate ;;
      halo) run 2 halo ;;
      matmul) run 2 matmul ;;
      pipeline) run 2 pipeline ;;
      predict) run 2 predict ;;
      published) python3 -B bench/published.py build/partita | tee -a "$results" ;;
      redistribute) run 2 redistribute ;;
      schedule) run 1 schedule ;;
      simulated) python3 -B bench/simulated.py build/partita --jobs "$(nproc)" | tee -a "$results" ;;
      train) run 2 train ;;
      *) echo "bench/run.sh: there is no subject '$one'; the subjects are checkpoint, collective, conv, estimate, halo, matmul, pipeline, predict, published, redistribute, schedule, simulated and train" >&2; exit 2 ;;
    esac
  done
done
python3 -B bench/support/table.py "$results" >"${results%.jsonl}.md"
echo "wrote $results and ${results%.jsonl}.md" >&2
