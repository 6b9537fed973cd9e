#include "test/support/error_of.hpp"
#include "test/support/functors.hpp"
#include "test/support/naive.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

namespace partita::sequences_test {
namespace {

using naive::Generator;

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

Box box_of(Index samples, Interval channels, Interval places) {
  Box box(3);
  box[0] = {1, 1 + samples};
  box[1] = channels;
  box[2] = places;
  return box;
}

/// Boxes N C L that do not begin at the origin. The kernels need chunks for some, and some are empty.
std::vector<Box> boxes() {
  std::vector<Box> all;
  for (const auto& [samples, channels, places] : std::vector<std::array<Index, 3>>{
           {2, 7, 13}, {1, 1, 1}, {3, 1, 5}, {1, 2, 3}, {1, 67, 11}, {2, 128, 2}, {2, 0, 3}, {0, 5, 2}, {2, 3, 0}})
    all.push_back(box_of(samples, {3, 3 + channels}, {4, 4 + places}));
  return all;
}

double tolerance(DType dtype) {
  return dtype == DType::f64 ? 1e-12 : dtype == DType::f32 ? 4e-6 : dtype == DType::bf16 ? 2e-2 : 3e-3;
}

Tensor vector_of(DType dtype, Index count) { return test::tensor(dtype, "C", Box(Shape{{'C', count}})); }

void set_all(const Tensor& tensor, double value) {
  for (Index i = 0; i < tensor.volume(); ++i) tensor.set(i, value);
}

/// Returns a copy of the elements as f64.
Tensor exact(const Tensor& tensor) {
  Tensor copy = tensor.like(DType::f64);
  for (Index i = 0; i < tensor.volume(); ++i) copy.set(i, tensor.get(i));
  return copy;
}

void expect_near(const Tensor& found, const Tensor& expected, double tolerance) {
  ASSERT_EQ(found.volume(), expected.volume());
  for (Index i = 0; i < found.volume(); ++i)
    ASSERT_NEAR(found.get(i), expected.get(i), tolerance * (1 + std::abs(expected.get(i)))) << "element " << i;
}

/// Calls check(backend) for every backend.
template <class Check>
void for_backends(const Check& check) {
  for (const auto& backend : test::all_types()) {
    SCOPED_TRACE(backend->name());
    check(*backend);
  }
}

class Sequences : public testing::TestWithParam<DType> {
 protected:
  Generator random{5};
  Tensor drawn(const Box& box) { return random.tensor(GetParam(), "NCL", box); }
};
INSTANTIATE_TEST_SUITE_P(DTypes, Sequences, testing::Values(DType::f64, DType::f32, DType::bf16, DType::f16));

/// What a normalization of rows gives, by its definition.
struct NormedRows {
  std::vector<double> y, dx, dscale, dshift;

