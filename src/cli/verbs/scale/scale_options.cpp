#include "src/cli/verbs/scale/scale_options.hpp"

#include "partita/base/error.hpp"
#include "partita/comm/mpi.hpp"
#include "src/cli/files/child_process.hpp"
#include "src/cli/files/text_file.hpp"
#include "src/cli/options/command_line.hpp"
#include "src/cli/options/number_option.hpp"
#include "src/cli/verbs/scale/scale_results.hpp"
#include "src/cli/version.hpp"

#include <fmt/ranges.h>
#include <netdb.h>

#include <algorithm>
#include <sstream>

namespace partita::cli {

namespace {

namespace po = boost::program_options;

void check_numbers(const ScaleOptions& o) {
  constexpr Index most = 1 << 20;
  if (o.ranks.empty()) fail("scale needs the numbers of ranks, e.g. --ranks 1 2 4");
  check_rank_counts(o.ranks);
  for (const auto& [option, value] :
       {std::pair<const char*, Index>("--repeats", o.repeats), {"--steps", o.steps}, {"--batch", o.batch}})
    if (value < 1 || value > most) fail("{} {}: it must be 1 to {}", option, value, most);
  check_writable({{"--out", o.out, FileKind::json}, {"--csv", o.csv}});
  check_no_stream("--out", o.out);
}

/// Throws Error for options of jobs of Slurm that do not fit together.
void check_slurm(const ScaleOptions& o) {
  if (o.slurm && o.collect) fail("--slurm submits jobs and --collect gathers their results; give one of them");
  for (const auto& [option, given] :
       {std::pair("--dry-run", o.dry_run), std::pair("--resubmit", o.resubmit),
        std::pair("--ranks-per-node", o.ranks_per_node != 0), std::pair("--sbatch", !o.sbatch.empty())})
    if (given && !o.slurm && !o.collect) fail("{} needs --slurm", option);
  if (o.ranks_per_node < 0) fail("--ranks-per-node {}: it must be 1 or more", o.ranks_per_node);
  if (!o.by_slurm()) return;
  if (o.out.empty()) fail("{} needs --out FILE for the results", o.slurm ? "--slurm" : "--collect");
  if (!o.hostfile.empty()) fail("--hostfile {}: Slurm chooses the hosts; leave it out", o.hostfile);
}

/// Throws Error for options of train that scale sets itself or that would change what a run does.
void check_train(const TrainOptions& o) {
  for (const auto& [option, given] :
       {std::pair("--json", !o.json.empty()), std::pair("--write-options", !o.write_options.empty()),
        std::pair("--trace", !o.trace.empty()), std::pair("--profile", o.profile), std::pair("--save", !o.save.empty()),
        std::pair("--load", !o.load.empty()), std::pair("--epochs", o.trainer.epochs != 1),
        std::pair("--no-test", !o.test), std::pair("--slurm SCRIPT", !o.slurm.empty()),
        std::pair("--log", !o.watch.log.empty()), std::pair("--tensorboard", !o.watch.tensorboard.empty()),
        std::pair("--validate", o.watch.validates())})
    if (given) fail("{}: scale only times a few steps in each run; leave it out", option);
}

/// Throws Error for a host that no name service knows, because some launchers wait for such a host without limit. (A
/// name that only ssh knows can stand in a host file that is given to the launcher by --mpiexec.) A line has a host,
/// perhaps followed by ":2" or by more words.
void check_hosts(const std::string& path) {
  std::istringstream lines(read_text("--hostfile", path));
  int number = 0, hosts = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    std::istringstream words(line.substr(0, line.find('#')));
    std::string host;
    if (!(words >> host)) continue;
    ++hosts;
    if (std::count(host.begin(), host.end(), ':') == 1) host.resize(host.find(':'));  // more: an IPv6 address
    addrinfo* found = nullptr;
    const int error = getaddrinfo(host.c_str(), nullptr, nullptr, &found);
    if (found != nullptr) freeaddrinfo(found);
    if (error == EAI_NONAME)
      fail("--hostfile {}, line {}: the host '{}' is unknown ({}); write a name or an address, one per line", path,
           number, host, gai_strerror(error));
  }
  if (hosts == 0) fail("--hostfile {}: it names no host; write names or addresses, one per line", path);
}

/// The words of --mpiexec, or of the launcher that the build found. An installed program may run where that launcher
/// does not exist; then `mpiexec` in PATH is taken.
std::vector<std::string> launcher_words(const std::string& given, const std::string& hostfile, bool by_slurm) {
  if (!have_mpi())
    fail(
        "scale starts processes, and this build has no MPI; configure it with -Dmpi=enabled, or run `train --ranks N`");
  std::vector<std::string> words;
  std::istringstream in(!given.empty() ? given : by_slurm ? "srun --cpu-bind=cores" : launcher);
  for (std::string word; in >> word;) words.push_back(word);
  if (words.empty()) fail("--mpiexec \"{}\": it names no program", given);
  if (by_slurm) return words;  // it is searched where the jobs run
  if (given.empty() && find_program(words[0]).empty()) words = {"mpiexec"};
  if (find_program(words[0]).empty()) {
    if (!given.empty()) fail("--mpiexec \"{}\": there is no program {}", given, words[0]);
    fail("there is no launcher: neither {} nor mpiexec in PATH; name one, e.g. --mpiexec srun", launcher);
  }
  if (!hostfile.empty()) {
    check_hosts(hostfile);
    words.insert(words.end(), {"--hostfile", hostfile});
  }
  return words;
}

/// Parses the options of train.
void parse_train(ScaleOptions& o, const Program& program, const std::string& path) {
  po::options_description all;
  o.train.add_to(all, program);
  std::vector<std::string> words{path, "train"};
  words.insert(words.end(), o.arguments.begin(), o.arguments.end());
  o.train.check(program, read_command_line(words, all));
  check_train(o.train);
  o.train.trainer.batch = o.batch;
}

}  // namespace

