#include "partita/model/builtin/builtin.hpp"
#include "src/model/operators.hpp"
#include "test/support/error_of.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace partita::test::model_test {

namespace {

/// The output shape of one convolution over `spatial` extents, for one sample.
std::string conv_shape(const std::vector<Index>& spatial, const Conv& conv) {
  Model m;
  m.conv("c", m.input("in", {.channels = 2, .spatial = spatial}), conv);
  return m.shapes(1).back().print();
}

std::string pool_shape(const std::vector<Index>& spatial, const Pool& pool) {
  Model m;
  m.max_pool("p", m.input("in", {.spatial = spatial}), pool);
  return m.shapes(1).back().print();
}

/// A model with one input layer, "in", of 2 channels.
struct Begun {
  Model m;
  Value t;
  explicit Begun(std::vector<Index> spatial = {5, 7})
      : t(m.input("in", {.channels = 2, .spatial = std::move(spatial)})) {}
};

// The numbers are torchvision's for its models, and computed by hand from the papers for the others.
TEST(Builtin, WeightsAreAsPublished) {
  EXPECT_EQ(fashion_cnn().weights(), 421738);
  EXPECT_EQ(lenet5().weights(), 61706);
  EXPECT_EQ(alexnet().weights(), 61100840);
  EXPECT_EQ(vgg16().weights(), 138357544);
  EXPECT_EQ(resnet18().weights(), 11689512);
  EXPECT_EQ(resnet50().weights(), 25557032);
  EXPECT_EQ(googlenet().shapes(1).at(static_cast<std::size_t>(googlenet().find("5b")))['C'], 1024);
}

TEST(Builtin, SizesAreWhatWasAskedFor) {
  const Model m = resnet18({.extent = 64, .channels = 5, .classes = 7, .width = 0.5});
  const auto shapes = m.shapes(2);
  EXPECT_EQ(shapes[0].print(), "N=2 C=5 H=64 W=64");
  EXPECT_EQ(shapes[m.find("res5b")].print(), "N=2 C=256 H=2 W=2");
  EXPECT_EQ(shapes[m.find("fc")].print(), "N=2 C=7");
  const Model mesh = mesh_tangling({.extent = 2048});
  EXPECT_EQ(mesh.shapes(1)[mesh.find("conv6_1")].print(), "N=1 C=128 H=32 W=32");
  EXPECT_GE(mesh.find("conv6_5"), 0);
  expect_error([] { builtin_model("resnet5"); }, {"'resnet5'", "did you mean 'resnet50'"});
  expect_error([] { alexnet({.extent = 20}); }, {"layer 'pool2' (max_pool)", "does not fit"});
  expect_error([] { builtin_model("lenet5", {.width = 0}); }, {"width is 0"});
  expect_error([] { unet3d({.extent = 12}); }, {"layer 'up3_skip' (concatenate)", "differ"});
}

}  // namespace

TEST(Model, ShapesOfTheBuiltInModel) {
  const Model m = fashion_cnn();
  const auto shapes = m.shapes(3);
  const auto shape = [&](const char* name) { return shapes[m.find(name)].print(); };
  EXPECT_EQ(shape("image"), "N=3 C=1 H=28 W=28");
  EXPECT_EQ(shape("conv1"), "N=3 C=32 H=28 W=28");
  EXPECT_EQ(shape("pool1"), "N=3 C=32 H=14 W=14");
  EXPECT_EQ(shape("conv2"), "N=3 C=64 H=14 W=14");
  EXPECT_EQ(shape("pool2"), "N=3 C=64 H=7 W=7");
  EXPECT_EQ(shape("fc1"), "N=3 C=128");
  EXPECT_EQ(shape("loss"), "N=3");
  EXPECT_EQ(m.find("conv3"), -1);
  // conv1, bn1, conv2, bn2, fc1, fc2; running statistics are not trained
  EXPECT_EQ(m.weights(), 32 * 9 + 2 * 32 + 64 * 32 * 9 + 2 * 64 + 128 * (64 * 49 + 1) + 10 * 129);
  EXPECT_EQ(m.weights(), 421738);
}

TEST(Model, BuiltInModelsByName) {
  for (const auto& name : builtin_models()) EXPECT_EQ(builtin_model(name).name(), name);
  expect_error([] { builtin_model("fashion_cnn"); }, {"'fashion_cnn'", "did you mean 'fashion-cnn'?"});
}

TEST(Model, SpatialDimensionsAreNamedFromTheLast) {
  EXPECT_EQ(conv_shape({9}, {.filters = 3}), "N=1 C=3 W=9");
  EXPECT_EQ(conv_shape({5, 7}, {.filters = 3}), "N=1 C=3 H=5 W=7");
  EXPECT_EQ(conv_shape({4, 5, 7}, {.filters = 3}), "N=1 C=3 D=4 H=5 W=7");
}

