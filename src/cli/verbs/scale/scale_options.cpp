#include "src/cli/verbs/scale/scale_options.hpp"

#include "partita/base/error.hpp"
#include "src/cli/support/child_process.hpp"
#include "src/cli/support/command_line.hpp"
#include "src/cli/support/text_file.hpp"
#include "src/cli/verbs/scale/scale_results.hpp"
#include "src/cli/version.hpp"

#include <fmt/ranges.h>
#include <netdb.h>

#include <algorithm>
#include <sstream>

namespace partita::cli {

namespace {

namespace po = boost::program_options;

constexpr const char* wildcard = "{}";
constexpr const char* samples_shared = "*: N@data";  // what ranks do of whose grid nothing else is known

struct ScaleTexts {  // options that are parsed further after reading
  std::string launcher, hostfile;
};

po::options_description describe(ScaleOptions& o, ScaleTexts& texts, const std::string& program) {
  po::options_description all("Usage: " + program + " scale --ranks P... [options] [options of train]");
  auto add = all.add_options();
  add("help,h", "this text");
  add("ranks", po::value(&o.ranks)->multitoken()->value_name("P..."), "numbers of ranks, ascending, between blanks");
  add("strategy", po::value(&o.strategies)->multitoken()->composing()->value_name("FILE..."),
      "strategy files, each on the ranks that its grid has; without one the ranks share the samples");
  add("grid", po::value(&o.grids)->multitoken()->composing()->value_name("AXES..."),
      "grids for any number of ranks, {} standing for those that are left, e.g. \"data={} y=2\"");
  add("weak", po::bool_switch(&o.weak), "weak scaling: --batch is of each rank");
  add("batch", po::value(&o.batch)->default_value(TrainerOptions().batch)->value_name("N"), "samples a step");
  add("repeats", po::value(&o.repeats)->default_value(o.repeats)->value_name("N"),
      "runs of every strategy on every number of ranks, in turns");
  add("steps", po::value(&o.steps)->default_value(o.steps)->value_name("N"),
      "of a run that count; a few before them do not");
  add("mpiexec", po::value(&texts.launcher)->value_name("CMD"),
      fmt::format("what starts ranks, with its options, e.g. \"srun --cpu-bind=cores\" (default {})", launcher)
          .c_str());
  add("hostfile", po::value(&texts.hostfile)->value_name("FILE"), "hosts that the ranks are started on");
  add("out", po::value(&o.out)->value_name("FILE"),
      "write results as JSON after every run; what is there already is not run again");
  add("csv", po::value(&o.csv)->value_name("FILE"), "write them as CSV");
  add("machine", po::value(&o.machine)->value_name("FILE"),
      "machine file (TOML), and beside it times of kernels (FILE.times): predicted times beside the measured ones");
  add("data", po::value(&o.train.data)->default_value("synthetic")->value_name("NAME"), "as of train");
  return all;
}

void check_numbers(const ScaleOptions& o) {
  constexpr Index most = 1 << 20;
  if (o.ranks.empty()) fail("scale needs the numbers of ranks, e.g. --ranks 1 2 4");
  for (std::size_t i = 0; i < o.ranks.size(); ++i) {
    if (o.ranks[i] < 1) fail("--ranks {}: a run has 1 rank or more", o.ranks[i]);
    if (i > 0 && o.ranks[i] <= o.ranks[i - 1])
      fail("--ranks {}: write each number once, in ascending order", fmt::join(o.ranks, " "));
  }
  for (const auto& [option, value] :
       {std::pair<const char*, Index>("--repeats", o.repeats), {"--steps", o.steps}, {"--batch", o.batch}})
    if (value < 1 || value > most) fail("{} {}: it must be 1 to {}", option, value, most);
  check_writable({{"--out", o.out}, {"--csv", o.csv}});
  check_no_stream("--out", o.out);
}

/// Options of train that would change what a run is, or that scale sets itself.
void check_train(const Options& o) {
  for (const auto& [option, given] :
       {std::pair("--json", !o.json.empty()), std::pair("--trace", !o.trace.empty()), std::pair("--profile", o.profile),
        std::pair("--save", !o.save.empty()), std::pair("--load", !o.load.empty()),
        std::pair("--epochs", o.trainer.epochs != 1), std::pair("--no-test", !o.test)})
    if (given) fail("{}: a run of scale is a few steps that are only timed; leave it out", option);
}

/// Throws Error for a host that no name service knows: some launchers wait for ever for one. (What ssh alone knows by that name can be
/// given in a host file to --mpiexec.) A line is a host, perhaps with ":2" or more words behind it.
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
      fail("--hostfile {}, line {}: the host '{}' is unknown ({}); write a name or an address, one a line", path,
           number, host, gai_strerror(error));
  }
  if (hosts == 0) fail("--hostfile {}: it names no host; write a name or an address, one a line", path);
}

