#include "partita/base/error.hpp"
#include "partita/strategies/schedule/validate.hpp"
#include "src/cli/files/json.hpp"
#include "src/cli/files/text_file.hpp"
#include "src/cli/options/command.hpp"
#include "src/cli/options/command_line.hpp"
#include "src/cli/options/number_option.hpp"
#include "src/cli/output/schedule_report.hpp"

#include <array>
#include <charconv>
#include <cmath>

namespace partita::cli {

namespace {

namespace po = boost::program_options;

struct ScheduleOptions {
  ScheduleRequest request;
  std::string kind{name(ScheduleKind::one_f_one_b)}, times = "1,1,1,0", csv_in, csv_out, svg, json;
  bool draw = true, list_kinds = false, json_without_file = false;
};

void add_schedule_options(po::options_description& all, ScheduleOptions& o) {
  auto& r = o.request;
  std::string kinds;
  for (const ScheduleKind kind : pipeline_kinds()) kinds.append(kinds.empty() ? "" : ", ").append(name(kind));
  auto add = all.add_options();
  add("kind", po::value(&o.kind)->default_value(o.kind)->value_name("NAME"), kinds.c_str());
  add("kinds", po::bool_switch(&o.list_kinds), "list the kinds of schedules and the conditions for each");
  add("stages", number(&r.stages)->default_value(4)->value_name("P"), "number of stages");
  add("microbatches", number(&r.microbatches)->default_value(8)->value_name("M"), "microbatches per step");
  add("groups", number(&r.groups_per_stage)->value_name("V"),
      "groups of layers per stage; the default depends on the kind");
  add("times", po::value(&o.times)->default_value(o.times)->value_name("F,B,W,COMM"),
      "times of one stage and microbatch, in any unit: forward, backward of the inputs, backward of the weights, and "
      "one transfer between stages");
  add("memory-limit", number(&r.memory_limit)->value_name("A"),
      "memory limit of a stage, in activations of one microbatch; zb-1p, zb-2p and zb-v are generated to fit it, other "
      "kinds are refused if they exceed it");
  add("filter-memory", number(&r.filter_memory)->value_name("A"),
      "the part of these activations that is kept from the backward of the inputs to the backward of the weights; "
      "default: 1 for zb-1p and zb-2p, which are generated to fit in memory, else 0");
  add("csv-in", po::value(&o.csv_in)->value_name("FILE"),
      "read the schedule from FILE, in the CSV format of PyTorch's pipelining");
  add("csv-out", po::value(&o.csv_out)->value_name("FILE"), "write the schedule to FILE in the same format");
  add("svg", po::value(&o.svg)->value_name("FILE"), "draw the schedule as SVG");
  add("json", po::value(&o.json)->implicit_value("", "")->value_name("FILE"),
      "write the results to FILE as JSON; /dev/stdout prints them instead of the text");
  add("no-draw", po::bool_switch()->notifier([&o](bool off) { o.draw = !off; }), "do not draw the schedule as text");
}

/// Parses four times such as "18.5,18,9.3,0.6".
void parse_times(const std::string& text, ScheduleRequest& request) {
  std::array<double, 4> values{};
  const char *at = text.data(), *const end = at + text.size();
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto [next, error] = std::from_chars(at, end, values[i]);
    const bool more = i + 1 < values.size();
    if (error != std::errc{} || (more ? next == end || *next != ',' : next != end))
      fail("--times {}: write four numbers, F,B,W,COMM, e.g. 18.522,18.086,9.337,0.601", text);
    if (constexpr double most = 1e100; std::isfinite(values[i]) && values[i] > most)
      fail("--times {}: a time may be at most {:g}", text, most);
    at = next + 1;
  }
  request.times.forward = values[0];
  request.times.backward_data = values[1];
  request.times.backward_filter = values[2];
  request.transfer = values[3];
}

/// Throws Error if options and a file both say what the schedule is.
void check_csv(const ScheduleOptions& o, const CommandLine& line) {
  for (const char* option : {"kind", "stages", "microbatches", "groups"})
    if (!o.csv_in.empty() && line.gives(option))
      fail("--{} cannot be combined with --csv-in, because the file determines it; leave one of them out", option);
}

ScheduleReport prove(const Schedule& schedule, const ScheduleOptions& o) {
  const GroupGraph graph(schedule.groups());
  check_schedule(schedule, graph, true, equal_memory(schedule, o.request.filter_memory), o.request.memory_limit);
  return examine(schedule, graph, o.request);
}

Json to_json(const ScheduleReport& report) {
  const auto& [schedule, times, transfer, simulation, peaks] = report;
  Json json{{"kind", schedule.kind},
            {"stages", schedule.stages.size()},
            {"groups", schedule.groups()},
            {"replicas", schedule.replicas()},
            {"microbatches", schedule.microbatches()},
            {"times", {times.forward, times.backward_data, times.backward_filter, transfer}},
            {"makespan", simulation.makespan},
            {"cost", simulation.cost},
            {"bubble_rate", simulation.bubble_rate()},
            {"per_stage", Json::array()},
            {"critical_path", Json::array()}};
  for (std::size_t stage = 0; stage < schedule.stages.size(); ++stage)
    json["per_stage"].push_back({{"stage", stage},
                                 {"actions", schedule.stages[stage].size()},
                                 {"busy", simulation.busy[stage]},
                                 {"idle", simulation.idle(static_cast<int>(stage))},
                                 {"peak_activations", peaks[stage]}});
  for (const auto& [stage, position] : simulation.critical)
    json["critical_path"].push_back(schedule.stages[stage][position].print());
  return json;
}

std::string print_kinds() {
  std::string text;
  for (const auto& [kind, what, constraints, generate] : schedule_generators())
    text +=
        fmt::format("{:<12} {}\n             groups per stage: {}{}; p stages and microbatches: {}\n", name(kind), what,
                    default_groups_per_stage(kind), any_groups(kind) ? ", or any other number" : "", constraints);
  return text;
}

class ScheduleCommand final : public Command {
 public:
  explicit ScheduleCommand(const Program&) {}
  void add_options(po::options_description& all) override { add_schedule_options(all, options_); }
  void check(const CommandLine& line) override {
    auto& o = options_;
    if (o.list_kinds) return;
    o.request.kind = parse_schedule_kind(o.kind);
    const bool fits_memory = o.request.kind == ScheduleKind::zb_1p || o.request.kind == ScheduleKind::zb_2p;
    if (!line.gives("filter-memory") && fits_memory) o.request.filter_memory = kept_until_backward_filter;
    parse_times(o.times, o.request);
    check_numbers(o.request);
    check_csv(o, line);
    o.json_without_file = line.gives("json") && o.json.empty();
    if (o.json_without_file) o.json = standard_output;
  }
  int run(Communicator*) const override {
    const auto& o = options_;
    if (o.list_kinds) {
      fmt::print("{}", print_kinds());
      return 0;
    }
    check_writable({{"--csv-out", o.csv_out}, {"--svg", o.svg}, {"--json", o.json, FileKind::json}});
    const ScheduleReport report =
        prove(o.csv_in.empty() ? generate(o.request) : parse_csv(read_text("--csv-in", o.csv_in), o.csv_in), o);
    if (!o.csv_out.empty()) write_text("--csv-out", o.csv_out, print_csv(report.schedule));
    if (!o.svg.empty()) write_text("--svg", o.svg, draw(report));
    if (o.json_without_file)
      fmt::print(stderr, "note: --json without a file prints to standard output; --json {} says so\n", standard_output);
    if (o.json != standard_output) fmt::print("{}", print(report, o.draw ? 120 : 0));
    if (!o.json.empty()) write_text("--json", o.json, print_json(to_json(report)));
    return 0;
  }

 private:
  ScheduleOptions options_;
};

}  // namespace

extern const VerbEntry schedule_verb{"schedule",
                                     "generates or reads a pipeline schedule, then validates, simulates and draws it",
                                     "{0} schedule --kind zb-h1 --stages 4 --microbatches 8", make<ScheduleCommand>};

}  // namespace partita::cli