TEST(Model, NotationsOfWindows) {
  EXPECT_EQ(conv_shape({5, 7}, {.kernel = 3}), "N=1 C=1 H=3 W=5");
  EXPECT_EQ(conv_shape({5, 7}, {.kernel = {1, 3}}), "N=1 C=1 H=5 W=5");
  EXPECT_EQ(conv_shape({5, 7}, {.kernel = 3, .padding = 1}), "N=1 C=1 H=5 W=7");
  EXPECT_EQ(conv_shape({5, 7}, {.kernel = 3, .padding = {0, 2}}), "N=1 C=1 H=3 W=9");
  EXPECT_EQ(conv_shape({5, 7}, {.kernel = 3, .padding = {{0, 1}, {2, 3}}}), "N=1 C=1 H=4 W=10");
  EXPECT_EQ(conv_shape({5, 7}, {.kernel = 3, .stride = 2, .padding = 1}), "N=1 C=1 H=3 W=4");
  EXPECT_EQ(conv_shape({5, 7}, {.kernel = 3, .dilation = {1, 3}}), "N=1 C=1 H=3 W=1");
  EXPECT_EQ(pool_shape({5, 7}, {.window = 2}), "N=1 C=1 H=2 W=3");
  EXPECT_EQ(pool_shape({5, 7}, {.window = 2, .stride = 1}), "N=1 C=1 H=4 W=6");
  EXPECT_EQ(pool_shape({5, 7}, {.window = {5, 7}}), "N=1 C=1 H=1 W=1");
  EXPECT_EQ(pool_shape({5, 7}, {.window = 3, .padding = 1}), "N=1 C=1 H=2 W=3");
}

TEST(Model, WindowsThatCannotBe) {
  const auto refused = [](const Conv& conv, std::initializer_list<std::string_view> parts) {
    expect_error([&] { conv_shape({5, 7}, conv); }, {"layer 'c' (conv)"});
    expect_error([&] { conv_shape({5, 7}, conv); }, parts);
  };
  refused({.filters = 0}, {"filters is 0"});
  refused({.kernel = {1, 2, 3}}, {"kernel has 3 values for 2 spatial dimensions"});
  refused({.kernel = 0}, {"kernel is 0; it must be 1 or more"});
  refused({.stride = {1, 0}}, {"stride is 0"});
  refused({.dilation = -1}, {"dilation is -1"});
  refused({.padding = {1, 1, 1}}, {"padding has 3 values for 2 spatial dimensions"});
  refused({.padding = {{0, -1}, {0, 0}}}, {"padding is 0,-1; it must be 0 or more"});
  refused({.kernel = 7}, {"a reach of 7", "dimension H", "0 + 5 + 0"});
  expect_error([] { conv_shape({}, {}); }, {"layer 'c' (conv)", "needs spatial dimensions", "N=1 C=2"});
  expect_error(
      [] {
        pool_shape({5, 7}, {.window = 2, .padding = 2});
      },
      {"layer 'p' (max_pool)",
       "window 0 of dimension H covers only padding: it reads the places -2 to -1 in steps of 1, but "
       "the inputs are 0 to 4; pad less"});
  expect_error([] { pool_shape({1}, {.window = 2, .padding = 1, .dilation = 2}); },
               {"window 0 of dimension W covers only padding: it reads the places -1 to 1 in steps of 2, but the "
                "inputs are 0 to "
                "0; pad less, or dilate less"});
  EXPECT_EQ(pool_shape({3}, {.window = 2, .stride = 1, .padding = 1, .dilation = 2}), "N=1 C=1 W=3");
}