/// Its own words, or those of the MPI that was built against; that may be elsewhere where the program was installed.
std::vector<std::string> launcher_words(const ScaleTexts& texts) {
  std::vector<std::string> words;
  std::istringstream in(texts.launcher.empty() ? launcher : texts.launcher);
  for (std::string word; in >> word;) words.push_back(word);
  if (words.empty()) fail("--mpiexec \"{}\": it names no program", texts.launcher);
  if (texts.launcher.empty() && find_program(words[0]).empty()) words = {"mpiexec"};
  if (find_program(words[0]).empty()) {
    if (!texts.launcher.empty()) fail("--mpiexec \"{}\": there is no program {}", texts.launcher, words[0]);
    fail("there is no mpiexec, neither {} nor in PATH; name what starts ranks, e.g. --mpiexec srun", launcher);
  }
  if (!texts.hostfile.empty()) {
    check_hosts(texts.hostfile);
    words.insert(words.end(), {"--hostfile", texts.hostfile});
  }
  return words;
}

/// Reads as train would what is train's.
Options parse_train(const ScaleOptions& o, char* program, bool builtin) {
  std::vector<std::string> words{"train"};
  words.insert(words.end(), o.arguments.begin(), o.arguments.end());
  std::vector<char*> arguments{program};
  for (auto& word : words) arguments.push_back(word.data());
  std::string answer;
  auto options = parse_options(static_cast<int>(arguments.size()), arguments.data(), builtin, answer);
  require(options.has_value(), "help is scale's own");
  check_train(*options);
  options->trainer.batch = o.batch;
  return *options;
}

}  // namespace

std::optional<ScaleOptions> parse_scale_options(int argc, char** argv, bool builtin, std::string& answer) {
  ScaleOptions o;
  ScaleTexts texts;
  const auto all = describe(o, texts, program_name(argc, argv));
  po::variables_map values;
  try {
    using Style = po::command_line_style::style_t;
    const auto parsed = po::command_line_parser(argc - 1, argv + 1)
                            .options(all)
                            .style(Style::default_style & ~Style::allow_guessing)
                            .allow_unregistered()
                            .run();
    po::store(parsed, values);
    o.arguments = po::collect_unrecognized(parsed.options, po::include_positional);
    if (values.count("help") == 0) po::notify(values);
  } catch (const po::error& error) {
    fail("{}; --help lists the options", error.what());
  }
  if (values.count("help") != 0) {
    std::ostringstream text;
    text << all << "\nWhat is not listed here is given to every run: see train --help.\n";
    answer = text.str();
    return std::nullopt;
  }
  o.arguments.insert(o.arguments.end(), {"--data", o.train.data});
  if (!o.machine.empty()) o.arguments.insert(o.arguments.end(), {"--machine", o.machine});
  check_numbers(o);
  o.train = parse_train(o, argv[0], builtin);
  o.launcher = launcher_words(texts);
  return o;
}

namespace {

/// A strategy before it is known on how many ranks it runs.
struct Candidate {
  std::string file, grid;

