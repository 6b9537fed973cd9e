#include "partita/strategies/plan/bind.hpp"
#include "test/support/error_of.hpp"

#include <gtest/gtest.h>

namespace partita::test::check_names_test {
namespace {

/// Two linear layers with these names.
Model named(const std::string& first, const std::string& second) {
  Model m("named");
  auto t = m.input("in", {.channels = 2, .spatial = {}});
  t = m.linear(first, t, {.features = 3});
  m.mean_squared_error("loss", m.linear(second, t, {.features = 2}));
  return m;
}

TEST(TensorNames, ThatCannotBeSavedTogetherAreRefused) {
  const auto error = [](const Model& model) {
    return error_of([&] { bind(model, Strategy(), {.batch = 2, .optimizer = {}}); });
  };
  EXPECT_EQ(
      error(named("a", "a/weight")),
      "layer 'a/weight': its weight would be 'a/weight/bias' in a checkpoint, below 'a/weight', which is a weight of "
      "layer 'a'; rename one");
  EXPECT_NE(error(named("a/weight.velocity/b", "a")).find("below 'a/weight.velocity', which is a weight of layer 'a'"),
            std::string::npos);
  for (const char* other : {"a/b", "a/weights", "b/a/weight", "ab"}) EXPECT_EQ(error(named("a", other)), "") << other;
}

}  // namespace
}  // namespace partita::test::check_names_test