// Each of these would overflow 64 bits somewhere, or take hours.
TEST(Model, HugeNumbersAreRefused) {
  constexpr Index huge = 4'000'000'000'000'000'000, most = 2'147'483'647;
  const auto refused = [](const auto& add, std::initializer_list<std::string_view> parts) {
    expect_error(
        [&] {
          Begun begun;
          add(begun.m, begun.t);
        },
        parts);
  };
  refused([](Model& m, const Value& t) { m.max_pool("p", t, {.padding = huge}); },
          {"padding is 4000000000000000000,4000000000000000000; it must be 2147483647 or less"});
  refused(
      [](Model& m, const Value& t) {
        m.max_pool("p", t, {.padding = {{0, most + 1}, {0, 0}}});
      },
      {"padding is 0,2147483648; it must be 2147483647 or less"});
  refused([](Model& m, const Value& t) { m.conv("c", t, {.kernel = most + 1}); },
          {"kernel is 2147483648; it must be 2147483647 or less"});
  refused([](Model& m, const Value& t) { m.conv("c", t, {.kernel = most, .padding = most}); },
          {"more than 2^48 elements"});
  refused([](Model& m, const Value& t) { m.conv("c", t, {.kernel = most, .dilation = most}); },
          {"a reach of 4611686011984936963"});
  refused([](Model& m, const Value& t) { m.conv("c", t, {.filters = huge}); }, {"more than 2^48 elements"});
  refused([](Model& m, const Value& t) { m.conv_transpose("c", t, {.stride = most}); }, {"more than 2^48 elements"});
  refused([](Model& m, const Value& t) { m.upsample("u", t, {.scale = most}); }, {"more than 2^48 elements"});
  refused([](Model& m, const Value& t) { m.upsample("u", t, {.scale = huge}); }, {"scale is 4000000000000000000"});
  refused([](Model& m, const Value& t) { m.crop("c", t, huge); }, {"margin is 4000000000000000000"});
  refused(
      [](Model& m, const Value&) {
        m.input("i", {.spatial = {Index{1} << 40, Index{1} << 40}});
      },
      {"layer 'i'", "more than 2^48 elements"});
  refused(
      [](Model& m, const Value&) {
        const Value line = m.input("i", {.spatial = {Index{1} << 45}});
        m.conv_transpose("c", line, {.kernel = 3, .stride = 1 << 20});
      },
      {"dimension W would have 35184372088831 * 1048576 elements; a tensor has at most 2^48"});
  // The windows that cannot read padding alone are not looked at one by one.
  Model m;
  const Value line = m.input("i", {.spatial = {Index{1} << 40}});
  m.max_pool("p", line, {.window = 3, .stride = 1, .padding = 1});
  EXPECT_EQ(m.shapes(1).back().print(), "N=1 C=1 W=1099511627776");
}

TEST(Model, LayersThatDoNotFitAreNamed) {
  expect_error([] { Begun().m.input("in", {}); }, {"layer 'in'", "another layer has this name"});
  expect_error([] { Begun().m.input("a b", {}); }, {"layer 'a b'", "without blanks"});
  expect_error([] { Begun().m.input("a*", {}); }, {"layer 'a*'"});
  expect_error([] { Begun().m.input("", {}); }, {"layer ''"});
  for (const char* name : {"/a", "a/", "a//b", "/"})
    expect_error([&] { Begun().m.input(name, {}); }, {fmt::format("layer '{}'", name), "must stand between two words"});
  for (const char* name : {".", "..", "a/..", "./a", "a/./b"})
    expect_error([&] { Begun().m.input(name, {}); }, {fmt::format("layer '{}'", name), "must not be '."});
  for (const char* name : {"a/b", "a.b", "..a/b.."})
    EXPECT_EQ(error_of([&] { Begun().m.input(name, {.channels = 1, .spatial = {}}); }), "") << name;
  expect_error([] { Begun().m.relu("r", {}); }, {"layer 'r'", "not a layer of this model"});
  expect_error([] { Begun().m.relu("r", {7, "in", "model"}); }, {"layer 'r'", "not a layer of this model"});
  const Begun begun;
  EXPECT_EQ(begun.m.find(begun.m.value("in")), 0);
  expect_error([&] { begun.m.value("im"); }, {"'model' has no layer 'im'", "did you mean 'in'?"});
  expect_error([&] { begun.m.find({0, "in", "other"}); }, {"'in' is of another model, 'other'"});
  expect_error(
      [] {
        Begun b;
        b.m.layer("r", std::make_shared<ActivationOperator>(Activation{}), {b.t, b.t});
      },
      {"layer 'r' (relu)", "takes 1 inputs, not 2"});
  expect_error(
      [] {
        Begun b;
        b.m.add("sum", b.t, b.m.conv("c", b.t, {.filters = 3}));
      },
      {"layer 'sum' (add)", "N=1 C=2 H=5 W=7", "N=1 C=3 H=5 W=7"});
  expect_error(
      [] {
        Begun b;
        b.m.linear("fc", b.t, {.features = 0});
      },
      {"layer 'fc' (linear)", "features is 0"});
  expect_error(
      [] {
        Begun b;
        b.m.softmax_dice("loss", b.m.global_average_pool("mean", b.t));
      },
      {"layer 'loss' (softmax_dice)", "with spatial dimensions", "N=1 C=2"});
}

