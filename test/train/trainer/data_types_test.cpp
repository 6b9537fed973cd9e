// Numbers reach a batch as the data set has them: exact in f64, and refused where a data type cannot hold them.
#include "partita/train/trainer/trainer.hpp"
#include "src/comm/threads/threads.hpp"
#include "src/train/data/subset.hpp"
#include "test/support/error_of.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

namespace partita::test::data_types_test {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// Five samples of C=2 W=3, of which one may have another value at C=1 W=2, and targets of one value.
class Numbers final : public Dataset {
 public:
  double special = 0, special_target = 0;
  Index at = 3;

  Shape sample() const override { return {{'C', 2}, {'W', 3}}; }
  Shape target() const override { return {{'C', 1}}; }
  Index size() const override { return 5; }
  Index classes() const override { return 0; }
  void hold(std::span<const Index>, const Box&) override {}
  void read(Index sample, const Box& box, std::span<double> out) const override {
    std::fill(out.begin(), out.end(), 0);
    if (sample == at && box[0].hi == 2 && box[1].hi == 3) out.back() = special;
  }
  void read_target(Index sample, const Box&, std::span<double> out) const override {
    out[0] = sample == at && special_target != 0 ? special_target : 1.7e9 + 0.25 * static_cast<double>(sample);
  }
};

Model net() {
  Model m("net");
  m.mean_absolute_error("loss", m.linear("fc", m.input("x", {.channels = 2, .spatial = {3}}), {.features = 1}));
  return m;
}

TrainerOptions options(DType dtype) {
  TrainerOptions o;
  o.batch = 5;
  o.dtype = dtype;
  o.training = false;
  o.backend = "reference";
  return o;
}

/// The error of an evaluation, "" if there is none.
std::string error(DType dtype, Numbers data, const Augmentation& augmentation = {}) {
  std::string text;
  run_threads(1, [&](Communicator& comm) {
    TrainerOptions o = options(dtype);
    o.augmentation = augmentation;
    o.training = augmentation.flip;
    Trainer trainer(net(), Strategy(), o, comm);
    text = error_of([&] { o.training ? trainer.train_epoch(data, {}) : trainer.evaluate(data, {}); });
  });
  return text;
}

TEST(DataTypes, ARunInF64SeesTheNumbersOfTheDataSet) {
  // All samples and biases are 0, so y is 0, and the loss is the mean of 1.7e9 + 0.25 i for i = 0 to 4.
  for (const auto& [strategy, grid] :
       {std::pair{Strategy(), ""}, {Strategy("data=2").layer("*", {.output = "N@data"}), "data=2"}})
    run_threads(strategy.ranks(), [&strategy = strategy, grid = grid](Communicator& comm) {
      Trainer trainer(net(), strategy, options(DType::f64), comm);
      Numbers data;
      EXPECT_EQ(trainer.evaluate(data, {}).loss, 1700000000.5) << grid;
    });
}

TEST(DataTypes, WhatADataTypeCannotHoldIsRefused) {
  // 65519.99 rounds to 65504, the largest number of f16; from 65520 on, numbers round to infinity.
  const std::vector<std::pair<DType, double>> held{
      {DType::f64, 1e300}, {DType::f32, -3.4e38}, {DType::bf16, 3.38e38}, {DType::f16, 65519.9}};
  for (const auto& [dtype, value] : held) {
    Numbers data;
    data.special = value;
    EXPECT_EQ(error(dtype, data).find(": sample 3 has"), std::string::npos) << name(dtype);
  }
  const std::vector<std::tuple<DType, double, std::string>> refused{
      {DType::f32, 1e300,
       "has the value 1e+300, but f32 holds numbers up to 3.40282e+38; scale the values, or use --dtype f64"},
      {DType::f32, -4e38,
       "has the value -4e+38, but f32 holds numbers up to 3.40282e+38; scale the values, or use --dtype f64"},
      {DType::bf16, 1e39,
       "has the value 1e+39, but bf16 holds numbers up to 3.38953e+38; scale the values, or use --dtype f64"},
      {DType::f16, 65520,
       "has the value 65520, but f16 holds numbers up to 65504; scale the values, or use --dtype f32"},
      {DType::f16, -1e6,
       "has the value -1e+06, but f16 holds numbers up to 65504; scale the values, or use --dtype f32"}};
  for (const auto& [dtype, value, text] : refused) {
    Numbers data;
    data.set_name("numbers");
    data.special = value;
    EXPECT_EQ(error(dtype, data).find("data set 'numbers': sample 3 " + text), 0U) << error(dtype, data);
    EXPECT_EQ(error(dtype, data, {.shift = 0, .flip = true}).find("data set 'numbers': sample 3 " + text), 0U);
    data.special = 0;
    data.special_target = value;
    EXPECT_EQ(error(dtype, data).find("data set 'numbers': the target of sample 0 has the value 1.7e+09") == 0,
              dtype == DType::f16);
    if (dtype == DType::f16) continue;
    EXPECT_EQ(error(dtype, data).find("data set 'numbers': the target of sample 3 " + text), 0U);
  }
}

TEST(DataTypes, AnInfiniteNumberIsNotAQuestionOfRange) {
  for (const DType dtype : {DType::f64, DType::f32, DType::f16})
    for (const double value : {infinity, std::nan("")}) {
      Numbers data;
      data.special = value;
      EXPECT_EQ(error(dtype, data).find(": sample 3 has"), std::string::npos) << name(dtype);
    }
}

TEST(DataTypes, ASampleOfAPartHasItsNumberInTheWhole) {
  auto whole = std::make_unique<Numbers>();
  whole->special = 1e300;
  const auto part = make_subset(std::move(whole), {1, 3});
  run_threads(1, [&](Communicator& comm) {
    Trainer trainer(net(), Strategy(), options(DType::f32), comm);
    expect_error([&] { trainer.evaluate(*part, {}); }, {"sample 3 has the value 1e+300"});
  });
}

TEST(DataTypes, AProgramsOwnBatchIsCheckedToo) {
  run_threads(1, [&](Communicator& comm) {
    Trainer trainer(net(), Strategy(), options(DType::f16), comm);
    const LocalBatch batch = trainer.make_batch(5, false);
    const auto one = [](Index bad, double value) {
      return [=](Index sample, const Box&, std::span<double> values) { values.back() = sample == bad ? value : 1; };
    };
    batch.fill_images(one(-1, 0));
    batch.fill_targets(one(2, infinity));
    expect_error([&] { batch.fill_images(one(4, 7e4)); }, {"sample 4 of the batch has the value 70000, but f16 holds"});
    expect_error([&] { batch.fill_targets(one(2, -1e9)); }, {"sample 2 of the batch has the value -1e+09, but f16"});
  });
  Model m("classes");
  m.softmax_cross_entropy("loss", m.linear("fc", m.input("x", {.channels = 2, .spatial = {1}}), {.features = 3}));
  run_threads(1, [&](Communicator& comm) {
    Trainer trainer(m, Strategy(), options(DType::f32), comm);
    const LocalBatch batch = trainer.make_batch(2, false);
    for (const double label : {1.5, 3e9, -infinity, std::nan("")})
      expect_error(
          [&] {
            batch.fill_targets([&](Index sample, const Box&, std::span<double> v) { v[0] = sample == 1 ? label : 2; });
          },
          {fmt::format("sample 1 of the batch has the label {:g}; labels are whole numbers from 0", label)});
  });
}

}  // namespace
}  // namespace partita::test::data_types_test
