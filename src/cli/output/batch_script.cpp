#include "src/cli/output/batch_script.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

namespace partita::cli {

namespace {

/// The lines up to the first command.
std::string head(const BatchRequest& request, std::span<const std::string> own) {
  std::vector<std::string> options{"--job-name=" + request.name};
  if (const int each = request.ranks_per_node; each > 0) {
    options.push_back(fmt::format("--nodes={}", (request.ranks + each - 1) / each));
    options.push_back(fmt::format("--ntasks-per-node={}", std::min(each, request.ranks)));
  }
  options.push_back(fmt::format("--ntasks={}", request.ranks));
  options.push_back(fmt::format("--cpus-per-task={}", request.threads));
  options.push_back("--distribution=block:block");
  options.push_back("--output=" + request.output);
  options.insert(options.end(), own.begin(), own.end());
  options.insert(options.end(), request.others.begin(), request.others.end());
  std::string text = "#!/bin/bash\n";
  for (const std::string& option : options) text += fmt::format("#SBATCH {}\n", shell_word(option));
  return text + fmt::format("export OMP_NUM_THREADS={}\ncd {} || exit\n", request.threads, shell_word(request.folder));
}

}  // namespace

std::string shell_word(const std::string& word) {
  constexpr const char* plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%";
  if (!word.empty() && word.find_first_not_of(plain) == std::string::npos) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

std::string shell_words(std::span<const std::string> words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + shell_word(word);
  return text;
}

std::string array_script(const BatchRequest& request, std::span<const BatchPoint> points, int repeats,
                         const std::string& results) {
  const std::vector<std::string> own{"--no-requeue"};
  std::string text = head(request, own);
  text += fmt::format("results={}\n", shell_word(results));
  text += R"(run() {
  rm -f "$results/$SLURM_ARRAY_TASK_ID.status"
  for repeat in $(seq )" +
          std::to_string(repeats) + R"(); do
    to=$results/$SLURM_ARRAY_TASK_ID.$repeat.json
    [ -e "$to" ] && continue
    "$@" --json "$to.part" && mv "$to.part" "$to" && continue
    status=$?
    echo $status >"$results/$SLURM_ARRAY_TASK_ID.status"
    exit $status
  done
}
case $SLURM_ARRAY_TASK_ID in
)";
  for (const BatchPoint& point : points)
    text += fmt::format("  {}) run {} ;;\n", point.number, shell_words(point.command));
  return text + "esac\n";
}

std::string requeuing_script(const BatchRequest& request, const BatchTraining& training) {
  constexpr double minute = 60, more = 10;  // what the program needs before and after the training
  const std::vector<std::string> own{"--requeue", "--open-mode=append",
                                     fmt::format("--time={:.0f}", std::ceil(training.seconds / minute) + more)};
  return head(request, own) + fmt::format(R"(if [ -e {0} ]; then
  {1}
else
  {2}
fi
status=$?
[ $status = 0 ] || exit $status
if grep -q '"finished": true' {3}; then
  echo "the training is finished"
else
  scontrol requeue "$SLURM_JOB_ID"
fi
)",
                                          shell_word(training.save), shell_words(training.next),
                                          shell_words(training.first), shell_word(training.json));
}

}  // namespace partita::cli
