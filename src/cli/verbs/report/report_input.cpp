#include "src/cli/verbs/report/report_input.hpp"

#include "partita/base/error.hpp"
#include "src/cli/support/text_file.hpp"

#include <vector>

namespace partita::cli {

namespace {

enum class Kind { number, text, object, list };

struct Field {
  const char* name;
  Kind kind;
  bool needed = true;  ///< if false, the field may be missing or null
};

bool is(const Json& value, Kind kind) {
  switch (kind) {
    case Kind::number: return value.is_number();
    case Kind::text: return value.is_string();
    case Kind::object: return value.is_object();
    case Kind::list: return value.is_array();
  }
  return false;
}

const char* print(Kind kind) {
  switch (kind) {
    case Kind::number: return "a number";
    case Kind::text: return "a text";
    case Kind::object: return "an object";
    case Kind::list: return "a list";
  }
  return "";
}

/// Checks one object of the file. `place` is its place in the file for error messages, e.g. "strategies[1]".
void check(const std::string& path, const std::string& place, const Json& json, const std::vector<Field>& fields) {
  const std::string dot = place.empty() ? "" : place + ".";
  if (!json.is_object()) fail("{}: {} is not a JSON object", path, place.empty() ? "its content" : place);
  for (const auto& [name, kind, needed] : fields) {
    const bool there = json.contains(name) && !json[name].is_null();
    if (!there && needed) fail("{}: the field {}{} is missing", path, dot, name);
    if (there && !is(json[name], kind)) fail("{}: {}{} is not {}", path, dot, name, print(kind));
  }
}

/// Checks every object in a list.
void check_all(const std::string& path, const std::string& list, const Json& json, const std::vector<Field>& fields) {
  for (std::size_t i = 0; i < json.size(); ++i) check(path, fmt::format("{}[{}]", list, i), json[i], fields);
}

void check_numbers(const std::string& path, const std::string& list, const Json& json) {
  for (std::size_t i = 0; i < json.size(); ++i)
    if (!json[i].is_number() && !json[i].is_null()) fail("{}: {}[{}] is not a number", path, list, i);
}

void check_sums(const std::string& path, const std::string& place, const Json& json) {
  for (const auto& [name, value] : json.items())
    if (!value.is_number()) fail("{}: {}.{} is not a number", path, place, name);
}

const std::vector<Field> strategy_fields{{"name", Kind::text},
                                         {"ranks", Kind::number, false},
                                         {"seconds", Kind::number, false},
                                         {"parts", Kind::object, false},
                                         {"images_per_second", Kind::number, false},
                                         {"efficiency", Kind::number, false},
                                         {"bubble_rate", Kind::number, false},
                                         {"messages", Kind::number, false},
                                         {"bytes", Kind::number, false},
                                         {"memory", Kind::object, false},
                                         {"measured", Kind::object, false},
                                         {"message", Kind::text, false},
                                         {"remedies", Kind::list, false},
                                         {"layers", Kind::list, false},
                                         {"timeline", Kind::list, false}};

const std::vector<Field> layer_fields{{"name", Kind::text},
                                      {"kind", Kind::text, false},
                                      {"stage", Kind::number, false},
                                      {"forward", Kind::number, false},
                                      {"backward_data", Kind::number, false},
                                      {"backward_filter", Kind::number, false},
                                      {"compute", Kind::number, false},
                                      {"communication", Kind::number, false},
                                      {"messages", Kind::number, false},
                                      {"bytes", Kind::number, false},
                                      {"memory", Kind::number, false}};

void check_strategy(const std::string& path, const std::string& place, const Json& json) {
  check(path, place, json, strategy_fields);
  if (json.value("parts", Json()).is_object()) check_sums(path, place + ".parts", json["parts"]);
  if (json.value("memory", Json()).is_object()) {
    const Json& memory = json["memory"];
    check(path, place + ".memory", memory,
          {{"predicted", Kind::number}, {"limit", Kind::number, false}, {"classes", Kind::object, false}});
    if (memory.value("classes", Json()).is_object()) check_sums(path, place + ".memory.classes", memory["classes"]);
  }
  if (json.value("measured", Json()).is_object())
    check(path, place + ".measured", json["measured"],
          {{"seconds", Kind::number, false}, {"spread", Kind::number, false}, {"memory", Kind::number, false}});
  if (json.value("remedies", Json()).is_array())
    check_all(path, place + ".remedies", json["remedies"],
              {{"change", Kind::text}, {"memory", Kind::number}, {"missing", Kind::number}});
  if (json.value("layers", Json()).is_array()) check_all(path, place + ".layers", json["layers"], layer_fields);
  if (!json.value("timeline", Json()).is_array()) return;
  for (std::size_t stage = 0; stage < json["timeline"].size(); ++stage) {
    const std::string list = fmt::format("{}.timeline[{}]", place, stage);
    if (!json["timeline"][stage].is_array()) fail("{}: {} is not a list", path, list);
    check_all(path, list, json["timeline"][stage],
              {{"action", Kind::text}, {"start", Kind::number}, {"end", Kind::number}});
  }
}

void check_texts(const std::string& path, const std::string& list, const Json& json) {
  for (std::size_t i = 0; i < json.size(); ++i)
    if (!json[i].is_string()) fail("{}: {}[{}] is not a text", path, list, i);
}

void check_compare(const std::string& path, const Json& json) {
  check(path, "", json, {{"strategies", Kind::list}, {"warnings", Kind::list, false}});
  if (json.value("warnings", Json()).is_array()) check_texts(path, "warnings", json["warnings"]);
  for (std::size_t i = 0; i < json["strategies"].size(); ++i)
    check_strategy(path, fmt::format("strategies[{}]", i), json["strategies"][i]);
}

void check_scale(const std::string& path, const Json& json) {
  check(path, "", json, {{"runs", Kind::list}});
  check_all(path, "runs", json["runs"],
            {{"strategy", Kind::text},
             {"ranks", Kind::number},
             {"batch", Kind::number},
             {"seconds", Kind::number, false},
             {"spread", Kind::number, false},
             {"repeats", Kind::list},
             {"images_per_second", Kind::number, false},
             {"speed_up", Kind::number, false},
             {"efficiency", Kind::number, false},
             {"predicted", Kind::number, false},
             {"status", Kind::number, false},
             {"message", Kind::text, false}});
}

void check_curves(const std::string& path, const Json& json) {
  check(path, "", json, {{"points", Kind::list}, {"notes", Kind::list, false}, {"fastest", Kind::list, false}});
  if (json.value("notes", Json()).is_array()) check_texts(path, "notes", json["notes"]);
  check_all(path, "points", json["points"],
            {{"strategy", Kind::text},
             {"ranks", Kind::number},
             {"batch", Kind::number, false},
             {"seconds", Kind::number},
             {"efficiency", Kind::number, false},
             {"images_per_second", Kind::number, false},
             {"parts", Kind::object, false},
             {"hidden", Kind::number, false},
             {"memory", Kind::number, false}});
  for (std::size_t i = 0; i < json["points"].size(); ++i)
    if (const Json& point = json["points"][i]; point.value("parts", Json()).is_object())
      check_sums(path, fmt::format("points[{}].parts", i), point["parts"]);
  if (json.value("fastest", Json()).is_array())
    check_all(path, "fastest", json["fastest"], {{"ranks", Kind::number}, {"strategy", Kind::text}});
}

/// Checks a confusion matrix: as many columns as rows.
void check_confusion(const std::string& path, const Json& json) {
  check(path, "confusion", json, {{"pass", Kind::text}, {"counts", Kind::list}});
  const Json& rows = json["counts"];
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::string row = fmt::format("confusion.counts[{}]", i);
    if (!rows[i].is_array() || rows[i].size() != rows.size())
      fail("{}: {} is not a list of {} numbers", path, row, rows.size());
    check_numbers(path, row, rows[i]);
  }
}

/// Checks the settings of a run that the page shows.
void check_settings(const std::string& path, const Json& json) {
  check(path, "", json,
        {{"version", Kind::text, false},
         {"backend", Kind::text, false},
         {"schedule", Kind::text, false},
         {"microbatches", Kind::number, false},
         {"first_step", Kind::number, false},
         {"optimizer", Kind::object, false},
         {"best", Kind::object, false}});
  if (json.value("optimizer", Json()).is_object())
    check(path, "optimizer", json["optimizer"],
          {{"text", Kind::text, false},
           {"rate", Kind::number, false},
           {"warm_up", Kind::number, false},
           {"decay", Kind::text, false}});
  if (json.value("best", Json()).is_object())
    check(path, "best", json["best"],
          {{"epoch", Kind::number}, {"loss", Kind::number, false}, {"file", Kind::text, false}});
}

void check_train(const std::string& path, const Json& json) {
  const std::vector<const char*> curves{"losses", "accuracies", "rates", "step_seconds"};
  check_settings(path, json);
  for (const char* list : curves) check(path, "", json, {{list, Kind::list, false}});
  check(path, "", json,
        {{"epochs", Kind::list, false},
         {"validation", Kind::list, false},
         {"test", Kind::object, false},
         {"confusion", Kind::object, false}});
  for (const char* list : curves)
    if (json.value(list, Json()).is_array()) check_numbers(path, list, json[list]);
  for (const char* what : {"messages", "bytes", "memory"})
    for (const char* how : {"predicted_", "measured_"})
      check(path, "", json, {{(std::string(how) + what).c_str(), Kind::number, false}});
  const std::vector<Field> pass{{"epoch", Kind::number, false},   {"step", Kind::number, false},
                                {"steps", Kind::number, false},   {"samples", Kind::number, false},
                                {"loss", Kind::number, false},    {"accuracy", Kind::number, false},
                                {"top5", Kind::number, false},    {"mean_iou", Kind::number, false},
                                {"seconds", Kind::number, false}, {"images_per_second", Kind::number, false}};
  for (const char* list : {"epochs", "validation"})
    if (json.value(list, Json()).is_array()) check_all(path, list, json[list], pass);
  if (json.value("test", Json()).is_object()) check(path, "test", json["test"], pass);
  if (json.value("confusion", Json()).is_object()) check_confusion(path, json["confusion"]);
}

}  // namespace

ReportInput read_report_input(const std::string& path) {
  const std::string text = read_text("report", path);
  if (is_too_deep(text)) fail("{}: its lists and objects are nested deeper than {} levels", path, deepest_json);
  Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) fail("{}: it is not JSON, or it was cut off", path);
  check(path, "", json, {{"subject", Kind::text}, {"model", Kind::text, false}, {"conditions", Kind::object, false}});
  const std::string subject = json["subject"];
  if (subject == "compare")
    check_compare(path, json);
  else if (subject == "curves")
    check_curves(path, json);
  else if (subject == "scale")
    check_scale(path, json);
  else if (subject == "train" || subject == "evaluate")
    check_train(path, json);
  else
    fail("{}: its subject is '{}'; a report shows the JSON files that train, evaluate, scale and compare write", path,
         subject);
  return {path, subject, std::move(json)};
}

}  // namespace partita::cli
