#include "src/cli/inputs/model_and_strategy.hpp"

#include "partita/base/error.hpp"
#include "partita/model/builtin/builtin.hpp"
#include "src/cli/options/option_values.hpp"

#include <fmt/ranges.h>

#include <algorithm>

namespace partita::cli {

namespace {

/// Makes the built-in model. If one of its options alone already makes it fail, the message names that option.
Model make_builtin(const Options& o) {
  try {
    return builtin_model(o.model, o.size);
  } catch (const Error&) {
    naming_option("--model", o.model, [&] { builtin_model(o.model, {}); });
    naming_option("--size", o.size.extent, [&] { builtin_model(o.model, {.extent = o.size.extent}); });
    naming_option("--channels", o.size.channels, [&] { builtin_model(o.model, {.channels = o.size.channels}); });
    naming_option("--classes", o.size.classes, [&] { builtin_model(o.model, {.classes = o.size.classes}); });
    naming_option("--width", o.size.width, [&] { builtin_model(o.model, {.width = o.size.width}); });
    naming_option("--widths", fmt::format("{}", fmt::join(o.size.widths, " ")),
                  [&] { builtin_model(o.model, {.widths = o.size.widths}); });
    naming_option("--class-weights", fmt::format("{}", fmt::join(o.size.labels.weights, " ")), [&] {
      builtin_model(o.model, {.classes = o.size.classes, .labels = {.weights = o.size.labels.weights}});
    });
    naming_option("--label-smoothing", o.size.labels.smoothing,
                  [&] { builtin_model(o.model, {.labels = {.smoothing = o.size.labels.smoothing}}); });
    const TransformerSize& t = o.size.transformer;
    const auto name_one = [&](std::string_view option, Index value, const TransformerSize& one) {
      naming_option(option, value, [&] { builtin_model(o.model, {.transformer = one}); });
    };
    name_one("--layers", t.layers, {.layers = t.layers});
    name_one("--hidden", t.hidden, {.hidden = t.hidden});
    name_one("--heads", t.heads, {.heads = t.heads});
    name_one("--sequence", t.sequence, {.sequence = t.sequence});
    name_one("--vocabulary", t.vocabulary, {.vocabulary = t.vocabulary});
    name_one("--patch", t.patch, {.patch = t.patch});
    naming_option("--dropout", t.dropout, [&] { builtin_model(o.model, {.transformer = {.dropout = t.dropout}}); });
    if (t.tied) naming_option("--tied", [&] { builtin_model(o.model, {.transformer = {.tied = true}}); });
    const TablesSize& tables = o.size.tables;
    const auto name_table = [&](std::string_view option, Index value, const TablesSize& one) {
      naming_option(option, value, [&] { builtin_model(o.model, {.tables = one}); });
    };
    name_table("--tables", tables.tables, {.tables = tables.tables});
    name_table("--rows", tables.rows, {.rows = tables.rows});
    name_table("--features", tables.features, {.features = tables.features});
    name_table("--bag", tables.bag, {.bag = tables.bag});
    throw;
  }
}

}  // namespace

Model make_model(const Options& options, const ModelFactory& factory) {
  if (factory) return factory();
  Model model = make_builtin(options);
  const auto& layers = model.layers();
  const auto normalizes = [](const Layer& layer) { return layer.op->kind() == "batch_norm"; };
  if (options.size.batch_norm.statistics != BatchNorm().statistics &&
      std::none_of(layers.begin(), layers.end(), normalizes))
    fail("--batch-norm: the model '{}' has no batch normalization; leave it out", model.name());
  if (options.size.transformer.segments && model.find("segments") < 0)
    fail("--segments: the model '{}' reads no text; leave it out, and --separator", model.name());
  if (const CrossEntropy& labels = options.size.labels; layers.back().op->kind() != "softmax_cross_entropy")
    for (const auto& [option, given] :
         {std::pair("--ignore-label", labels.ignored.has_value()),
          std::pair("--class-weights", !labels.weights.empty()), std::pair("--label-smoothing", labels.smoothing != 0)})
      if (given) fail("{}: the model '{}' predicts values and no classes; leave it out", option, model.name());
  return model;
}

bool names_strategy(const Options& options) {
  return !options.strategy.empty() && !(options.declared && options.strategy == no_strategy);
}

Strategy make_strategy(const Options& options, int ranks) {
  const bool named = names_strategy(options), own = options.declared && options.strategy == declared_strategy;
  Strategy strategy = own ? *options.declared : named ? Strategy::load(options.strategy) : Strategy();
  if (!options.grid.empty())
    strategy = strategy.on(naming_option("--grid", options.grid, [&] { return Grid::parse(options.grid); }));
  if (!named && options.grid.empty() && ranks > 1) {
    strategy = Strategy(fmt::format("data={}", ranks));
    strategy.layer("*", {.output = "N@data"});
  }
  add_rules(strategy, options.rules, "--rule");
  return strategy;
}

void add_rules(Strategy& strategy, const std::vector<std::string>& rules, std::string_view option) {
  for (const auto& rule : rules) {
    const auto colon = rule.find(':');
    if (colon == std::string::npos)
      fail("{} \"{}\": write a layer's name or pattern, a colon and a layout, e.g. \"conv*: N@data H\"", option, rule);
    const auto layout = rule.find_first_not_of(" \t", colon + 1);
    strategy.layer(rule.substr(0, colon), {.output = layout == std::string::npos ? "" : rule.substr(layout)},
                   fmt::format("{} \"{}\"", option, rule));
  }
}

std::vector<std::pair<std::string, Strategy>> make_strategies(const Options& options, int ranks) {
  std::vector<std::pair<std::string, Strategy>> all;
  for (const auto& file : options.strategies) {
    Options one = options;
    one.strategy = file;
    all.emplace_back(file, make_strategy(one, ranks));
  }
  if (all.empty())
    all.emplace_back(names_strategy(options) ? options.strategy : "command line", make_strategy(options, ranks));
  return all;
}

}  // namespace partita::cli
