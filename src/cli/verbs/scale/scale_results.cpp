#include "src/cli/verbs/scale/scale_results.hpp"

#include "partita/base/error.hpp"
#include "src/cli/files/json.hpp"
#include "src/cli/files/text_file.hpp"

#include <algorithm>
#include <cmath>

namespace partita::cli {

namespace {

/// The quantile `at` (0 to 1) of the values, interpolated linearly.
double quantile(std::vector<double> values, double at) {
  std::sort(values.begin(), values.end());
  const double place = at * static_cast<double>(values.size() - 1);
  const auto low = static_cast<std::size_t>(place), high = std::min(low + 1, values.size() - 1);
  return values[low] + (place - static_cast<double>(low)) * (values[high] - values[low]);
}

Json or_null(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

Json to_json(const ScaleResults& results, const ScaleRun& run) {
  Json json{{"strategy", run.strategy}, {"fingerprint", run.fingerprint}, {"ranks", run.ranks}, {"batch", run.batch}};
  const bool measured = !run.repeats.empty();
  json["seconds"] = measured ? Json(run.seconds()) : Json();
  json["spread"] = measured ? Json(run.spread()) : Json();
  json["repeats"] = run.repeats;
  json["images_per_second"] = measured ? Json(run.images_per_second()) : Json();
  json["speed_up"] = measured ? Json(results.speed_up(run)) : Json();
  json["efficiency"] = measured ? Json(results.efficiency(run)) : Json();
  json["against_serial"] = measured ? or_null(results.against_serial(run)) : Json();
  json["predicted"] = or_null(run.predicted);
  json["status"] = run.status;
  if (!run.message.empty()) json["message"] = run.message;
  return json;
}

ScaleRun read_run(const Json& json) {
  ScaleRun run{.strategy = json.at("strategy"),
               .fingerprint = json.at("fingerprint"),
               .ranks = json.at("ranks"),
               .batch = json.at("batch"),
               .repeats = json.at("repeats"),
               .predicted = std::nullopt,
               .status = json.at("status"),
               .message = json.value("message", "")};
  if (!json.at("predicted").is_null()) run.predicted = json.at("predicted").get<double>();
  const bool sound = run.ranks >= 1 && run.batch >= 1 &&
                     std::all_of(run.repeats.begin(), run.repeats.end(), [](double seconds) { return seconds > 0; });
  if (!sound) throw std::invalid_argument(fmt::format("the run of '{}' has impossible numbers", run.strategy));
  return run;
}

std::string or_empty(const std::optional<double>& value) { return value ? fmt::format("{}", *value) : ""; }

/// A field in a line of CSV, quoted if necessary.
std::string field(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

/// The first line of a text.
std::string one_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

double median(std::vector<double> values) { return quantile(std::move(values), 0.5); }

double ScaleRun::seconds() const { return median(repeats); }
double ScaleRun::spread() const { return (quantile(repeats, 0.75) - quantile(repeats, 0.25)) / seconds(); }

ScaleRun& ScaleResults::run(const ScaleRun& wanted) {
  const auto found = std::find_if(runs.begin(), runs.end(), [&](const ScaleRun& run) {
    return run.strategy == wanted.strategy && run.ranks == wanted.ranks;
  });
  if (found != runs.end()) return *found;
  auto place = wanted.strategy == serial_program ? runs.begin() : runs.end();
  for (auto at = runs.begin(); at != runs.end(); ++at)
    if (at->strategy == wanted.strategy && (place == runs.end() || at->ranks < wanted.ranks))
      place = at->ranks < wanted.ranks ? at + 1 : at;
  return *runs.insert(place, wanted);
}

const ScaleRun& ScaleResults::base(const ScaleRun& run) const {
  const ScaleRun *fewest = &run, *serial = nullptr;
  bool alone = true;
  for (const auto& other : runs) {
    if (other.repeats.empty()) continue;
    if (other.strategy == serial_program) serial = &other;
    if (other.strategy != run.strategy) continue;
    alone = alone && other.ranks == run.ranks;
    if (other.ranks < fewest->ranks) fewest = &other;
  }
  return alone && serial != nullptr ? *serial : *fewest;
}

double ScaleResults::speed_up(const ScaleRun& run) const {
  return run.images_per_second() / base(run).images_per_second();
}

double ScaleResults::efficiency(const ScaleRun& run) const { return speed_up(run) * base(run).ranks / run.ranks; }

std::optional<double> ScaleResults::against_serial(const ScaleRun& run) const {
  double best = 0;
  for (const auto& other : runs)
    if (other.ranks == 1 && !other.repeats.empty()) best = std::max(best, other.images_per_second());
  if (best == 0) return std::nullopt;
  return run.images_per_second() / (best * run.ranks);
}

std::string ScaleResults::json() const {
  Json json{{"subject", "scale"},
            {"model", model},
            {"scaling", weak ? "weak" : "strong"},
            {"batch", batch},
            {"steps", steps},
            {"dtype", dtype},
            {"arguments", arguments},
            {"conditions",
             {{"processor", conditions.processor},
              {"cores", conditions.cores},
              {"threads", threads},
              {"repeats", repeats},
              {"mpi", conditions.mpi},
              {"launcher", launcher},
              {"date", conditions.date}}},
            {"runs", Json::array()}};
  for (const auto& run : runs) json["runs"].push_back(to_json(*this, run));
  return print_json(json);
}

ScaleResults ScaleResults::load(const char* option, const std::string& path) {
  const std::string text = read_text(option, path);
  try {
    const Json json = Json::parse(text);
    if (json.at("subject") != "scale") throw std::invalid_argument("its subject is not scale");
    const Json& c = json.at("conditions");
    ScaleResults results{.model = json.at("model"),
                         .weak = json.at("scaling") == "weak",
                         .batch = json.at("batch"),
                         .steps = json.at("steps"),
                         .dtype = json.at("dtype"),
                         .arguments = json.at("arguments"),
                         .launcher = c.at("launcher"),
                         .conditions = {c.at("processor"), c.at("cores"), c.at("mpi"), c.at("date")},
                         .threads = c.at("threads"),
                         .repeats = c.at("repeats"),
                         .runs = {}};
    for (const auto& run : json.at("runs")) results.runs.push_back(read_run(run));
    return results;
  } catch (const std::exception& error) {  // from the parser, or for a value of a wrong type
    fail("{} {}: it is not a file that scale wrote ({}); remove it or name another file", option, path,
         one_line(error.what()));
  }
}

std::string ScaleResults::difference(const ScaleResults& here) const {
  const auto facts = [](const ScaleResults& r) {
    return std::vector<std::pair<const char*, std::string>>{{"model", r.model},
                                                            {"scaling", r.weak ? "weak" : "strong"},
                                                            {"batch", std::to_string(r.batch)},
                                                            {"number of steps", std::to_string(r.steps)},
                                                            {"dtype", r.dtype},
                                                            {"number of threads", std::to_string(r.threads)},
                                                            {"list of other options", r.arguments},
                                                            {"launcher", r.launcher},
                                                            {"processor", r.conditions.processor},
                                                            {"number of cores", std::to_string(r.conditions.cores)},
                                                            {"MPI", r.conditions.mpi}};
  };
  const auto there = facts(*this), mine = facts(here);
  for (std::size_t i = 0; i < there.size(); ++i)
    if (there[i].second != mine[i].second)
      return fmt::format("its {} is '{}', here '{}'", there[i].first, there[i].second, mine[i].second);
  for (const auto& run : runs)
    for (const auto& wanted : here.runs)
      if (run.strategy == wanted.strategy && run.ranks == wanted.ranks && run.fingerprint != wanted.fingerprint)
        return fmt::format("its strategy '{}' on {} ranks was different", run.strategy, run.ranks);
  return "";
}

std::string ScaleResults::csv() const {
  std::string text =
      "strategy,ranks,batch,seconds,spread,repeats,images_per_second,speed_up,efficiency,against_serial,"
      "predicted,error,status\n";
  for (const auto& run : runs) {
    text += fmt::format("{},{},{},", field(run.strategy), run.ranks, run.batch);
    std::string repeats_text;
    for (const double seconds : run.repeats)
      repeats_text += fmt::format("{}{}", repeats_text.empty() ? "" : " ", seconds);
    if (run.repeats.empty())
      text += ",,,,,,,";
    else
      text += fmt::format("{},{},{},{},{},{},{},", run.seconds(), run.spread(), repeats_text, run.images_per_second(),
                          speed_up(run), efficiency(run), or_empty(against_serial(run)));
    text += or_empty(run.predicted);
    text += run.predicted && !run.repeats.empty() ? fmt::format(",{}", *run.predicted / run.seconds() - 1) : ",";
    text += fmt::format(",{}\n", run.status);
  }
  return text;
}

std::string ScaleResults::table() const {
  std::size_t width = 8;
  for (const auto& run : runs) width = std::max(width, run.strategy.size());
  std::string text = fmt::format("{:<{}} {:>5} {:>6} {:>10} {:>7} {:>9} {:>8} {:>10} {:>9} {:>10} {:>7}\n", "strategy",
                                 width, "ranks", "batch", "ms/step", "spread", "images/s", "speed-up", "efficiency",
                                 "vs serial", "predicted", "error");
  for (const auto& run : runs) {
    text += fmt::format("{:<{}} {:>5} {:>6} ", run.strategy, width, run.ranks, run.batch);
    if (!run.repeats.empty()) {
      const std::string ms = run.predicted ? fmt::format("{:.2f}", 1e3 * *run.predicted) : "-";
      const std::string error =
          run.predicted ? fmt::format("{:+.1f}%", 100 * (*run.predicted / run.seconds() - 1)) : "-";
      const auto best = against_serial(run);
      text += fmt::format("{:>10.2f} {:>6.1f}% {:>9.0f} {:>8.2f} {:>9.1f}% {:>9} {:>10} {:>7}", 1e3 * run.seconds(),
                          100 * run.spread(), run.images_per_second(), speed_up(run), 100 * efficiency(run),
                          best ? fmt::format("{:.1f}%", 100 * *best) : "-", ms, error);
    }
    if (run.status != 0)
      text += fmt::format("{}failed with status {}: {}", run.repeats.empty() ? "" : "  ", run.status,
                          one_line(run.message));
    text += "\n";
  }
  return text;
}

}  // namespace partita::cli