void ScaleOptions::add_to(po::options_description& all) {
  auto add = all.add_options();
  add("ranks", number(&ranks)->multitoken()->value_name("P..."),
      "numbers of ranks in ascending order, separated by spaces");
  add("strategy", po::value(&strategies)->multitoken()->composing()->value_name("FILE..."),
      "strategy files, each run on the number of ranks of its grid; default: the strategy that the program declares, "
      "or split the samples over all ranks");
  add("grid", po::value(&grids)->multitoken()->composing()->value_name("AXES..."),
      "grids for any number of ranks; {} stands for the ranks that the other axes leave, e.g. \"data={} y=2\"");
  add("weak", po::bool_switch(&weak), "weak scaling: --batch is the number of samples per rank");
  add("batch", number(&batch)->default_value(TrainerOptions().batch)->value_name("N"),
      "samples per step, over all ranks");
  add("repeats", number(&repeats)->default_value(repeats)->value_name("N"),
      "runs of every strategy on every number of ranks; each round runs all of them once");
  add("steps", number(&steps)->default_value(steps)->value_name("N"),
      fmt::format("timed steps in each run; {} untimed steps come first", uncounted_steps).c_str());
  add("mpiexec", po::value(&launcher_text_)->value_name("CMD"),
      fmt::format("program that starts ranks, with its options, e.g. \"srun --cpu-bind=cores\" (default {})",
                  cli::launcher)
          .c_str());
  add("hostfile", po::value(&hostfile)->value_name("FILE"), "file with the hosts to start ranks on, one per line");
  add("out", po::value(&out)->value_name("FILE"),
      "write the results to FILE as JSON after every run; runs that are already in FILE are not repeated");
  add("csv", po::value(&csv)->value_name("FILE"), "write the results to FILE as CSV");
  add("slurm", po::bool_switch(&slurm),
      "do the runs as jobs of Slurm: write and submit an array of jobs for each number of ranks, with a job for each "
      "strategy; --collect gathers the results");
  add("dry-run", po::bool_switch(&dry_run), "with --slurm: print scripts and commands, and submit nothing");
  add("resubmit", po::bool_switch(&resubmit),
      "with --slurm: submit only what has failed or is missing, and is in no queue");
  add("collect", po::bool_switch(&collect),
      "gather the results of the jobs of --slurm into --out; the other options must be the same");
  add("ranks-per-node", number(&ranks_per_node)->value_name("N"),
      "with --slurm: ranks of a node; default: Slurm decides");
  add("sbatch", po::value(&sbatch_text_)->value_name("OPTIONS"),
      "with --slurm: more options of sbatch, e.g. \"--partition=gpu --time=30\"");
  add("machine", po::value(&machine)->value_name("FILE"),
      "machine file (TOML); adds predicted times to the measured ones; measured kernel times are read from FILE.times "
      "if that exists");
  add("data", po::value(&train.trainer.data)->default_value("synthetic")->value_name("NAME"),
      "data set; see train --help");
}

void ScaleOptions::check(const Program& program, const CommandLine& line) {
  arguments = line.passed_on;
  arguments.insert(arguments.end(), {"--data", train.trainer.data});
  if (!machine.empty()) arguments.insert(arguments.end(), {"--machine", machine});
  std::istringstream in(sbatch_text_);
  for (std::string word; in >> word;) sbatch.push_back(word);
  check_slurm(*this);
  check_numbers(*this);
  parse_train(*this, program, line.words.front());
  launcher = launcher_words(launcher_text_, hostfile, by_slurm());
}

std::vector<RankCase> scale_cases(const ScaleOptions& o, std::vector<std::string>& notes) {
  std::vector<RankCase> cases;
  std::vector<std::string> unfit;
  bool fixed = false;
  for (const auto& candidate : rank_patterns(o.strategies, o.grids, o.train)) {
    const auto before = cases.size();
    for (const int ranks : o.ranks)
      if (auto fitting = on_ranks(candidate, ranks, o.train)) cases.push_back(std::move(*fitting));
    for (std::size_t i = 0; i < before; ++i)
      if (cases.size() > before && cases[i].name == candidate.name())
        fail("the strategy {} is named twice", candidate.name());
    if (cases.size() == before)
      unfit.push_back(fmt::format("{} fits none of --ranks {}", candidate.name(), fmt::join(o.ranks, " ")));
    fixed = fixed || (candidate.fixed() && cases.size() > before && cases[before].ranks > 1);
  }
  if (cases.empty()) fail("{}; add the number of ranks of its grid", fmt::join(unfit, "; "));
  notes.insert(notes.end(), unfit.begin(), unfit.end());
  const auto without =
      o.train.declared ? std::vector<std::string>{"--strategy", std::string(no_strategy)} : std::vector<std::string>{};
  if (fixed && o.ranks.front() == 1) cases.insert(cases.begin(), {serial_program, 1, without, {}});
  return cases;
}

}  // namespace partita::cli
