#include "partita/strategies/plan/bind.hpp"
#include "partita/strategies/plan/traffic.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

namespace partita::segments_plan_test {
namespace {

/// Two layers of attention over 7 places, which read the same segments.
Model packed() {
  Model m("packed");
  const Value segments = m.input("segments", {.length = 7, .tokens = true});
  Value t = m.input("in", {.channels = 3, .length = 7});
  for (const std::string number : {"1", "2"}) {
    t = m.linear("qkv" + number, t, {.features = 24, .per_place = true});
    t = m.attention("attention" + number, t, segments, {.heads = 4, .groups = 2});
  }
  m.softmax_cross_entropy("loss", t);
  return m;
}

Plan bound(const Strategy& strategy) {
  return bind(packed(), strategy, {.batch = 4, .dtype = DType::f64, .optimizer = {}});
}

/// What a rank sends for a layer, as "x 1 56", with messages and bytes.
std::string sent(const Plan& plan, std::string_view layer, int rank) {
  std::string text;
  for (int i = 0; i < std::ssize(plan.layers); ++i)
    if (plan.layers[i].name == layer)
      for (const auto& item : layer_traffic(plan, i, rank))
        text +=
            fmt::format("{}{} {} {}", text.empty() ? "" : "; ", item.role, item.traffic.messages, item.traffic.bytes);
  return text;
}

// Of 2 samples a rank gathers 7 numbers of 4 bytes each, beside keys and values of 12 channels in f64. Segments that
// are whole need not be gathered.
TEST(Segments, ARankHasThoseOfAllPlacesOfItsSamples) {
  Strategy s("n=2 l=3");
  s.layer("*", {.output = "N@n L@l"});
  const Plan cut = bound(s);
  for (const char* layer : {"attention1", "attention2"}) {
    EXPECT_EQ(cut.layer(layer)->at.x[0].print(), "N@n C L@l");
    EXPECT_EQ(cut.layer(layer)->at.x[1].print(), "N@n C L");
    EXPECT_EQ(cut.layer(layer)->needs_dx, (std::vector<bool>{true, false}));
    EXPECT_EQ(sent(cut, layer, 0), "x 1 56; ring x 2 960; ring x 2 960; ring dx 2 768");
  }
  EXPECT_EQ(sent(bound(s.layer("segments", {.output = "N@n"})), "attention1", 0),
            "ring x 2 960; ring x 2 960; ring dx 2 768");
}

// Stages send each other segments, 4 samples of 7 numbers of 4 bytes, and no gradient of them.
TEST(Segments, GoToTheStagesThatReadThem) {
  Strategy s("l=1");
  s.group({"segments", "attention1", Grid::parse("l=1")}).group({"qkv2", "loss", Grid::parse("l=1")});
  EXPECT_EQ(sent(bound(s), "segments", 0), "y to stage 1 1 112");
}

}  // namespace
}  // namespace partita::segments_plan_test