TEST(Model, ParametersOutOfRange) {
  Begun b;
  EXPECT_NE(error_of([&] { b.m.dropout("d", b.t, {.rate = 1}); }), "");
  EXPECT_NE(error_of([&] { b.m.dropout("d", b.t, {.rate = std::nan("")}); }), "");
  expect_error([&] { b.m.batch_norm("bn", b.t, {.epsilon = 0}); }, {"layer 'bn'", "epsilon is 0"});
  expect_error([&] { b.m.batch_norm("bn", b.t, {.momentum = 2}); }, {"layer 'bn'", "momentum is 2"});
  expect_error([] { Model().input("in", {.channels = 0, .spatial = {}}); }, {"channels is 0"});
  expect_error([] { Model().input("in", {.spatial = {1, 0}}); }, {"spatial extent is 0"});
  expect_error([] { Model().input("in", {.spatial = {1, 1, 1, 1}}); }, {"at most 3"});
  EXPECT_EQ(b.m.layers().size(), 1U) << "a refused layer was kept";
}

TEST(Model, Describes) {
  Begun b;
  auto t = b.m.conv("c", b.t, {.filters = 3, .kernel = {1, 3}, .padding = {{0, 0}, {1, 0}}, .bias = false});
  t = b.m.add("sum", t, b.m.relu("r", t));
  b.m.dropout("d", b.m.average_pool("p", t, {.window = 2, .count_padding = true}), {.rate = 0.25});
  EXPECT_EQ(b.m.describe(),
            "model\n"
            "in = input() C=2 H=5 W=7 -> N=1 C=2 H=5 W=7\n"
            "c = conv(in) 3 filters 1/1 x 3/1 pad 1,0 no bias -> N=1 C=3 H=5 W=6\n"
            "r = relu(c)  -> N=1 C=3 H=5 W=6\n"
            "sum = add(c, r)  -> N=1 C=3 H=5 W=6\n"
            "p = average_pool(sum) 2/2 padding counts -> N=1 C=3 H=2 W=3\n"
            "d = dropout(p) rate 0.25 -> N=1 C=3 H=2 W=3\n");
}

TEST(Model, ActivationsDescribeTheirParameters) {
  Begun b;
  auto t = b.m.elu("e", b.m.leaky_relu("l", b.t, 0.2));
  t = b.m.silu("s", b.m.gelu("g", b.m.tanh("t", b.m.sigmoid("si", t))));
  b.m.global_average_pool("mean", t);
  EXPECT_EQ(b.m.describe(),
            "model\n"
            "in = input() C=2 H=5 W=7 -> N=1 C=2 H=5 W=7\n"
            "l = leaky_relu(in) slope 0.2 -> N=1 C=2 H=5 W=7\n"
            "e = elu(l) alpha 1 -> N=1 C=2 H=5 W=7\n"
            "si = sigmoid(e)  -> N=1 C=2 H=5 W=7\n"
            "t = tanh(si)  -> N=1 C=2 H=5 W=7\n"
            "g = gelu(t)  -> N=1 C=2 H=5 W=7\n"
            "s = silu(g)  -> N=1 C=2 H=5 W=7\n"
            "mean = global_average_pool(s)  -> N=1 C=2\n");
  expect_error([&] { b.m.leaky_relu("z", b.t, 0); }, {"layer 'z'", "slope is 0"});
  expect_error([&] { b.m.elu("z", b.t, -1); }, {"layer 'z'", "alpha is -1"});
  expect_error([&] { b.m.global_average_pool("z", b.m.value("mean")); },
               {"layer 'z'", "window needs spatial dimensions"});
}

TEST(Model, NormalizesGroups) {
  Begun b;
  const auto c = b.m.conv("c", b.t, {.filters = 6});
  b.m.group_norm("g", c, {.groups = 3});
  b.m.instance_norm("i", c);
  b.m.layer_norm("l", c, {.epsilon = 1e-3});
  const std::string text = b.m.describe();
  for (const auto* line : {"g = group_norm(c) 3 groups epsilon 1e-05 ", "i = group_norm(c) 6 groups epsilon 1e-05 ",
                           "l = group_norm(c) 1 groups epsilon 0.001 "})
    EXPECT_NE(text.find(line), std::string::npos) << text;
  expect_error([&] { b.m.group_norm("z", c, {.groups = 4}); }, {"layer 'z'", "4 groups do not divide 6 channels"});
  expect_error([&] { b.m.group_norm("z", c, {.groups = 0}); }, {"layer 'z'", "groups is 0"});
  expect_error([&] { b.m.instance_norm("z", {17, "in", "model"}); }, {"layer 'z'", "not a layer of this model"});
}

