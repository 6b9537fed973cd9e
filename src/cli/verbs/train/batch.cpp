#include "src/cli/verbs/train/batch.hpp"

#include "partita/train/trainer/trainer.hpp"
#include "src/cli/files/text_file.hpp"
#include "src/cli/inputs/model_and_strategy.hpp"
#include "src/cli/output/batch_script.hpp"
#include "src/cli/verbs/train/checkpoints.hpp"

#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <sstream>
#include <utility>

namespace partita::cli {

namespace {

/// The command of a job: the training's words without what only writes the script.
std::vector<std::string> job_words(const TrainOptions& options, const std::string& json) {
  static constexpr std::array<std::pair<std::string_view, bool>, 4> names{
      {{"--slurm", true}, {"--sbatch", true}, {"--ranks-per-node", true}, {"--ranks", true}}};
  std::vector<std::string> words = words_without(options.words, names);
  words.front() = std::filesystem::read_symlink("/proc/self/exe").string();
  if (options.json.empty()) words.insert(words.end(), {"--json", json});
  return words;
}

std::vector<std::string> under_srun(std::vector<std::string> words) {
  words.insert(words.begin(), {"srun", "--cpu-bind=cores"});
  return words;
}

}  // namespace

void write_batch_script(const TrainOptions& options, int ranks) {
  const Strategy strategy = make_strategy(options, std::max(ranks, 1));
  if (ranks > 0) check_ranks(strategy, ranks);
  const std::string json = options.json.empty() ? options.save + ".json" : options.json;
  const std::vector<std::string> words = job_words(options, json);
  BatchRequest request{.name = "partita-train",
                       .ranks = strategy.ranks(),
                       .ranks_per_node = options.ranks_per_node,
                       .threads = options.trainer.threads,
                       .output = options.save + ".txt",
                       .others = {},
                       .folder = std::filesystem::current_path().string()};
  std::istringstream in(options.sbatch);
  for (std::string word; in >> word;) request.others.push_back(word);
  write_text("--slurm", options.slurm,
             requeuing_script(request, {.first = under_srun(words),
                                        .next = under_srun(resuming_words(words, options.save)),
                                        .save = options.save,
                                        .json = json,
                                        .seconds = options.seconds}));
  fmt::print("wrote {}; submit it with\n           sbatch {}\n", options.slurm, shell_word(options.slurm));
}

}  // namespace partita::cli
