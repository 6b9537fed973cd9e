#include "partita/base/optimizer.hpp"

#include "test/support/error_of.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace partita::test::optimizer_test {

TEST(Optimizer, ConstantRate) {
  const Optimizer sgd{.rate = 0.2};
  for (const Index step : {0, 1, 9, 100}) EXPECT_EQ(sgd.rate_at(step, 10), 0.2);
}

TEST(Optimizer, WarmUpRisesToTheRate) {
  const Optimizer sgd{.rate = 0.4, .warm_up = 4};
  EXPECT_DOUBLE_EQ(sgd.rate_at(0, 10), 0.1);
  EXPECT_DOUBLE_EQ(sgd.rate_at(1, 10), 0.2);
  EXPECT_DOUBLE_EQ(sgd.rate_at(3, 10), 0.4);
  EXPECT_DOUBLE_EQ(sgd.rate_at(4, 10), 0.4);
  EXPECT_DOUBLE_EQ(sgd.rate_at(1, 2), 0.2) << "a warm-up longer than the run";
}

TEST(Optimizer, DecaysFromTheEndOfTheWarmUp) {
  const Optimizer linear{.rate = 1, .warm_up = 2, .decay = Decay::linear};
  EXPECT_DOUBLE_EQ(linear.rate_at(1, 10), 1);
  EXPECT_DOUBLE_EQ(linear.rate_at(2, 10), 1);
  EXPECT_DOUBLE_EQ(linear.rate_at(6, 10), 0.5);
  EXPECT_DOUBLE_EQ(linear.rate_at(9, 10), 0.125);
  EXPECT_DOUBLE_EQ(linear.rate_at(12, 10), 0) << "steps beyond the last";
  const Optimizer cosine{.rate = 1, .warm_up = 2, .decay = Decay::cosine};
  EXPECT_DOUBLE_EQ(cosine.rate_at(2, 10), 1);
  EXPECT_NEAR(cosine.rate_at(4, 10), 0.5 * (1 + std::sqrt(0.5)), 1e-15);
  EXPECT_NEAR(cosine.rate_at(6, 10), 0.5, 1e-15);
  EXPECT_NEAR(cosine.rate_at(12, 10), 0, 1e-15);
  EXPECT_DOUBLE_EQ(linear.rate_at(2, 2), 1) << "no step after the warm-up";
  const Optimizer floored{.rate = 2, .decay = Decay::cosine, .floor = 0.1};
  EXPECT_DOUBLE_EQ(floored.rate_at(0, 10), 2);
  EXPECT_NEAR(floored.rate_at(5, 10), 2 * 0.55, 1e-15);
  EXPECT_NEAR(floored.rate_at(10, 10), 0.2, 1e-15);
}

TEST(Optimizer, ChecksAndPrints) {
  EXPECT_EQ(Optimizer{}.print(), "sgd rate 0.05 momentum 0.9");
  const Optimizer all{
      .rate = 0.1, .momentum = 0.5, .nesterov = true, .weight_decay = 1e-4, .warm_up = 5, .decay = Decay::cosine};
  EXPECT_EQ(all.print(), "sgd rate 0.1 momentum 0.5 nesterov weight decay 0.0001 warm-up 5 cosine decay");
  EXPECT_EQ((Optimizer{.decay = Decay::linear, .floor = 0.1, .clip_norm = 2}.print()),
            "sgd rate 0.05 momentum 0.9 linear decay to 0.1 clip 2");
  EXPECT_NO_THROW(all.check());
  for (const double rate : {0.0, -1.0, std::nan(""), HUGE_VAL})
    expect_error([&] { Optimizer{.rate = rate}.check(); }, {"learning rate"});
  for (const double momentum : {-0.1, 1.0, std::nan("")})
    expect_error([&] { Optimizer{.momentum = momentum}.check(); }, {"momentum", "[0, 1)"});
  expect_error([] { Optimizer{.weight_decay = -1}.check(); }, {"weight decay is -1"});
  expect_error([] { Optimizer{.warm_up = -1}.check(); }, {"warm-up is -1"});
  expect_error([] { Optimizer{.floor = 1.5}.check(); }, {"floor of the decay is 1.5"});
  expect_error([] { Optimizer{.clip_norm = -1}.check(); }, {"clipped is -1"});
  expect_error([] { Optimizer{.momentum = 0, .nesterov = true}.check(); }, {"Nesterov"});
  expect_error([] { Optimizer{.method = Method::adam, .nesterov = true}.check(); }, {"Nesterov", "adam"});
  expect_error([] { Optimizer{.beta2 = 1}.check(); }, {"beta2 is 1"});
  expect_error([] { Optimizer{.epsilon = 0}.check(); }, {"epsilon is 0"});
  EXPECT_EQ((Optimizer{.method = Method::adamw, .rate = 0.001, .weight_decay = 0.01}.print()),
            "adamw rate 0.001 beta1 0.9 beta2 0.999 epsilon 1e-08 weight decay 0.01");
  EXPECT_EQ((Optimizer{.method = Method::lars}.print()), "lars rate 0.05 momentum 0.9 trust 0.001");
}

TEST(Optimizer, MethodByName) {
  for (const char* text : {"sgd", "adagrad", "rmsprop", "adam", "adamw", "lars", "lamb"})
    EXPECT_EQ(name(parse_method(text)), text);
  expect_error([] { parse_method("adma"); }, {"no optimizer 'adma'", "did you mean 'adam'"});
}

TEST(Optimizer, DecayByName) {
  EXPECT_EQ(parse_decay("none"), Decay::none);
  EXPECT_EQ(parse_decay("linear"), Decay::linear);
  EXPECT_EQ(parse_decay("cosine"), Decay::cosine);
  expect_error([] { parse_decay("cos"); }, {"'cos'", "none, linear or cosine"});
}

}  // namespace partita::test::optimizer_test
