#include "src/cli/verbs/report/report_input.hpp"

#include "partita/base/error.hpp"
#include "src/cli/files/text_file.hpp"

#include <vector>

namespace partita::cli {

namespace {

enum class ValueKind { number, text, object, list };

struct Field {
  const char* name;
  ValueKind kind;
  bool needed = true;  ///< if false, the field may be missing or null
};

bool is(const Json& value, ValueKind kind) {
  switch (kind) {
    case ValueKind::number: return value.is_number();
    case ValueKind::text: return value.is_string();
    case ValueKind::object: return value.is_object();
    case ValueKind::list: return value.is_array();
  }
  return false;
}

const char* print(ValueKind kind) {
  switch (kind) {
    case ValueKind::number: return "a number";
    case ValueKind::text: return "a text";
    case ValueKind::object: return "an object";
    case ValueKind::list: return "a list";
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

const std::vector<Field> strategy_fields{{"name", ValueKind::text},
                                         {"ranks", ValueKind::number, false},
                                         {"seconds", ValueKind::number, false},
                                         {"parts", ValueKind::object, false},
                                         {"images_per_second", ValueKind::number, false},
                                         {"efficiency", ValueKind::number, false},
                                         {"bubble_rate", ValueKind::number, false},
                                         {"messages", ValueKind::number, false},
                                         {"bytes", ValueKind::number, false},
                                         {"memory", ValueKind::object, false},
                                         {"measured", ValueKind::object, false},
                                         {"message", ValueKind::text, false},
                                         {"remedies", ValueKind::list, false},
                                         {"layers", ValueKind::list, false},
                                         {"timeline", ValueKind::list, false}};

const std::vector<Field> layer_fields{{"name", ValueKind::text},
                                      {"kind", ValueKind::text, false},
                                      {"stage", ValueKind::number, false},
                                      {"forward", ValueKind::number, false},
                                      {"backward_data", ValueKind::number, false},
                                      {"backward_filter", ValueKind::number, false},
                                      {"compute", ValueKind::number, false},
                                      {"communication", ValueKind::number, false},
                                      {"messages", ValueKind::number, false},
                                      {"bytes", ValueKind::number, false},
                                      {"memory", ValueKind::number, false}};

void check_strategy(const std::string& path, const std::string& place, const Json& json) {
  check(path, place, json, strategy_fields);
  if (json.value("parts", Json()).is_object()) check_sums(path, place + ".parts", json["parts"]);
  if (json.value("memory", Json()).is_object()) {
    const Json& memory = json["memory"];
    check(
        path, place + ".memory", memory,
        {{"predicted", ValueKind::number}, {"limit", ValueKind::number, false}, {"classes", ValueKind::object, false}});
    if (memory.value("classes", Json()).is_object()) check_sums(path, place + ".memory.classes", memory["classes"]);
  }
  if (json.value("measured", Json()).is_object())
    check(path, place + ".measured", json["measured"],
          {{"seconds", ValueKind::number, false},
           {"spread", ValueKind::number, false},
           {"memory", ValueKind::number, false}});
  if (json.value("remedies", Json()).is_array())
    check_all(path, place + ".remedies", json["remedies"],
              {{"change", ValueKind::text}, {"memory", ValueKind::number}, {"missing", ValueKind::number}});
  if (json.value("layers", Json()).is_array()) check_all(path, place + ".layers", json["layers"], layer_fields);
  if (!json.value("timeline", Json()).is_array()) return;
  for (std::size_t stage = 0; stage < json["timeline"].size(); ++stage) {
    const std::string list = fmt::format("{}.timeline[{}]", place, stage);
    if (!json["timeline"][stage].is_array()) fail("{}: {} is not a list", path, list);
    check_all(path, list, json["timeline"][stage],
              {{"action", ValueKind::text}, {"start", ValueKind::number}, {"end", ValueKind::number}});
  }
}

void check_texts(const std::string& path, const std::string& list, const Json& json) {
  for (std::size_t i = 0; i < json.size(); ++i)
    if (!json[i].is_string()) fail("{}: {}[{}] is not a text", path, list, i);
}

void check_compare(const std::string& path, const Json& json) {
  check(path, "", json, {{"strategies", ValueKind::list}, {"warnings", ValueKind::list, false}});
  if (json.value("warnings", Json()).is_array()) check_texts(path, "warnings", json["warnings"]);
  for (std::size_t i = 0; i < json["strategies"].size(); ++i)
    check_strategy(path, fmt::format("strategies[{}]", i), json["strategies"][i]);
}

void check_scale(const std::string& path, const Json& json) {
  check(path, "", json, {{"runs", ValueKind::list}});
  check_all(path, "runs", json["runs"],
            {{"strategy", ValueKind::text},
             {"ranks", ValueKind::number},
             {"batch", ValueKind::number},
             {"seconds", ValueKind::number, false},
             {"spread", ValueKind::number, false},
             {"repeats", ValueKind::list},
             {"images_per_second", ValueKind::number, false},
             {"speed_up", ValueKind::number, false},
             {"efficiency", ValueKind::number, false},
             {"against_serial", ValueKind::number, false},
             {"predicted", ValueKind::number, false},
             {"status", ValueKind::number, false},
             {"message", ValueKind::text, false}});
}

void check_curves(const std::string& path, const Json& json) {
  check(path, "", json,
        {{"points", ValueKind::list}, {"notes", ValueKind::list, false}, {"fastest", ValueKind::list, false}});
  if (json.value("notes", Json()).is_array()) check_texts(path, "notes", json["notes"]);
  check_all(path, "points", json["points"],
            {{"strategy", ValueKind::text},
             {"ranks", ValueKind::number},
             {"batch", ValueKind::number, false},
             {"seconds", ValueKind::number},
             {"efficiency", ValueKind::number, false},
             {"images_per_second", ValueKind::number, false},
             {"parts", ValueKind::object, false},
             {"hidden", ValueKind::number, false},
             {"memory", ValueKind::number, false}});
  for (std::size_t i = 0; i < json["points"].size(); ++i)
    if (const Json& point = json["points"][i]; point.value("parts", Json()).is_object())
      check_sums(path, fmt::format("points[{}].parts", i), point["parts"]);
  if (json.value("fastest", Json()).is_array())
    check_all(path, "fastest", json["fastest"], {{"ranks", ValueKind::number}, {"strategy", ValueKind::text}});
}

/// Checks a confusion matrix: as many columns as rows.
void check_confusion(const std::string& path, const Json& json) {
  check(path, "confusion", json, {{"pass", ValueKind::text}, {"counts", ValueKind::list}});
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
        {{"version", ValueKind::text, false},
         {"backend", ValueKind::text, false},
         {"schedule", ValueKind::text, false},
         {"microbatches", ValueKind::number, false},
         {"first_step", ValueKind::number, false},
         {"optimizer", ValueKind::object, false},
         {"best", ValueKind::object, false}});
  if (json.value("optimizer", Json()).is_object())
    check(path, "optimizer", json["optimizer"],
          {{"text", ValueKind::text, false},
           {"rate", ValueKind::number, false},
           {"warm_up", ValueKind::number, false},
           {"decay", ValueKind::text, false}});
  if (json.value("best", Json()).is_object())
    check(path, "best", json["best"],
          {{"epoch", ValueKind::number}, {"loss", ValueKind::number, false}, {"file", ValueKind::text, false}});
}

void check_train(const std::string& path, const Json& json) {
  const std::vector<const char*> curves{"losses", "accuracies", "rates", "step_seconds"};
  check_settings(path, json);
  for (const char* list : curves) check(path, "", json, {{list, ValueKind::list, false}});
  check(path, "", json,
        {{"epochs", ValueKind::list, false},
         {"validation", ValueKind::list, false},
         {"test", ValueKind::object, false},
         {"confusion", ValueKind::object, false}});
  for (const char* list : curves)
    if (json.value(list, Json()).is_array()) check_numbers(path, list, json[list]);
  for (const char* what : {"messages", "bytes", "memory"})
    for (const char* how : {"predicted_", "measured_"})
      check(path, "", json, {{(std::string(how) + what).c_str(), ValueKind::number, false}});
  const std::vector<Field> pass{{"epoch", ValueKind::number, false},
                                {"step", ValueKind::number, false},
                                {"steps", ValueKind::number, false},
                                {"samples", ValueKind::number, false},
                                {"loss", ValueKind::number, false},
                                {"accuracy", ValueKind::number, false},
                                {"top5", ValueKind::number, false},
                                {"mean_iou", ValueKind::number, false},
                                {"perplexity", ValueKind::number, false},
                                {"seconds", ValueKind::number, false},
                                {"images_per_second", ValueKind::number, false}};
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
  check(path, "", json,
        {{"subject", ValueKind::text}, {"model", ValueKind::text, false}, {"conditions", ValueKind::object, false}});
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