TEST(Model, HoldsSequences) {
  Model m("sequence");
  auto t = m.input("in", {.channels = 6, .length = 9});
  t = m.linear("wide", t, {.features = 24, .per_place = true});
  t = m.linear("narrow", m.gelu("gelu", t), {.features = 6, .bias = false, .per_place = true});
  m.conv("next", t, {.filters = 4, .kernel = 3, .padding = {{2, 0}}});
  EXPECT_EQ(m.describe(),
            "sequence\n"
            "in = input() C=6 L=9 -> N=1 C=6 L=9\n"
            "wide = linear(in) 24 features per place -> N=1 C=24 L=9\n"
            "gelu = gelu(wide)  -> N=1 C=24 L=9\n"
            "narrow = linear(gelu) 6 features per place no bias -> N=1 C=6 L=9\n"
            "next = conv(narrow) 4 filters 3/1 pad 2,0 -> N=1 C=4 L=9\n");
  const std::vector<Shape> inputs{m.shapes(1)[0]};
  EXPECT_EQ(m.layers()[1].op->weights(inputs)[0].shape.print(), "F=24 C=6");
  expect_error([&] { m.input("z", {.length = -1}); }, {"length is -1"});
  expect_error([&] { m.input("z", {.spatial = {3}, .length = 2}); }, {"not both"});
  expect_error([&] { m.linear("z", t, {.features = 0, .per_place = true}); }, {"layer 'z'", "features is 0"});
  expect_error([&] { m.linear("z", t, {.activation = Activation{Activation::Kind::relu}, .per_place = true}); },
               {"layer 'z'", "has no activation of its own"});
}

TEST(Model, OnlyEmbeddingsReadTokens) {
  Model m;
  const Value tokens = m.input("tokens", {.length = 4, .tokens = true});
  expect_error([&] { m.relu("bent", tokens); }, {"layer 'bent' (relu): its input 'tokens' holds tokens"});
  const Value x = m.embedding("embedding", tokens, {.vocabulary = 9, .features = 12});
  expect_error([&] { m.add("sum", x, tokens); }, {"layer 'sum' (add): its input 'tokens' holds tokens"});
  expect_error([&] { m.embedding("again", x, {.vocabulary = 9}); },
               {"layer 'again' (embedding): its input 'embedding' holds values"});
  expect_error([&] { m.attention("attention", x, {.heads = 5}); }, {"12 channels", "a multiple of 15"});
  expect_error([&] { m.attention("attention", x, {.heads = 3, .groups = 2}); }, {"2 groups do not divide 3 heads"});
  expect_error([&] { m.rotary("rotary", x, {.heads = 4}); }, {"a head has 1 channels", "even"});
  expect_error([&] { m.positions("positions", x, {.places = 1}); }, {"its table has 1 places, but its input"});
}

TEST(Model, AttentionReadsSegments) {
  Model m("packed");
  const Value tokens = m.input("tokens", {.length = 4, .tokens = true});
  const Value segments = m.input("segments", {.length = 4, .tokens = true});
  const Value x = m.embedding("embedding", tokens, {.vocabulary = 9, .features = 12});
  const Value y = m.attention("attention", x, segments, {.heads = 2, .causal = true});
  EXPECT_EQ(m.describe(),
            "packed\n"
            "tokens = input() C=1 L=4 tokens -> N=1 C=1 L=4\n"
            "segments = input() C=1 L=4 tokens -> N=1 C=1 L=4\n"
            "embedding = embedding(tokens) 12 of 9 tokens deviation 0.02 -> N=1 C=12 L=4\n"
            "attention = attention(embedding, segments) 2 heads 0 groups causal segments -> N=1 C=4 L=4\n");
  expect_error([&] { m.attention("z", x, x, {.heads = 2}); },
               {"layer 'z' (attention): its input 'embedding' holds values; give an input with Input::tokens"});
  expect_error([&] { m.attention("z", tokens, segments, {.heads = 2}); }, {"its input 'tokens' holds tokens"});
  const Value others = m.input("others", {.length = 3, .tokens = true}),
              bags = m.input("bags", {.channels = 2, .length = 4, .tokens = true});
  expect_error(
      [&] { m.attention("z", x, others, {.heads = 2}); },
      {"its segments are N=1 C=1 L=3 for the sequence N=1 C=12 L=4; give one number for each place, N=1 C=1 L=4"});
  expect_error([&] { m.attention("z", x, bags, {.heads = 2}); }, {"its segments are N=1 C=2 L=4"});
}

// The places of a text that is continued are one document.
TEST(Model, APassOverPlacesHasNoSegments) {
  Model m;
  const Value tokens = m.input("tokens", {.length = 4, .tokens = true});
  const Value segments = m.input("segments", {.length = 4, .tokens = true});
  Value x = m.embedding("embedding", tokens, {.vocabulary = 9, .features = 12});
  x = m.attention("attention", x, segments, {.heads = 2, .causal = true});
  const Model pass = m.at_places(2);
  EXPECT_EQ(pass.inputs(), std::vector<int>{0});
  EXPECT_EQ(pass.layers()[2].inputs, std::vector<int>{1});
  m.add("sum", m.embedding("of_segments", segments, {.vocabulary = 4, .features = 4}), x);
  expect_error([&] { static_cast<void>(m.at_places(2)); }, {"has 2 inputs, and a sequence has one"});
}

