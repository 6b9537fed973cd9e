#include "src/cli/verbs/scale/slurm_jobs.hpp"

#include "partita/base/error.hpp"
#include "src/base/plain_text.hpp"
#include "src/cli/files/child_process.hpp"
#include "src/cli/files/text_file.hpp"
#include "src/system/real_path.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>
#include <utility>

namespace partita::cli {

namespace {

/// Runs a program of Slurm, whose output goes to files in `folder`. Returns what it printed. Throws Error if it fails.
std::string run_slurm(const std::vector<std::string>& words, const std::string& folder) {
  if (find_program(words[0]).empty()) fail("there is no program {}; run this where Slurm is", words[0]);
  const ChildEnd end = run_child(words, folder);
  if (end.status != 0) fail("{} ended with status {}: {}", words[0], end.status, end.message);
  return read_text("--out", folder + "/output.txt");
}

}  // namespace

SlurmJobs::SlurmJobs(const ScaleOptions& options, std::vector<SlurmPoint> points)
    : options_(options),
      points_(std::move(points)),
      folder_(real_path(options.out) + ".slurm"),
      states_(points_.size()) {
  if (!options_.dry_run && std::filesystem::exists(path("jobs"))) read_queue();
}

/// Reads which jobs of this experiment wait or run. Slurm numbers them ARRAY_POINT.
void SlurmJobs::read_queue() {
  std::istringstream known(read_text("--out", path("jobs")));
  std::set<std::string> arrays;
  for (std::string array; known >> array;) arrays.insert(array);
  std::istringstream queue(run_slurm({"squeue", "--noheader", "--array", "--me", "--format=%F %K %T"}, folder_));
  std::string number;
  std::string state;
  for (std::string array; queue >> array >> number >> state;) {
    const auto point = parse_number<std::size_t>(number);
    if (point && *point < states_.size() && arrays.contains(array)) states_[*point] = state;
  }
}

std::string SlurmJobs::result(std::size_t point, int repeat) const {
  return path(fmt::format("{}.{}.json", point, repeat));
}

std::optional<JobFailure> SlurmJobs::failure(std::size_t point) const {
  const std::string status = path(fmt::format("{}.status", point));
  if (!states_[point].empty() || !std::filesystem::exists(status)) return std::nullopt;
  const std::string number = read_text("--out", status);
  JobFailure failure{parse_number<int>(number.substr(0, number.find('\n'))).value_or(1), ""};
  if (const std::string text = path(fmt::format("{}.txt", point)); std::filesystem::exists(text)) {
    constexpr std::size_t most = 1000;
    const std::string all = read_text("--out", text);
    failure.message = all.substr(all.size() - std::min(all.size(), most));
  }
  return failure;
}

std::string SlurmJobs::state(std::size_t point) const {
  return states_[point].empty() ? "in no queue of Slurm" : fmt::format("its job is {}", states_[point]);
}

std::vector<std::size_t> SlurmJobs::unfinished() const {
  const bool there = std::filesystem::exists(path("jobs"));
  if (there && !options_.resubmit && !options_.dry_run)
    fail(
        "--out {}: {} has jobs of an earlier scale --slurm; add --resubmit for what has failed or is missing, or "
        "remove the folder",
        options_.out, folder_);
  if (!there && options_.resubmit)
    fail("--out {}: there are no jobs in {}; leave --resubmit out", options_.out, folder_);
  std::vector<std::size_t> which;
  for (std::size_t i = 0; i < points_.size(); ++i) {
    bool done = options_.resubmit;
    for (int repeat = 1; repeat <= options_.repeats; ++repeat)
      done = done && std::filesystem::exists(result(i, repeat));
    if (!done && states_[i].empty()) which.push_back(i);
  }
  return which;
}

std::vector<SlurmJobs::Array> SlurmJobs::arrays(const std::vector<std::size_t>& which) const {
  std::map<int, std::vector<BatchPoint>> by_ranks;
  for (const std::size_t i : which) by_ranks[points_[i].ranks].push_back(points_[i].job);
  std::vector<Array> all;
  for (const auto& [ranks, jobs] : by_ranks) {
    const BatchRequest request{.name = fmt::format("partita-{}", ranks),
                               .ranks = ranks,
                               .ranks_per_node = options_.ranks_per_node,
                               .threads = options_.train.trainer.threads,
                               .output = path("%a.txt"),
                               .others = options_.sbatch,
                               .folder = std::filesystem::current_path().string()};
    std::string numbers;
    for (const BatchPoint& job : jobs) numbers += fmt::format("{}{}", numbers.empty() ? "" : ",", job.number);
    const std::string script = path(fmt::format("ranks-{}.sh", ranks));
    all.push_back({script,
                   array_script(request, jobs, options_.repeats, folder_),
                   {"sbatch", "--parsable", "--array=" + numbers, script}});
  }
  return all;
}

std::string SlurmJobs::print(const std::vector<std::size_t>& which) const {
  std::string text;
  for (const Array& array : arrays(which))
    text += fmt::format("# {}\n{}# {}\n", array.script, array.text, shell_words(array.command));
  return text;
}

void SlurmJobs::submit(const std::vector<std::size_t>& which) const {
  if (which.empty()) fmt::print("nothing is left to submit\n");
  for (const Array& array : arrays(which)) {
    write_text("--out", array.script, array.text);
    const std::string answer = run_slurm(array.command, folder_);
    const std::string id = answer.substr(0, answer.find_first_of(";\n"));  // "JOB" or "JOB;CLUSTER"
    const std::string before = std::filesystem::exists(path("jobs")) ? read_text("--out", path("jobs")) : "";
    write_text("--out", path("jobs"), before + id + "\n");
    fmt::print("submitted {} as job {}\n", shell_words(array.command), id);
  }
}

/// What must stay the same: not the machine, because compute nodes may differ from the node on which this runs.
void SlurmJobs::keep_experiment(ScaleResults experiment) const {
  if (options_.resubmit) return check_experiment(std::move(experiment));
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  if (error) fail("--out {}: the folder {} cannot be made: {}", options_.out, folder_, error.message());
  experiment.conditions = {};
  write_text("--out", path("experiment.json"), experiment.json());
}

void SlurmJobs::check_experiment(ScaleResults experiment) const {
  const std::string file = path("experiment.json");
  if (!std::filesystem::exists(file))
    fail("--out {}: there is no experiment in {}; begin with scale --slurm", options_.out, folder_);
  const ScaleResults there = ScaleResults::load("--out", file);
  experiment.conditions = {};
  std::string difference = there.difference(experiment);
  const auto same = [](const ScaleRun& a, const ScaleRun& b) { return a.strategy == b.strategy && a.ranks == b.ranks; };
  if (difference.empty() &&
      !std::equal(there.runs.begin(), there.runs.end(), experiment.runs.begin(), experiment.runs.end(), same))
    difference = "it has other strategies or numbers of ranks";
  if (!difference.empty())
    fail("--out {}: the jobs in {} are of another experiment: {}; give the same options", options_.out, folder_,
         difference);
}

}  // namespace partita::cli
