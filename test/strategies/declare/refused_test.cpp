// All refused combinations of a kind of layer and one key of a rule, with their messages; all other combinations bind.
// Each layer is requested to shard each dimension over an axis of two, in output, input and weights, to leave a pending
// sum, and to use every algorithm.
#include "partita/base/error.hpp"
#include "partita/strategies/plan/bind.hpp"
#include "partita/strategies/plan/plan.hpp"

#include <gtest/gtest.h>

#include <map>
#include <tuple>

namespace partita::test::refused_test {
namespace {

/// A model with a layer of each kind, named after the kind.
Model zoo() {
  Model m("zoo");
  Value t = m.input("input", {.channels = 6, .spatial = {8, 8}});
  t = m.conv("conv", t, {.filters = 6, .kernel = 3, .padding = 1});
  t = m.conv("grouped", t, {.filters = 6, .kernel = 3, .padding = 1, .groups = 3});
  t = m.conv_transpose("conv_transpose", t, {.filters = 6, .kernel = 2, .stride = 2});
  t = m.max_pool("max_pool", t, {.window = 2});
  t = m.batch_norm("batch_norm", t);
  t = m.group_norm("group_norm", t, {.groups = 2});
  t = m.relu("relu", t);
  t = m.add("add", t, t);
  t = m.dropout("dropout", t);
  t = m.upsample("upsample", t);
  t = m.crop("crop", t, {{4, 4}, {4, 4}});
  t = m.concatenate("concatenate", {t, t});
  t = m.space_to_depth("space_to_depth", t, 2);
  t = m.linear("per_place", t, {.features = 48, .per_place = true});
  t = m.global_average_pool("global_average_pool", t);
  t = m.linear("linear", t, {.features = 6});
  m.softmax_cross_entropy("softmax_cross_entropy", t);
  return m;
}

/// The same for layers of sequences.
Model of_sequences() {
  Model m("sequences");
  Value t = m.input("tokens", {.length = 8, .tokens = true});
  t = m.embedding("embedding", t, {.vocabulary = 8, .features = 12});
  t = m.positions("positions", t);
  t = m.layer_norm("layer_norm", t, {.per_place = true});
  t = m.rms_norm("rms_norm", t);
  t = m.linear("wide", t, {.features = 24, .per_place = true});
  t = m.rotary("rotary", t, {.heads = 2});
  t = m.attention("attention", t, {.heads = 2});
  t = m.gated("gated", t);
  const Experts experts{.experts = 3};
  const Value scores = m.linear("wide_scores", t, {.features = 3, .per_place = true});
  t = m.dispatch("dispatch", t, scores, experts);
  t = m.linear("experts", t, {.features = 12, .per_place = true, .groups = 3});
  t = m.combine("combine", scores, t, experts);
  m.softmax_cross_entropy("loss", t);
  return m;
}

/// The same for layers of tables.
Model of_tables() {
  Model m("tables");
  const Value dense = m.input("dense", {.channels = 12});
  const Value indices = m.input("indices", {.channels = 2, .length = 8, .tokens = true});
  const Value rows = m.tables("tables", indices, {.rows = 8, .features = 12});
  m.softmax_cross_entropy("loss", m.linear("scores", m.interaction("interaction", rows, dense), {.features = 2}));
  return m;
}

Model ending_in(bool dice) {
  Model m("loss");
  const Value t = m.input("input", {.channels = 2, .spatial = {8, 8}});
  dice ? m.softmax_dice("softmax_dice", t) : m.mean_squared_error("mean_squared_error", t);
  return m;
}

using Refused = std::map<std::string, std::string>;

void try_rule(const Model& model, const std::string& layer, const std::string& what, const LayerRule& rule,
              Refused& refused) {
  Strategy strategy("a=2");
  strategy.layer(layer, rule);
  try {
    bind(model, strategy, {.batch = 4, .optimizer = {}});
  } catch (const Error& error) {
    refused[layer + ": " + what] = error.what();
  }
}

/// Returns what the model's layers refuse, except for dimensions that a tensor lacks.
Refused refused_of(const Model& model) {
  Refused refused;
  const auto shapes = model.shapes(4);
  for (std::size_t i = model.layers().size() == 2 ? 1 : 0; i < model.layers().size(); ++i) {
    const Layer& layer = model.layers()[i];
    const auto each = [&](const Shape& shape, const char* key, auto&& rule_of) {
      for (int d = 0; d < shape.dims(); ++d) {
        const std::string text = fmt::format("{}@a", shape.name(d));
        try_rule(model, layer.name, fmt::format("{} {}", key, text), rule_of(text), refused);
      }
    };
    each(shapes[i], "output", [](const std::string& text) { return LayerRule{.output = text}; });
    try_rule(model, layer.name, "output sum@a", {.output = "sum@a"}, refused);
    const auto inputs = model.inputs_of(static_cast<int>(i), shapes);
    if (!inputs.empty()) each(inputs[0], "input", [](const std::string& text) { return LayerRule{.input = text}; });
    const auto weights = layer.op->weights(inputs);
    if (!weights.empty())
      each(weights[0].shape, "weights", [](const std::string& text) { return LayerRule{.weights = text}; });
    for (const Algorithm algorithm : layer.op->algorithms())
      for (const char* output : {"", "C@a"})
        try_rule(model, layer.name, fmt::format("{} to \"{}\"", name(algorithm), output),
                 {.output = output, .algorithm = algorithm}, refused);
  }
  return refused;
}

void expect_refused(const Model& model, const Refused& expected) {
  const Refused found = refused_of(model);
  for (const auto& [what, message] : found) {
    const auto known = expected.find(what);
    EXPECT_TRUE(known != expected.end()) << "{\"" << what << "\", R\"(" << message << ")\"},";
    if (known != expected.end()) {
      EXPECT_EQ(message, known->second) << what;
    }
  }
  for (const auto& [what, message] : expected) EXPECT_TRUE(found.count(what) > 0) << what << " is no longer refused";
}

void add(Refused& expected, const std::string& layer, const char* kind, const std::string& what,
         const std::string& why) {
  expected[layer + ": " + what] = fmt::format("layer '{}' ({}): {}", layer, kind, why);
}

void add_pending_sums(Refused& expected) {
  const auto pending = [&](const std::string& layer, const char* kind, const char* output = "N C H W sum@a") {
    add(expected, layer, kind, "output sum@a",
        fmt::format("output \"{}\" asks for a pending sum over (a), which this layer cannot produce", output));
  };
  for (const char* layer : {"input", "conv", "conv_transpose", "max_pool", "batch_norm", "group_norm", "relu", "add",
                            "dropout", "upsample", "crop", "concatenate", "space_to_depth"})
    pending(layer, layer);
  pending("grouped", "conv");
  pending("per_place", "linear");
  pending("softmax_cross_entropy", "softmax_cross_entropy", "N sum@a");
}

void add_convolutions(Refused& expected) {
  using Named = std::pair<const char*, const char*>;
  for (const auto& [layer, kind] :
       {Named("conv", "conv"), Named("conv_transpose", "conv_transpose"), Named("per_place", "linear")}) {
    for (const char* dim : {"H", "W"})
      if (kind != std::string_view("linear"))
        add(expected, layer, kind, fmt::format("weights {}@a", dim),
            fmt::format("weights \"F C {}\" shard the kernel's {}; only channels can be sharded",
                        *dim == 'H' ? "H@a W" : "H W@a", dim));
    const auto unfit = [&, layer = layer, kind = kind](const char* algorithm, const char* asked, const char* output,
                                                       const char* why) {
      add(expected, layer, kind, fmt::format("{} to \"{}\"", algorithm, asked),
          fmt::format("algorithm \"{}\" does not fit the input \"N C H W\" and the output \"{}\": it needs {}",
                      algorithm, output, why));
    };
    for (const char* algorithm : {"stationary-x", "stationary-y"})
      unfit(
          algorithm, "", "N C H W",
          "an input (stationary-x) or an output (stationary-y) that shards C, over axes that shard neither samples nor "
          "spatial dimensions");
    for (const auto& [asked, output] : {std::pair("", "N C H W"), std::pair("C@a", "N C@a H W")})
      unfit("stationary-w", asked, output,
            "an output that shards C over two axes, or an input and an output that shard C over different axes");
  }
}

/// Three groups cannot be sharded over an axis of two.
void add_groups(Refused& expected) {
  add(expected, "grouped", "conv", "output C@a",
      "output \"N C@a H W\" splits a group of channels; shard C over axes that divide the 3 groups, or leave it whole");
  add(expected, "grouped", "conv", "groups to \"C@a\"",
      "output \"N C@a H W\" splits a group of channels; shard C over axes that divide the 3 groups, or leave it whole");
  const auto whole_groups = [&](const char* what, const char* input, const char* weights) {
    add(expected, "grouped", "conv", what,
        fmt::format("a layer cannot split its 3 groups of channels: input \"{}\", output \"N C H W\" and weights{} "
                    "must shard C in the same way",
                    input, weights));
  };
  whole_groups("groups to \"\"", "N C H W", "");
  whole_groups("input C@a", "N C@a H W", "");
  whole_groups("weights F@a", "N C H W", " \"F@a C H W\"");
  whole_groups("weights C@a", "N C H W", " \"F C@a H W\"");
  add(expected, "grouped", "conv", "weights H@a",
      "weights \"F C H@a W\" shard the kernel's H; only channels can be sharded");
  add(expected, "grouped", "conv", "weights W@a",
      "weights \"F C H W@a\" shard the kernel's W; only channels can be sharded");
}

/// An algorithm cannot shard what no axis shards, and two axes are not three.
void add_products(Refused& expected) {
  const auto unfit = [&](const std::string& algorithm, const char* asked, const char* output, const char* why) {
    add(expected, "linear", "linear", fmt::format("{} to \"{}\"", algorithm, asked),
        fmt::format("product y: A[mk] N=4 C=48 \"N C\", B[nk] F=6 C=48 \"F C\", C[mn] N=4 C=6 \"{}\": the grid \"a=2\" "
                    "cannot run \"{}\", "
                    "which needs {} that the layouts use",
                    output, algorithm, why));
  };
  for (const Algorithm algorithm : product_algorithms())
    unfit(std::string(name(algorithm)), "", "N C", algorithm == Algorithm::two_and_a_half_d ? "three axes" : "an axis");
  unfit("2.5d", "C@a", "N C@a", "three axes");
}

void add_weights_and_losses(Refused& expected) {
  add(expected, "batch_norm", "batch_norm", "weights C@a",
      "weights \"C@a\": scale and shift always have the layout of its input's channels, \"C\"; omit `weights`");
  add(expected, "group_norm", "group_norm", "weights C@a",
      "weights \"C@a\" are sharded over (a); this layer needs its weights whole on every rank");
}

/// Three experts cannot be sharded over an axis of two.
void add_experts(Refused& expected) {
  add(expected, "experts", "linear", "output sum@a",
      "output \"N C L sum@a\" asks for a pending sum over (a), which this layer cannot produce");
  for (const char* what : {"output C@a", "groups to \"C@a\""})
    add(expected, "experts", "linear", what,
        "output \"N C@a L\" splits a group of channels; shard C over axes that divide the 3 groups, or leave it whole");
  for (const auto& [what, input, weights] :
       {std::tuple("groups to \"\"", "N C L", ""), std::tuple("input C@a", "N C@a L", ""),
        std::tuple("weights F@a", "N C L", " \"F@a C\""), std::tuple("weights C@a", "N C L", " \"F C@a\"")})
    add(expected, "experts", "linear", what,
        fmt::format("a layer cannot split its 3 groups of channels: input \"{}\", output \"N C L\" and weights{} must "
                    "shard C in the same way",
                    input, weights));
}

}  // namespace

TEST(Refused, OfEveryKindOfLayer) {
  Refused expected;
  add_pending_sums(expected);
  add_convolutions(expected);
  add_groups(expected);
  add_products(expected);
  add_weights_and_losses(expected);
  expect_refused(zoo(), expected);
}

TEST(Refused, OfLayersOfSequences) {
  Refused found = refused_of(of_sequences()), expected;
  std::erase_if(found, [](const auto& each) { return each.first.starts_with("wide"); });  // as "per_place" above
  for (const char* layer : {"tokens", "positions", "layer_norm", "rms_norm", "rotary", "attention", "gated",
                            "embedding", "dispatch", "combine"})
    add(expected, layer, layer == std::string_view("tokens") ? "input" : layer, "output sum@a",
        "output \"N C L sum@a\" asks for a pending sum over (a), which this layer cannot produce");
  add(expected, "loss", "softmax_cross_entropy", "output sum@a",
      "output \"N sum@a\" asks for a pending sum over (a), which this layer cannot produce");
  for (const char* algorithm : {"all-to-all", "ring"})
    for (const char* cut : {"", "C@a"})
      add(expected, "attention", "attention", fmt::format("{} to \"{}\"", algorithm, cut),
          fmt::format("algorithm \"{}\" does not fit the input \"N {} L\", whose places are whole; cut L, or name no "
                      "algorithm",
                      algorithm, *cut == 0 ? "C" : cut));
  for (const char* layer : {"layer_norm", "rms_norm"})
    add(expected, layer, layer, "weights C@a",
        "weights \"C@a\" are sharded over (a); this layer needs its weights whole on every rank");
  for (const char* weights : {"C@a L", "C L@a"})
    add(expected, "positions", "positions", fmt::format("weights {}@a", weights[1] == '@' ? 'C' : 'L'),
        fmt::format("weights \"{}\" are not cut as the output \"N C L\"; leave them out: they follow it", weights));
  add(expected, "embedding", "embedding", "weights C@a",
      "weights \"V C@a\" cut dimension C over (a), but the output is cut over (); cut both alike");
  add_experts(expected);
  for (const auto& [what, message] : found) EXPECT_EQ(message, expected[what]) << what;
  for (const auto& [what, message] : expected) EXPECT_TRUE(found.contains(what)) << what << " is not refused";
}

TEST(Refused, OfLayersOfTables) {
  Refused found = refused_of(of_tables()), expected;
  std::erase_if(found, [](const auto& each) { return each.first.starts_with("scores"); });  // as "linear" above
  const auto is_input = [](std::string_view layer) { return layer == "dense" || layer == "indices"; };
  const auto has_places = [](std::string_view layer) { return layer == "tables" || layer == "indices"; };
  for (const char* layer : {"dense", "indices", "tables", "interaction"})
    add(expected, layer, is_input(layer) ? "input" : layer, "output sum@a",
        fmt::format("output \"{} sum@a\" asks for a pending sum over (a), which this layer cannot produce",
                    has_places(layer) ? "N C L" : "N C"));
  add(expected, "loss", "softmax_cross_entropy", "output sum@a",
      "output \"N sum@a\" asks for a pending sum over (a), which this layer cannot produce");
  add(expected, "tables", "tables", "weights C@a",
      "weights \"V C@a L\" cut dimension C over (a), but the output is cut over (); cut both alike");
  add(expected, "tables", "tables", "weights L@a",
      "weights \"V C L@a\" cut dimension L over (a), but the output is cut over (); cut both alike");
  for (const auto& [what, message] : found) EXPECT_EQ(message, expected[what]) << what;
  for (const auto& [what, message] : expected) EXPECT_TRUE(found.contains(what)) << what << " is not refused";
}

TEST(Refused, OfTheOtherLosses) {
  const std::string pending = "asks for a pending sum over (a), which this layer cannot produce";
  expect_refused(ending_in(true),
                 {{"softmax_dice: output sum@a", "layer 'softmax_dice' (softmax_dice): output \"N sum@a\" " + pending},
                  {"softmax_dice: input C@a",
                   "layer 'softmax_dice' (softmax_dice): input \"N C@a H W\" shards dimension C over "
                   "(a); this layer needs all channels of a sample on one rank: leave C whole"}});
  expect_refused(ending_in(false),
                 {{"mean_squared_error: output sum@a",
                   "layer 'mean_squared_error' (mean_squared_error): output \"N sum@a\" " + pending}});
}

}  // namespace partita::test::refused_test