TEST(Model, HasInputsTablesAndInteractions) {
  Model m("tables");
  const Value dense = m.input("dense", {.channels = 4});
  const Value indices = m.input("indices", {.channels = 3, .length = 5, .tokens = true});
  const Value rows = m.tables("rows", indices, {.rows = 9, .features = 4, .mean = true});
  m.interaction("pairs", rows, dense);
  EXPECT_EQ(m.inputs(), (std::vector<int>{0, 1}));
  EXPECT_EQ(m.describe(),
            "tables\n"
            "dense = input() C=4 -> N=1 C=4\n"
            "indices = input() C=3 L=5 tokens -> N=1 C=3 L=5\n"
            "rows = tables(indices) 4 of 9 rows mean -> N=1 C=4 L=5\n"
            "pairs = interaction(rows, dense)  -> N=1 C=19\n");
  const std::vector<Shape> inputs{m.shapes(1)[1]};
  const WeightSpec table = m.layers()[2].op->weights(inputs)[0];
  EXPECT_EQ(table.shape.print(), "V=9 C=4 L=5");
  EXPECT_NEAR(table.deviation, 1 / std::sqrt(27.), 1e-15);
  expect_error([&] { m.tables("z", rows, {}); },
               {"layer 'z' (tables): its input 'rows' holds values; give an input with Input::tokens"});
  expect_error([&] { m.embedding("z", indices, {}); }, {"has 3 channels; tokens have 1"});
  expect_error([&] { m.tables("z", indices, {.rows = 0}); }, {"rows is 0; it must be 1 to 2147483647"});
  expect_error([&] { m.tables("z", indices, {.features = 0}); }, {"features is 0"});
  expect_error([&] { m.tables("z", m.input("flat", {.tokens = true}), {}); }, {"has no dimension L"});
  expect_error([&] { m.interaction("z", dense, dense); }, {"its vectors N=1 C=4 must have the dimensions N C L"});
  expect_error([&] { m.interaction("z", rows, rows); }, {"its dense input", "must have the dimensions N C"});
  const Value wide = m.linear("wide", dense, {.features = 5});
  expect_error([&] { m.interaction("z", rows, wide); }, {"differ in channels"});
  expect_error([&] { m.at_places(1); }, {"the model 'tables' has 2 inputs, and a sequence has one"});
}

// The tables of 26 categories, and the perceptrons of Naumov et al. 2019 for Criteo Kaggle.
TEST(Model, DlrmHasThePublishedWeights) {
  const auto linear = [](Index in, Index out) { return in * out + out; };
  EXPECT_EQ(builtin_model("dlrm").weights(), 26 * 10000 * 16 + linear(13, 512) + linear(512, 256) + linear(256, 64) +
                                                 linear(64, 16) + linear(16 + 27 * 26 / 2, 512) + linear(512, 256) +
                                                 linear(256, 2));
  expect_error([] { builtin_model("dlrm", {.extent = 9}); }, {"dlrm has no extent"});
  expect_error([] { builtin_model("dlrm", {.tables = {.rows = -1}}); }, {"rows is -1"});
  expect_error([] { builtin_model("mlp", {.tables = {.bag = 2}}); }, {"mlp has no bag"});
}

TEST(Model, PassesOverSomePlacesHaveTheWeightsOfAllPlaces) {
  const Model gpt = builtin_model("gpt", {.transformer = {.layers = 1, .hidden = 8, .heads = 2, .sequence = 6}});
  for (const Index places : {1, 4, 6}) {
    const Model pass = gpt.at_places(places);
    EXPECT_EQ(pass.weights(), gpt.weights());
    EXPECT_EQ(pass.layers().size(), gpt.layers().size());
    EXPECT_EQ(pass.shapes()[static_cast<std::size_t>(pass.find("scores"))]['L'], places);
  }
  for (const Index places : {0, 7}) expect_error([&] { gpt.at_places(places); }, {"the model 'gpt'; it has 1 to 6"});
  expect_error([&] { builtin_model("vit").at_places(1); }, {"the model 'vit' reads no sequences of tokens"});
}