  NormedRows(const RowNorm& norm, const Tensor& x, const Tensor& dy, const Tensor& scale, const Tensor& shift)
      : y(static_cast<std::size_t>(x.volume())),
        dx(y),
        dscale(static_cast<std::size_t>(x.extent('C'))),
        dshift(dscale) {
    const auto channels = static_cast<Index>(dscale.size());
    for (Index row = 0; row < x.volume(); row += std::max<Index>(channels, 1)) {
      const auto mean_of = [&](auto value) {
        long double sum = 0;
        for (Index c = 0; c < channels; ++c) sum += static_cast<long double>(value(c));
        return static_cast<double>(sum / static_cast<long double>(channels));
      };
      const double mean = norm.centered ? mean_of([&](Index c) { return x.get(row + c); }) : 0;
      const double variance = mean_of([&](Index c) { return std::pow(x.get(row + c) - mean, 2); });
      const double r = 1 / std::sqrt(variance + norm.epsilon);
      const auto xhat = [&](Index c) { return (x.get(row + c) - mean) * r; };
      const auto g = [&](Index c) { return dy.get(row + c) * scale.get(c); };
      const double of_g = norm.centered ? mean_of(g) : 0, of_xhat = mean_of([&](Index c) { return g(c) * xhat(c); });
      for (Index c = 0; c < channels; ++c) {
        y[row + c] = scale.get(c) * xhat(c) + (shift ? shift.get(c) : 0);
        dx[row + c] = r * (g(c) - of_g - xhat(c) * of_xhat);
        dscale[c] += dy.get(row + c) * xhat(c);
        dshift[c] += dy.get(row + c);
      }
    }
  }
};

void expect_all(const Tensor& found, const std::vector<double>& expected, double before, double tolerance) {
  for (Index i = 0; i < found.volume(); ++i)
    ASSERT_NEAR(found.get(i), before + expected[i], tolerance * (1 + std::abs(expected[i]))) << "element " << i;
}

TEST_P(Sequences, RowNormIsItsDefinition) {
  for_backends([&](Backend& backend) {
    for (const Box& box : boxes())
      for (const RowNorm norm : {RowNorm{}, RowNorm{0.1, false}, RowNorm{0.5, true}})
        for (const Write write : {Write::over, Write::add}) {
          SCOPED_TRACE(fmt::format("{} {} {}", box.print(), norm.centered, write == Write::add));
          const bool shifted = write == Write::over || norm.centered;
          const Index channels = box.extent(1);
          const Tensor x = drawn(box), dy = drawn(box), y = x.like(box), dx = x.like(box);
          const Tensor scale = random.tensor(GetParam(), "C", Box(Shape{{'C', channels}})),
                       shift = shifted ? random.tensor(GetParam(), "C", scale.box()) : Tensor();
          const Tensor dscale = scale.like(scale.box()), dshift = shifted ? scale.like(scale.box()) : Tensor();
          const double before = write == Write::add ? 0.5 : nan;
          set_all(dscale, before);
          if (shifted) set_all(dshift, before);
          const NormedRows expected(norm, x, dy, scale, shift);
          backend.row_norm_forward(norm, x, scale, shift, y, {});
          backend.row_norm_backward(norm, x, dy, scale, {}, dx, {dscale, dshift, write}, {});
          // A row of few channels that are nearly the same is scaled up by as much as 1/sqrt(epsilon).
          const double off = tolerance(GetParam()) * (channels < 3 ? 100 : 4), kept = write == Write::add ? 0.5 : 0;
          expect_all(y, expected.y, 0, off);
          expect_all(dx, expected.dx, 0, off);
          const Tensor again = dx.like(dx.box());
          backend.row_norm_backward(norm, x, dy, scale, {}, again, {}, {});
          expect_all(again, expected.dx, 0, off);
          // Added to another gradient, which may have the memory of dx, it is rounded once.
          const Tensor added = drawn(box), both = x.like(box);
          std::vector<double> sum = expected.dx;
          for (Index i = 0; i < added.volume(); ++i) sum[i] += added.get(i);
          backend.row_norm_backward(norm, x, dy, scale, added, both, {}, {});
          expect_all(both, sum, 0, off);
          backend.row_norm_backward(norm, x, dy, scale, added, added, {}, {});
          for (Index i = 0; i < both.volume(); ++i) ASSERT_EQ(added.get(i), both.get(i)) << i;
          if (write == Write::over) backend.row_norm_backward(norm, x, dy, scale, {}, {}, {dscale, dshift, write}, {});
          expect_all(dscale, expected.dscale, kept, off);
          if (shifted) expect_all(dshift, expected.dshift, kept, off);
        }
  });
}

// The definition of the gradient above, and thus every backend's, is the derivative.
TEST(RowNorms, GradientIsTheDerivative) {
  for_backends([&](Backend& backend) {
    Generator random(6);
    for (const RowNorm norm : {RowNorm{0.1, true}, RowNorm{0.1, false}}) {
      const Box box = box_of(2, {0, 5}, {0, 3}), channels(Shape{{'C', 5}});
      const Tensor x = random.tensor(DType::f64, "NCL", box), dy = random.tensor(DType::f64, "NCL", box);
      const Tensor scale = random.tensor(DType::f64, "C", channels), shift = random.tensor(DType::f64, "C", channels);
      const Tensor y = x.like(box), dx = x.like(box), dscale = scale.like(channels), dshift = scale.like(channels);
      backend.row_norm_backward(norm, x, dy, scale, {}, dx, {dscale, dshift, Write::over}, {});
      const auto loss = [&] {
        backend.row_norm_forward(norm, x, scale, shift, y, {});
        return naive::dot(y, dy);
      };
      for (const auto& [of, gradient] : {std::pair{x, dx}, std::pair{scale, dscale}, std::pair{shift, dshift}})
        for (Index i = 0; i < of.volume(); ++i) {
          constexpr double h = 1e-5;
          const double at = of.get(i);
          of.set(i, at + h);
          const double above = loss();
          of.set(i, at - h);
          const double below = loss();
          of.set(i, at);
          EXPECT_NEAR(gradient.get(i), (above - below) / (2 * h), 1e-8);
        }
    }
  });
}

// Deviations from a large mean are as exact as the elements. So they are from the mean of a row with a single large
// element, wherever it stands.
TEST(RowNorms, LargeElementsDoNoHarm) {
  for_backends([&](Backend& backend) {
    const Box box = box_of(1, {0, 130}, {0, 7});
    const Tensor x = test::tensor(DType::f32, "NCL", box), y = x.like(box), dy = x.like(box), dx = x.like(box);
    const Tensor scale = vector_of(DType::f32, 130), dscale = vector_of(DType::f32, 130);
    set_all(scale, 1);
    for (Index i = 0; i < x.volume(); ++i) {
      const Index row = i / 130, c = i % 130;
      const double small = static_cast<double>(i % 7 - 3) / 512;  // a double of the distance of neighbors at 1e4
      x.set(i, row < 3 ? (row == 0 ? -1e4 : 1e4) + small : c == (row - 3) * 43 ? 1e4 : small);
      dy.set(i, static_cast<double>(i % 11) - 5);
    }
    const NormedRows expected({1e-9}, x, dy, scale, {});
    backend.row_norm_forward({1e-9}, x, scale, {}, y, {});
    backend.row_norm_backward({1e-9}, x, dy, scale, {}, dx, {dscale, {}, Write::over}, {});
    expect_all(y, expected.y, 0, 1e-5);
    expect_all(dx, expected.dx, 0, 1e-5);
    expect_all(dscale, expected.dscale, 0, 1e-5);
  });
}

/// Small integers, whose sums are exact in every type.
Tensor integers(Generator& random, DType dtype, std::string_view names, const Box& box) {
  const Tensor tensor = test::tensor(dtype, names, box);
  for (Index i = 0; i < tensor.volume(); ++i) tensor.set(i, static_cast<double>(random.draw(-2, 2)));
  return tensor;
}

Tensor drawn_tokens(Generator& random, Index rows, Index vocabulary) {
  const Tensor tokens = test::tensor(DType::i32, "F", Box(Shape{{'F', rows}}));
  for (Index i = 0; i < rows; ++i) tokens.set(i, static_cast<double>(random.draw(0, vocabulary - 1)));
  return tokens;
}

/// Boxes of a table whose vocabulary is 11.
std::vector<Box> tables() {
  std::vector<Box> all;
  for (const Interval words : {Interval{0, 11}, Interval{3, 8}, Interval{10, 11}, Interval{5, 5}})
    for (const Interval channels : {Interval{0, 1}, Interval{2, 7}, Interval{16, 32}, Interval{3, 3}}) {
      Box box(2);
      box[0] = words;
      box[1] = channels;
      all.push_back(box);
    }
  return all;
}

TEST_P(Sequences, EmbeddingsAreRowsOfTheTable) {
  for_backends([&](Backend& backend) {
    for (const Box& of : tables())
      for (const Index places : {0, 1, 47})
        for (const Write write : {Write::over, Write::add}) {
          SCOPED_TRACE(fmt::format("{} {} {}", of.print(), places, write == Write::add));
          const Box box = box_of(2, of[1], {4, 4 + places});
          const Tensor table = random.tensor(GetParam(), "VC", of), tokens = drawn_tokens(random, 2 * places, 11);
          const Tensor y = test::tensor(GetParam(), "NCL", box), dy = integers(random, GetParam(), "NCL", box);
          const Tensor dtable = integers(random, GetParam(), "VC", of), expected = exact(dtable);
          if (write == Write::over) {
            set_all(dtable, nan);
            set_all(expected, 0);
          }
          set_all(y, nan);
          backend.embed_forward(tokens, 11, table, 1, y, {});
          backend.embed_backward(tokens, dy, 1, dtable, write, {});
          naive::for_elements(y, [&](const naive::At& at, Index i) {
            const Index row = (at[0] - box[0].lo) * places + at[4] - box[2].lo;
            const auto token = static_cast<Index>(tokens.get(row));
            const bool held = token >= of[0].lo && token < of[0].hi;
            ASSERT_EQ(y.get(i), held ? table.at({token, at[1]}) : 0.0);
            if (!held) return;
            const Index to = expected.offset({token, at[1]});
            expected.set(to, expected.get(to) + dy.get(i));
          });
          expect_near(dtable, expected, 0);
        }
  });
}

// Sums in the order of rows: 1 is lost in a sum of f32 that has reached 2^24, but not in one that has yet to.
TEST(Embeddings, GradientsAreSummedInTheOrderOfRows) {
  for_backends([&](Backend& backend) {
    const Box box = box_of(1, {0, 1}, {0, 60});
    const Tensor tokens = test::tensor(DType::i32, "F", Box(Shape{{'F', 60}})),
                 dy = test::tensor(DType::f32, "NCL", box);
    const Tensor dtable = test::tensor(DType::f32, "VC", Box(Shape{{'V', 1}, {'C', 1}}));
    set_all(dy, 1);
    for (const bool late : {false, true}) {
      dy.set(0, late ? 1 : 0x1p24);
      dy.set(59, late ? 0x1p24 : 1);
      backend.embed_backward(tokens, dy, 1, dtable, Write::over, {});
      EXPECT_EQ(dtable.get(0), 0x1p24 + (late ? 60 : 0));  // 59 is halfway between two numbers, and rounded to even
    }
  });
}

// Bags of several tokens, from one table for all places or from one for each, against a sum over all tokens.
TEST_P(Sequences, BagsAreSumsOfRowsOfTheirTable) {
  constexpr Index bag = 3, vocabulary = 5;
  for_backends([&](Backend& backend) {
    for (const bool own : {false, true})
      for (const Interval held : {Interval{0, 5}, Interval{1, 3}, Interval{4, 4}})
        for (const Interval places : {Interval{0, 1}, Interval{2, 9}, Interval{3, 3}})
          for (const Write write : {Write::over, Write::add}) {
            SCOPED_TRACE(fmt::format("{} {}..{} {}..{}", own, held.lo, held.hi, places.lo, places.hi));
            const Box box = box_of(4, {2, 8}, places);
            Box of(own ? 3 : 2);
            of[0] = held;
            of[1] = box[1];
            if (own) of[2] = places;
            const std::string_view names = own ? "VCL" : "VC";
            const Tensor table = integers(random, GetParam(), names, of),
                         dtable = integers(random, GetParam(), names, of);
            const Tensor tokens = drawn_tokens(random, 4 * places.extent() * bag, vocabulary);
            const Tensor y = test::tensor(GetParam(), "NCL", box), dy = integers(random, GetParam(), "NCL", box);
            const Tensor sums = test::tensor(DType::f64, "NCL", box), expected = exact(dtable);
            if (write == Write::over) {
              set_all(dtable, nan);
              set_all(expected, 0);
            }
            set_all(y, nan);
            set_all(sums, 0);
            backend.embed_forward(tokens, vocabulary, table, 0.5, y, {});
            backend.embed_backward(tokens, dy, 0.5, dtable, write, {});
            naive::for_elements(y, [&](const naive::At& at, Index i) {
              const Index row = (at[0] - box[0].lo) * places.extent() + at[4] - places.lo;
              for (Index p = 0; p < bag; ++p) {
                const auto token = static_cast<Index>(tokens.get(row * bag + p));
                if (token < held.lo || token >= held.hi) continue;
                const std::array<Index, max_dims> entry{token, at[1], at[4]};
                sums.set(i, sums.get(i) + 0.5 * table.at(entry));
                const Index to = expected.offset(entry);
                expected.set(to, expected.get(to) + 0.5 * dy.get(i));
              }
            });
            expect_near(y, sums, 0);
            expect_near(dtable, expected, 0);
          }
  });
}

// z_i * z_j of all pairs, and their gradients, from the definition.
TEST_P(Sequences, InteractionsAreProductsOfPairs) {
  for_backends([&](Backend& backend) {
    for (const Index places : {1, 2, 6})
      for (const Index channels : {1, 3, 33})
        for (const Index samples : {0, 1, 3}) {
          SCOPED_TRACE(fmt::format("{} {} {}", places, channels, samples));
          const Interval range{2, 2 + samples};
          const Index outputs = channels + places * (places + 1) / 2;
          const auto box = [&](Index columns, Index length) {
            Box made(length == 0 ? 2 : 3);
            made[0] = range;
            made[1] = {0, columns};
            if (length > 0) made[2] = {0, length};
            return made;
          };
          const auto drawn = [&](std::string_view names, const Box& of) {
            return integers(random, GetParam(), names, of);
          };
          const Tensor vectors = drawn("NCL", box(channels, places)), dense = drawn("NC", box(channels, 0)),
                       dy = drawn("NC", box(outputs, 0));
          const Tensor y = test::tensor(GetParam(), "NC", dy.box()),
                       dvectors = test::tensor(GetParam(), "NCL", vectors.box()),
                       ddense = test::tensor(GetParam(), "NC", dense.box());
          const Tensor right = exact(dy), right_vectors = exact(dvectors), right_dense = exact(ddense);
          for (const auto& made : {y, dvectors, ddense}) set_all(made, nan);
          for (const auto& sum : {right, right_vectors, right_dense}) set_all(sum, 0);
          backend.interact_forward(vectors, dense, y, {});
          backend.interact_backward(vectors, dense, dy, dvectors, ddense, {});
          for (Index n = range.lo; n < range.hi; ++n)
            for (Index c = 0; c < channels; ++c) {
              const auto z = [&](Index i) { return i == 0 ? dense.at({n, c}) : vectors.at({n, c, i - 1}); };
              const auto add = [&](Index i, double value) {
                const Tensor& to = i == 0 ? right_dense : right_vectors;
                const Index at = to.offset({n, c, std::max<Index>(i - 1, 0)});
                to.set(at, to.get(at) + value);
              };
              right.set(right.offset({n, c}), z(0));
              add(0, dy.at({n, c}));
              Index pair = channels;
              for (Index i = 1; i <= places; ++i)
                for (Index j = 0; j < i; ++j, ++pair) {
                  const Index at = right.offset({n, pair});
                  right.set(at, right.get(at) + z(i) * z(j));
                  add(i, dy.at({n, pair}) * z(j));
                  add(j, dy.at({n, pair}) * z(i));
                }
            }
          expect_near(y, right, 0);
          expect_near(dvectors, right_vectors, 0);
          expect_near(ddense, right_dense, 0);
        }
  });
}

TEST(Embeddings, AnIndexBeyondTheRowsIsNamedWithItsTable) {
  for_backends([&](Backend& backend) {
    Box of(3);
    of[0] = {0, 4};
    of[1] = {0, 2};
    of[2] = {3, 6};
    const Tensor table = test::tensor(DType::f32, "VCL", of),
                 y = test::tensor(DType::f32, "NCL", box_of(2, of[1], of[2]));
    const Tensor tokens = test::tensor(DType::i32, "F", Box(Shape{{'F', 12}}));
    set_all(table, 1);
    tokens.set(9, 4);  // in a bag of two: of the second sample, in the second table
    const auto run = [&] { backend.embed_forward(tokens, 4, table, 1, y, {}); };
    if (backend.name() == "reference") {
      EXPECT_EQ(test::error_of(run),
                fmt::format("sample {} of a microbatch has the index 4 in table 4, but the tables have 4 rows; indices "
                            "are 0 to 3",
                            y.box()[0].lo + 1));
    } else {
      run();
      for (Index i = 0; i < y.volume(); ++i) EXPECT_EQ(std::isnan(y.get(i)), i / 2 == 4);
    }
  });
}

TEST(Embeddings, TokensOutsideTheVocabularyAreErrors) {
  for_backends([&](Backend& backend) {
    for (const double token : {-1.0, 11.0}) {
      const Tensor tokens = test::tensor(DType::i32, "F", Box(Shape{{'F', 3}})),
                   table = test::tensor(DType::f32, "VC", Box(Shape{{'V', 11}, {'C', 2}}));
      const Tensor y = test::tensor(DType::f32, "NCL", box_of(1, {0, 2}, {0, 3}));
      set_all(table, 1);
      tokens.set(1, token);
      const auto run = [&] { backend.embed_forward(tokens, 11, table, 1, y, {}); };
      if (backend.name() == "reference") {
        EXPECT_EQ(test::error_of(run),
                  fmt::format("a token is {}, but the vocabulary has 11 entries; tokens are 0 to 10",
                              static_cast<Index>(token)));
        continue;
      }
      run();
      for (Index i = 0; i < 6; ++i) EXPECT_EQ(std::isnan(y.get(i)), i / 2 == 1);
    }
  });
}

TEST_P(Sequences, GateIsItsDefinition) {
  const auto functions = make_reference_backend();
  for_backends([&](Backend& backend) {
    for (const Activation::Kind kind : Activation::kinds())
      for (const Box& box : boxes()) {
        SCOPED_TRACE(fmt::format("{} {}", name(kind), box.print()));
        const Activation f{kind, 0.25};
        Box twice = box;
        twice[1] = {2 * box[1].lo, 2 * box[1].hi};
        const Tensor x = drawn(twice), dy = drawn(box), y = dy.like(box), dx = x.like(twice);
        backend.gate_forward(f, x, y, {});
        backend.gate_backward(f, x, dy, dx, {});
        const Tensor a = dy.like(DType::f64), b = a.like(box), g = a.like(box), value = a.like(box), da = a.like(box);
        for (Index i = 0; i < a.volume(); ++i) {
          a.set(i, x.get(2 * i));
          b.set(i, x.get(2 * i + 1));
          g.set(i, b.get(i) * dy.get(i));
        }
        functions->activation_forward(f, a, value, {});
        functions->activation_backward(f, f.differentiates_value() ? value : a, g, da, {});
        for (Index i = 0; i < a.volume(); ++i) {
          ASSERT_NEAR(y.get(i), value.get(i) * b.get(i), tolerance(GetParam()));
          ASSERT_NEAR(dx.get(2 * i), da.get(i), tolerance(GetParam()));
          ASSERT_NEAR(dx.get(2 * i + 1), value.get(i) * dy.get(i), tolerance(GetParam()));
        }
      }
  });
}

// Rows of scores of several heads, which chunks of rows cut inside a place. The large scores would overflow.
TEST_P(Sequences, SoftmaxOfHeadsIsItsDefinition) {
  for_backends([&](Backend& backend) {
    for (const auto& [samples, heads, places] :
         std::vector<std::array<Index, 3>>{{2, 3, 5}, {1, 1, 1}, {1, 7, 33}, {3, 2, 2}, {2, 0, 3}, {0, 2, 4}})
      for (const auto& [causal, segmented] :
           std::vector<std::array<bool, 2>>{{false, false}, {true, false}, {false, true}, {true, true}}) {
        SCOPED_TRACE(fmt::format("{} {} {} {} {}", samples, heads, places, causal, segmented));
        const Box box = box_of(samples, {0, heads * places}, {0, places});
        const auto number = [](Index sample, Index place) { return (5 * sample + place * place) % 3; };
        Tensor segments;
        if (segmented) segments = test::tensor(DType::i32, "NCL", box_of(samples, {0, 1}, {0, places}));
        for (Index i = 0; segmented && i < samples * places; ++i)
          segments.set(i, static_cast<double>(number(i / places, i % places)));
        const Tensor x = drawn(box), dx = drawn(box);
        for (Index i = 0; i < x.volume(); ++i) x.set(i, 3 * x.get(i) + (i % 2 == 0 ? 0 : 100));
        const Tensor scores = exact(x), dy = exact(dx);
        backend.softmax_heads(heads, causal, segments, x, {});
        const Tensor dropped = causal ? drawn(box) : x;  // dropout leaves out every third weight
        for (Index i = 0; causal && i < x.volume(); ++i) dropped.set(i, i % 3 == 0 ? 0 : 2 * x.get(i));
        const Tensor weights = exact(x), kept = exact(dropped);  // as they are rounded
        backend.softmax_heads_backward(heads, 0.5, x, dropped, dx, {});
        for (Index row = 0; row < samples * places * heads; ++row) {
          const Index sample = row / heads / places, place = row / heads % places, first = row * places;
          const auto sees = [&, causal = causal, segmented = segmented](Index c) {
            return (!causal || c <= place) && (!segmented || number(sample, c) == number(sample, place));
          };
          double largest = -1e300, sum = 0, slope = 0;
          for (Index c = 0; c < places; ++c)
            if (sees(c)) largest = std::max(largest, scores.get(first + c));
          for (Index c = 0; c < places; ++c)
            if (sees(c)) sum += std::exp(scores.get(first + c) - largest);
          for (Index c = 0; c < places; ++c) slope += kept.get(first + c) * dy.get(first + c);
          for (Index c = 0; c < places; ++c) {
            const double weight = sees(c) ? std::exp(scores.get(first + c) - largest) / sum : 0;
            ASSERT_NEAR(weights.get(first + c), weight, tolerance(GetParam())) << row << " " << c;
            const double gradient = 0.5 * (kept.get(first + c) * dy.get(first + c) - weights.get(first + c) * slope);
            ASSERT_NEAR(dx.get(first + c), gradient, tolerance(GetParam())) << row << " " << c;
          }
        }
      }
  });
}

/// Rotations, and how many groups of heads a tensor has.
std::vector<std::pair<Rotation, Index>> rotations() {
  return {{{1, 1, 2, 10000, false}, 1},
          {{3, 2, 6, 100, false}, 2},
          {{2, 2, 16, 10000, true}, 3},
          {{4, 0, 2, 10000, false}, 1},
          {{3, 1, 4, 500, true}, 0}};
}

TEST_P(Sequences, RotationTurnsPairsOfHeads) {
  for_backends([&](Backend& backend) {
    for (const auto& each : rotations())
      for (const Interval places : {Interval{0, 5}, Interval{1000, 1007}, Interval{3, 3}}) {
        const Rotation& rotation = each.first;
        const Index groups = each.second;
        const Index dim = rotation.dim, half = dim / 2;
        const Box box = box_of(2, {0, groups * rotation.heads * dim}, places);
        SCOPED_TRACE(box.print());
        const Tensor x = drawn(box), y = x.like(box);
        backend.rotate(rotation, x, y, {});
        naive::for_elements(x, [&](const naive::At& at, Index i) {
          const Index head = at[1] / dim % rotation.heads, k = at[1] % dim, pair = k % half;
          if (head >= rotation.rotated) {
            ASSERT_EQ(y.get(i), x.get(i));
            return;
          }
          const double turn = std::pow(rotation.base, -2.0 * static_cast<double>(pair) / static_cast<double>(dim)),
                       angle = static_cast<double>(at[4]) * turn * (rotation.back ? -1 : 1);
          const double other = x.get(k < half ? i + half : i - half);
          const double expected = x.get(i) * std::cos(angle) + other * (k < half ? -1 : 1) * std::sin(angle);
          ASSERT_NEAR(y.get(i), expected, tolerance(GetParam()));
        });
      }
  });
}

TEST_P(Sequences, RotationBackGivesXInPlace) {
  for_backends([&](Backend& backend) {
    for (const auto& [rotation, groups] : rotations()) {
      const Box box = box_of(2, {0, groups * rotation.heads * rotation.dim}, {77, 88});
      const Tensor x = drawn(box), y = x.like(box), before = exact(x);
      backend.rotate(rotation, x, y, {});
      backend.rotate(rotation, x, x, {});
      for (Index i = 0; i < x.volume(); ++i) ASSERT_EQ(x.get(i), y.get(i));
      Rotation back = rotation;
      back.back = !back.back;
      backend.rotate(back, x, x, {});
      expect_near(x, before, 2 * tolerance(GetParam()));
    }
  });
}

}  // namespace
}  // namespace partita::sequences_test