  std::string name() const {
    if (file.empty()) return grid;
    return grid.empty() ? file : fmt::format("{} on {}", file, grid);
  }
  bool fixed() const { return grid.find(wildcard) == std::string::npos; }
};

std::vector<Candidate> candidates(const ScaleOptions& o) {
  if (o.strategies.empty() && o.grids.empty()) {
    if (!o.train.rules.empty())
      fail("--rule without --grid or --strategy: name the grid's axes, e.g. --grid \"data={{}}\"");
    return {{"", "data={}"}};
  }
  std::vector<Candidate> all;
  for (const auto& file : o.strategies.empty() ? std::vector<std::string>{""} : o.strategies)
    for (const auto& grid : o.grids.empty() ? std::vector<std::string>{""} : o.grids) all.push_back({file, grid});
  return all;
}

/// The pattern's grid for so many ranks, or "" if it has none.
std::string fill_in(const std::string& pattern, int ranks) {
  const auto at = pattern.find(wildcard);
  const auto with = [&](int extent) {
    return at == std::string::npos ? pattern : std::string(pattern).replace(at, 2, std::to_string(extent));
  };
  if (at != std::string::npos && pattern.find(wildcard, at + 1) != std::string::npos)
    fail("--grid \"{}\": one axis alone can take the ranks that are left", pattern);
  const int others = Grid::parse(with(1)).size();
  return ranks % others == 0 ? with(ranks / others) : "";
}

/// The candidate on so many ranks; nothing if it does not fit them.
std::optional<ScaleCase> on_ranks(const Candidate& candidate, int ranks, const Options& train) {
  ScaleCase made{.name = candidate.name(), .ranks = ranks, .arguments = {}, .strategy = {}};
  Options options = train;
  if (!candidate.file.empty()) {
    options.strategy = candidate.file;
    made.arguments = {"--strategy", candidate.file};
  }
  if (!candidate.grid.empty()) {
    options.grid = fill_in(candidate.grid, ranks);
    if (options.grid.empty()) return std::nullopt;
    made.arguments.insert(made.arguments.end(), {"--grid", options.grid});
  }
  if (candidate.file.empty() && options.rules.empty()) {
    const Grid grid = Grid::parse(options.grid);
    if (grid.axes() != 1 || grid.name(0) != "data")
      fail("--grid \"{}\" without --strategy or --rule: nothing says what its axes cut, e.g. --rule \"*: N@data H@y\"",
           candidate.grid);
    options.rules = {samples_shared};
    made.arguments.insert(made.arguments.end(), {"--rule", samples_shared});
  }
  made.strategy = make_strategy(options, ranks);
  note_renamed_keys(made.strategy);
  return made.strategy.ranks() == ranks ? std::optional(std::move(made)) : std::nullopt;
}

}  // namespace

std::vector<ScaleCase> scale_cases(const ScaleOptions& o, std::vector<std::string>& notes) {
  std::vector<ScaleCase> cases;
  bool fixed = false;
  for (const auto& candidate : candidates(o)) {
    const auto before = cases.size();
    for (const int ranks : o.ranks)
      if (auto fitting = on_ranks(candidate, ranks, o.train)) cases.push_back(std::move(*fitting));
    for (std::size_t i = 0; i < before; ++i)
      if (cases.size() > before && cases[i].name == candidate.name())
        fail("the strategy {} is named twice", candidate.name());
    if (cases.size() == before)
      notes.push_back(fmt::format("{} fits none of --ranks {}", candidate.name(), fmt::join(o.ranks, " ")));
    fixed = fixed || (candidate.fixed() && cases.size() > before && cases[before].ranks > 1);
  }
  if (cases.empty()) fail("{}; add the number of ranks that its grid has", fmt::join(notes, "; "));
  if (fixed && o.ranks.front() == 1) cases.insert(cases.begin(), {serial_program, 1, {}, {}});
  return cases;
}

}  // namespace partita::cli