TEST(Model, ExpertsAreGroupsOfChannelsAndSlotsArePlaces) {
  Model m;
  const Value x = m.input("x", {.channels = 6, .length = 7});
  const Value scores = m.linear("scores", x, {.features = 3, .per_place = true});
  // slots = capacity * chosen * 7 / 3, rounded up, but no more than 7
  for (const auto& [chosen, capacity, slots] : std::vector<std::tuple<Index, double, Index>>{
           {1, 1, 3}, {1, 1.25, 3}, {1, 1.3, 4}, {2, 1, 5}, {3, 1, 7}, {1, 3, 7}, {2, 1e300, 7}, {1, 1e-300, 1}}) {
    const std::string name = fmt::format("sent{}", m.layers().size());
    const Value sent = m.dispatch(name, x, scores, {.experts = 3, .chosen = chosen, .capacity = capacity});
    EXPECT_EQ(m.shapes()[static_cast<std::size_t>(sent.layer)].print(), fmt::format("N=1 C=18 L={}", slots));
  }
  const Experts three{.experts = 3, .chosen = 2};
  const Value sent = m.dispatch("sent", x, scores, three);
  const Value wide = m.linear("wide", sent, {.features = 12, .per_place = true, .groups = 3});
  EXPECT_EQ(
      m.layers().back().op->weights(std::array{m.shapes()[static_cast<std::size_t>(sent.layer)]})[0].shape.print(),
      "F=12 C=6");
  const Value back = m.combine("back", scores, wide, three);
  EXPECT_EQ(m.shapes()[static_cast<std::size_t>(back.layer)].print(), "N=1 C=4 L=7");
  const auto refuse = [&](const Experts& experts, const char* why) {
    expect_error([&] { m.dispatch("z", x, scores, experts); }, {"layer 'z' (dispatch)", why});
  };
  refuse({.experts = 0}, "experts is 0; it must be 1 or more");
  refuse({.experts = 4}, "its scores N=1 C=3 L=7 have 3 channels for 4 experts");
  refuse({.experts = 3, .chosen = 4}, "a place chooses 4 of 3 experts; it must choose 1 to 3");
  refuse({.experts = 3, .chosen = 0}, "a place chooses 0 of 3 experts");
  for (const double capacity : {0.0, -1.0, std::nan("")})
    refuse({.experts = 3, .capacity = capacity}, "; it must be more than 0: 1 gives each expert its even share");
  refuse({.experts = 3, .balance = -1}, "balance is -1; it must be 0 or more");
  expect_error([&] { m.dispatch("z", m.input("i", {.length = 6}), scores, three); },
               {"have other places than N=1 C=1 L=6"});
  expect_error([&] { m.combine("z", scores, x, three); }, {"its slots N=1 C=6 L=7 are not the 6 slots of each expert"});
  expect_error([&] { m.combine("z", scores, m.linear("odd", sent, {.features = 4, .per_place = true}), three); },
               {"3 experts do not divide the 4 channels of its slots"});
  const Value image = m.input("image", {.channels = 3, .spatial = {2, 2}});
  expect_error([&] { m.dispatch("z", image, image, three); }, {"are no sequence; experts need places"});
  expect_error([&] { m.linear("z", x, {.features = 4, .per_place = true, .groups = 3}); },
               {"3 groups do not divide 6 channels and 4 features"});
  expect_error([&] { m.linear("z", x, {.features = 3, .groups = 3}); }, {"only a linear layer per place has groups"});
}

TEST(Model, ExpertsThatDropNoPlaceContinueTexts) {
  const auto gpt = [](double capacity) {
    return builtin_model("gpt", {.transformer = {.layers = 1,
                                                 .hidden = 8,
                                                 .heads = 2,
                                                 .sequence = 6,
                                                 .experts = {.experts = 4, .chosen = 2, .capacity = capacity}}});
  };
  const Model pass = gpt(2).at_places(1);
  EXPECT_EQ(pass.weights(), gpt(2).weights());
  EXPECT_EQ(pass.shapes()[static_cast<std::size_t>(pass.find("block1_dispatch"))].print(), "N=1 C=32 L=1");
  expect_error([&] { gpt(1.9).at_places(1); },
               {"layer 'block1_dispatch' (dispatch) computes a place of its output from"});
  expect_error([] { builtin_model("vgg16", {.transformer = {.experts = {.experts = 2}}}); }, {"vgg16 has no experts"});
}

TEST(Model, ScoresMayShareTheTableOfAnEmbedding) {
  const auto gpt = [](bool tied) {
    return builtin_model("gpt",
                         {.transformer = {.layers = 1, .hidden = 8, .heads = 2, .vocabulary = 13, .tied = tied}});
  };
  EXPECT_EQ(gpt(false).weights() - gpt(true).weights(), 13 * 8);
  EXPECT_EQ(builtin_model("bert").weights() - builtin_model("bert", {.transformer = {.tied = true}}).weights(),
            30522 * 768)
      << "the bias stays";
  EXPECT_EQ(gpt(true).at_places(1).weights(), gpt(true).weights());
  EXPECT_NE(gpt(true).describe(), gpt(false).describe());
  expect_error([] { builtin_model("vit", {.transformer = {.tied = true}}); }, {"vit has no embedding"});
  const auto refused = [](const Linear& linear, std::initializer_list<std::string_view> parts) {
    Model m("text");
    Value t = m.input("in", {.length = 5, .tokens = true});
    t = m.linear("first", m.embedding("embedding", t, {.vocabulary = 7, .features = 4}),
                 {.features = 7, .per_place = true, .tied_to = "embedding"});
    t = m.embedding("other", m.input("more", {.length = 5, .tokens = true}), {.vocabulary = 9, .features = 7});
    expect_error([&] { m.linear("scores", t, linear); }, parts);
  };
  refused({.features = 9, .per_place = true, .tied_to = "first"},
          {"layer 'scores' (linear)", "tied_to is 'first', which is no embedding before it",
           "it has 'embedding', 'other'"});
  refused({.features = 9, .per_place = true, .tied_to = "others"}, {"no embedding", "did you mean 'other'?"});
  refused({.features = 8, .per_place = true, .tied_to = "other"},
          {"\"V=8 C=7\"", "the table \"V=9 C=7\" of 'other'", "as many features as that has tokens"});
  refused({.features = 7, .per_place = true, .tied_to = "embedding"}, {"'embedding' is tied to 'first' already"});
  refused({.features = 9, .tied_to = "other"}, {"only a linear layer per place"});
  refused({.features = 9, .per_place = true, .deviation = 1, .tied_to = "other"}, {"the layer draws no weights"});
  refused({.features = 9, .per_place = true, .groups = 3, .tied_to = "other"}, {"without groups"});
}

// GPT-2 small has 124,439,808 weights, where the scores share the table of the embedding.
TEST(Model, TransformersHaveThePublishedWeights) {
  EXPECT_EQ(builtin_model("gpt2-small").weights(), 124439808);
  const double large = static_cast<double>(builtin_model("gpt-175b").weights());
  EXPECT_NEAR(large / 175e9, 1, 0.01);
  expect_error([] { builtin_model("gpt", {.transformer = {.heads = 3}}); }, {"3 heads do not divide 256"});
  expect_error([] { builtin_model("gpt", {.extent = 9}); }, {"gpt has a sequence"});
  expect_error([] { builtin_model("lenet5", {.transformer = {.layers = 2}}); }, {"lenet5 has no layers"});
}

TEST(Model, ConcatenatesChannels) {
  Begun b;
  const auto c = b.m.conv("c", b.t, {.filters = 3});
  b.m.concatenate("cat", {b.t, c, b.t});
  EXPECT_EQ(b.m.shapes(1)[2].print(), "N=1 C=7 H=5 W=7");
  expect_error([&] { b.m.concatenate("z", {}); }, {"layer 'z'", "nothing to concatenate"});
  expect_error(
      [&] {
        b.m.concatenate("z", {b.t, b.m.max_pool("p", c, {.window = 2})});
      },
      {"layer 'z' (concatenate)", "differ in more than channels"});
  expect_error([&] { b.m.concatenate("z", {b.t, b.m.global_average_pool("g", c)}); }, {"differ in dimensions"});
}

TEST(Model, DescribesALayerThatReadsOneInputTwice) {
  Begun b;
  b.m.add("sum", b.t, b.t);
  EXPECT_EQ(b.m.describe(),
            "model\nin = input() C=2 H=5 W=7 -> N=1 C=2 H=5 W=7\nsum = add(in, in)  -> N=1 C=2 H=5 W=7\n");
}

TEST(Model, WeightsAndFlops) {
  const ConvOperator conv({.filters = 4, .kernel = {3, 5}});
  const std::vector<Shape> x{{{'N', 2}, {'C', 3}, {'H', 7}, {'W', 9}}};
  const auto specs = conv.weights(x);
  ASSERT_EQ(specs.size(), 2U);
  EXPECT_EQ(specs[0].shape.print(), "F=4 C=3 H=3 W=5");
  EXPECT_EQ(specs[1].shape.print(), "F=4");
  EXPECT_FALSE(specs[1].decay);
  EXPECT_DOUBLE_EQ(specs[0].deviation, std::sqrt(2.0 / 45));
  const Shape y = conv.output(x);
  EXPECT_EQ(y.print(), "N=2 C=4 H=5 W=5");
  EXPECT_DOUBLE_EQ(conv.flops(x, y), 2.0 * 2 * 4 * 5 * 5 * 45);
  const LinearOperator linear({.features = 5});
  EXPECT_EQ(linear.weights(x)[0].shape.print(), "F=5 C=3 H=7 W=9");
  EXPECT_DOUBLE_EQ(linear.flops(x, linear.output(x)), 2.0 * 2 * 5 * 189);
}

}  // namespace partita::test::model_test
