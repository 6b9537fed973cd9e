#include "test/support/functors.hpp"
#include "test/support/naive.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

namespace partita::attention_test {
namespace {

using naive::Generator;

constexpr double nothing = -std::numeric_limits<double>::infinity();

/// The heads of one kind: `count` in each group, of `dim` channels.
struct Rows {
  Heads heads;
  Index count, dim;

  const Box& box() const { return heads.x.box(); }
  Index groups() const { return box().extent(1) / heads.step; }
  Index element(Index n, Index head, Index l, Index d) const {
    const Index channel = head / count * heads.step + heads.first + head % count * dim + d;
    return heads.x.offset({box()[0].lo + n, box()[1].lo + channel, l});
  }
  double get(Index n, Index head, Index l, Index d = 0) const { return heads.x.get(element(n, head, l, d)); }
  void set(Index n, Index head, Index l, Index d, double value) const { heads.x.set(element(n, head, l, d), value); }
  void add(Index n, Index head, Index l, Index d, double value) const {
    set(n, head, l, d, get(n, head, l, d) + value);
  }
  /// Calls f(sample, head, place, channel) for each element.
  template <class F>
  void each(F&& f) const {
    for (Index n = 0; n < box().extent(0); ++n)
      for (Index head = 0; head < groups() * count; ++head)
        for (Index l = box()[2].lo; l < box()[2].hi; ++l)
          for (Index d = 0; d < dim; ++d) f(n, head, l, d);
  }
  void copy(const Rows& from) const {
    each([&](auto... at) { set(at..., from.get(at...)); });
  }
  /// Draws eighths, which all dtypes hold.
  void draw(Generator& random) const {
    each([&](auto... at) { set(at..., static_cast<double>(random.draw(-16, 16)) / 8); });
  }
};

/// Returns heads of some places, all in one tensor, beside channels that belong to none of them. `origin` is the first
/// sample, and the first group.
std::vector<Rows> packed(Generator& random, DType dtype, Index origin, Interval places,
                         const std::vector<const Rows*>& like) {
  Index step = random.draw(0, 2);
  std::vector<Rows> all;
  for (const Rows* each : like) {
    all.push_back({{{}, step, 0}, each->count, each->dim});
    step += each->count * each->dim + random.draw(0, 1);
  }
  Box box = like[0]->box();
  box[0] = {origin, origin + box.extent(0)};
  box[1] = {step * origin, step * (origin + like[0]->groups())};
  box[2] = places;
  const Tensor x = random.tensor(dtype, "NCL", box);
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i].heads.x = x;
    all[i].heads.step = step;
    all[i].copy(*like[i]);
  }
  return all;
}

struct Case {
  HeadShape shape;
  Index samples = 1;
  Interval places, keys;
  std::vector<Interval> boxes;  // of the keys, in any order

  Rows rows(DType dtype, Interval at, Index count, Index dim) const {
    const Box box(Shape{{'N', samples}, {'C', shape.groups * count * dim}, {'L', at.hi}});
    Box here = box;
    here[2] = at;
    return {{test::tensor(dtype, "NCL", here), 0, count * dim}, count, dim};
  }
  Rows queries(DType dtype) const { return rows(dtype, places, shape.queries, shape.dim); }
  Rows of_keys(DType dtype) const { return rows(dtype, keys, 1, shape.dim); }
  Rows log_sums(DType dtype) const { return rows(dtype, places, shape.queries, 1); }
  /// Gives each place the number of a segment, number(sample, place).
  template <class F>
  void set_segments(F&& number) {
    const Shape all{{'N', samples}, {'C', 1}, {'L', all_places()}};
    shape.segments = test::tensor(DType::i32, "NCL", Box(all));
    for (Index n = 0; n < samples; ++n)
      for (Index l = 0; l < all['L']; ++l) shape.segments.set(n * all['L'] + l, number(n, l));
  }
  static constexpr Index origin = 2;  // the first sample and group where weights are left out
  void set_dropout(double rate) {
    const Tensor step = test::tensor(DType::f64, "N", Box(Shape{{'N', 1}}));
    step.set(0, 5);
    shape.dropout = {rate, Random(3, 4), step, 70, (origin + shape.groups + 1) * shape.queries, all_places() + 3};
  }
  /// By what the weight of a pair is multiplied.
  double share(Index n, Index head, Index l, Index m) const {
    const WeightDropout& d = shape.dropout;
    if (d.rate == 0) return 1;
    const Index row = ((70 + origin + n) * d.places + l) * d.heads + origin * shape.queries + head;
    return d.random.at_step(5).uniform(row * d.places + m) < d.rate ? 0 : 1 / (1 - d.rate);
  }
  Index all_places() const { return std::max(places.hi, keys.hi); }
  bool sees(Index n, Index l, Index m) const {
    if (shape.causal && m > l) return false;
    const Index first = n * all_places();
    return !shape.segments || shape.segments.get(first + l) == shape.segments.get(first + m);
  }
  std::string print() const {
    std::string text =
        fmt::format("{} samples, {} groups, {} queries, {} channels, scale {}, causal {}, [{},{}) sees", samples,
                    shape.groups, shape.queries, shape.dim, shape.scale, shape.causal, places.lo, places.hi);
    if (shape.segments) text += " of its segment";
    for (const Interval box : boxes) text += fmt::format(" [{},{})", box.lo, box.hi);
    return text;
  }
};

/// Draws a case. Places of queries and keys overlap, or not.
Case draw_case(Generator& random, Index most_places, Index most_dim) {
  constexpr std::array<Index, 8> lengths{1, 2, 3, 5, 7, 11, 31, 1000};
  Case c;
  c.samples = random.draw(1, 2);
  c.shape = {random.draw(1, 3), random.draw(1, 3), random.draw(1, most_dim), 1, random.one_in(2)};
  c.shape.scale = static_cast<double>(random.draw(1, 3)) / std::sqrt(static_cast<double>(c.shape.dim));
  const auto length = [&] { return std::min(lengths[random.draw(0, 7)], most_places); };
  c.places.lo = random.draw(0, 20);
  c.places.hi = c.places.lo + length();
  c.keys = c.places;
  if (random.one_in(2)) {
    c.keys.lo = random.draw(0, 20);
    c.keys.hi = c.keys.lo + length();
  }
  std::vector<Index> cuts{c.keys.lo, c.keys.hi};
  for (Index i = random.draw(0, 3); i > 0; --i) cuts.push_back(random.draw(c.keys.lo, c.keys.hi));
  std::sort(cuts.begin(), cuts.end());
  for (std::size_t i = 1; i < cuts.size(); ++i) c.boxes.push_back({cuts[i - 1], cuts[i]});
  for (std::size_t i = c.boxes.size(); i > 1; --i)
    std::swap(c.boxes[i - 1], c.boxes[random.draw(0, static_cast<Index>(i) - 1)]);
  return c;
}

/// Attention by its definition, and its gradients, in double.
struct Truth {
  Rows q, k, v, dy, y, lse, dq, dk, dv;
  double largest_score = 0;

  Truth(const Case& c, Generator& random)
      : q(c.queries(DType::f64)),
        k(c.of_keys(DType::f64)),
        v(c.of_keys(DType::f64)),
        dy(c.queries(DType::f64)),
        y(c.queries(DType::f64)),
        lse(c.log_sums(DType::f64)),
        dq(c.queries(DType::f64)),
        dk(c.of_keys(DType::f64)),
        dv(c.of_keys(DType::f64)) {
    for (const Rows* each : {&q, &k, &v, &dy}) each->draw(random);
    lse.each([&](Index n, Index head, Index l, Index) { compute(c, n, head, l); });
  }

 private:
  void compute(const Case& c, Index n, Index head, Index l) {
    const Index group = head / c.shape.queries, dim = c.shape.dim;
    const auto product = [&](const Rows& a, const Rows& b, Index m) {
      double sum = 0;
      for (Index d = 0; d < dim; ++d) sum += a.get(n, head, l, d) * b.get(n, group, m, d);
      return sum;
    };
    std::vector<Index> seen;
    for (Index m = c.keys.lo; m < c.keys.hi; ++m)
      if (c.sees(n, l, m)) seen.push_back(m);
    lse.set(n, head, l, 0, nothing);
    if (seen.empty()) return;
    std::vector<double> p, slope;
    for (const Index m : seen) p.push_back(c.shape.scale * product(q, k, m));
    const double largest = *std::max_element(p.begin(), p.end());
    double sum = 0, mean = 0;
    for (double& each : p) {
      largest_score = std::max(largest_score, std::abs(each));
      sum += each = std::exp(each - largest);
    }
    lse.set(n, head, l, 0, largest + std::log(sum));
    for (std::size_t i = 0; i < seen.size(); ++i) {
      p[i] /= sum;
      slope.push_back(c.share(n, head, l, seen[i]) * product(dy, v, seen[i]));
      mean += p[i] * slope[i];
    }
    for (std::size_t i = 0; i < seen.size(); ++i)
      for (Index d = 0; d < dim; ++d) {
        const double of_score = c.shape.scale * p[i] * (slope[i] - mean), kept = p[i] * c.share(n, head, l, seen[i]);
        y.add(n, head, l, d, kept * v.get(n, group, seen[i], d));
        dv.add(n, group, seen[i], d, kept * dy.get(n, head, l, d));
        dq.add(n, head, l, d, of_score * k.get(n, group, seen[i], d));
        dk.add(n, group, seen[i], d, of_score * q.get(n, head, l, d));
      }
  }
};

double epsilon(DType dtype) {
  return dtype == DType::f64 ? 1e-15 : dtype == DType::f32 ? 1e-7 : dtype == DType::bf16 ? 4e-3 : 5e-4;
}

/// Requires the elements of some heads, with an error that grows with their largest one.
void expect_rows(const Rows& is, const Rows& want, double tolerance, const char* what) {
  double largest = 1;
  want.each([&](auto... at) {
    if (std::isfinite(want.get(at...))) largest = std::max(largest, std::abs(want.get(at...)));
  });
  is.each([&](auto... at) {
    const double a = is.get(at...), b = want.get(at...);
    if (a == b) return;  // both may be infinite
    ASSERT_NEAR(a, b, tolerance * largest) << what;
  });
}

/// Runs a case on a backend, with drawn tensors and dtypes of results.
class Trial {
 public:
  Trial(Backend& backend, DType dtype, const Case& c, Generator& random)
      : backend_(backend),
        dtype_(dtype),
        sums_(dtype == DType::f64 ? DType::f64 : DType::f32),
        case_(c),
        random_(random),
        truth_(c, random),
        old_(c, random),
        y_(c.queries(either())),
        lse_(c.log_sums(sums_)) {}

  void forward() {
    const Rows q = packed(random_, dtype_, origin(), case_.places, {&truth_.q})[0];
    Write write = Write::over;
    y_.draw(random_);
    lse_.draw(random_);
    if (random_.one_in(2)) {  // adds to the results for no places
      write = Write::add;
      y_.heads.x.zero({});
      lse_.each([&](auto... at) { lse_.set(at..., nothing); });
    }
    for (const Interval box : case_.boxes) {
      const auto kv = packed(random_, dtype_, origin(), box, {&truth_.k, &truth_.v});
      backend_.attention_forward(case_.shape, q.heads, kv[0].heads, kv[1].heads, y_.heads.x, lse_.heads.x,
                                 std::exchange(write, Write::add), {});
    }
    expect_rows(y_, truth_.y, tolerance(y_), "y");
    expect_rows(lse_, truth_.lse, tolerance(lse_), "lse");
  }

  void backward() {
    const Rows dy = case_.queries(either());
    dy.copy(truth_.dy);
    const bool whole = case_.boxes.size() == 1 && case_.places == case_.keys;
    const DType result = either();
    Rows q = packed(random_, dtype_, origin(), case_.places, {&truth_.q})[0],
         dq = packed(random_, result, origin(), case_.places, {&old_.q})[0];
    const Write first = random_.one_in(2) ? Write::over : Write::add;
    Write write = first;
    for (const Interval box : case_.boxes) {
      auto from = packed(random_, dtype_, origin(), box, {&truth_.k, &truth_.v}),
           to = packed(random_, result, origin(), box, {&old_.k, &old_.v});
      if (whole) {  // self-attention, with everything in one tensor
        from = packed(random_, dtype_, origin(), box, {&truth_.k, &truth_.v, &truth_.q});
        to = packed(random_, result, origin(), box, {&old_.k, &old_.v, &old_.q});
        q = from[2];
        dq = to[2];
      }
      const Tensor before = extract(to[0].heads.x, to[0].box(), MemoryClass::workspace, {});
      backend_.attention_backward(case_.shape, q.heads, from[0].heads, from[1].heads, y_.heads.x, dy.heads.x,
                                  lse_.heads.x, dq.heads, to[0].heads, to[1].heads, write, {});
      const double error = tolerance(to[0]) + tolerance(y_);
      expect_rows(to[0], expected(truth_.dk, old_.k, write), error, "dk");
      expect_rows(to[1], expected(truth_.dv, old_.v, write), error, "dv");
      for (const Rows& each : to) each.each([&](auto... at) { before.set(each.element(at...), each.get(at...)); });
      for (Index i = 0; i < before.volume(); ++i)
        ASSERT_EQ(to[0].heads.x.get(i), before.get(i)) << "a channel that belongs to no head was written";
      write = Write::add;
    }
    expect_rows(dq, expected(truth_.dq, old_.q, first), tolerance(dq) + tolerance(y_), "dq");
  }

 private:
  /// What a gradient is, after it has replaced or was added to what was there before.
  Rows expected(const Rows& gradient, const Rows& before, Write write) const {
    if (write == Write::over) return gradient;
    Rows sum = gradient;
    sum.heads.x = extract(gradient.heads.x, gradient.box(), MemoryClass::workspace, {});
    sum.each([&](Index n, Index head, Index l, Index d) { sum.add(n, head, l, d, before.get(n, head, l, d)); });
    return sum;
  }
  Index origin() { return case_.shape.dropout.rate > 0 ? Case::origin : random_.draw(0, 3); }
  DType either() { return random_.one_in(2) ? dtype_ : sums_; }
  double tolerance(const Rows& result) const {
    const auto roundings = static_cast<double>(case_.boxes.size());
    return 8 * roundings * epsilon(result.heads.x.dtype()) + 8 * (1 + truth_.largest_score) * epsilon(sums_);
  }

  Backend& backend_;
  DType dtype_, sums_;
  const Case& case_;
  Generator& random_;
  Truth truth_, old_;  // `old_` lends numbers to which gradients are added
  Rows y_, lse_;
};

/// All backends that compute in a type.
std::vector<std::unique_ptr<Backend>> backends_of(DType dtype) {
  auto all = test::all_types();
  if (dtype == DType::f32 && !onednn_version().empty())
    for (const int threads : {1, 3}) all.push_back(make_onednn_backend(threads));
  return all;
}

class Attention : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(DTypes, Attention, testing::Values(DType::f64, DType::f32, DType::bf16, DType::f16));

TEST_P(Attention, IsItsDefinition) {
  for (const auto& backend : backends_of(GetParam())) {
    SCOPED_TRACE(backend->name());
    Generator random(1);
    for (int i = 0; i < 60; ++i) {
      const Case c = draw_case(random, 31, i % 10 == 0 ? 70 : 17);
      SCOPED_TRACE(fmt::format("case {}: {}", i, c.print()));
      Trial trial(*backend, GetParam(), c, random);
      trial.forward();
      trial.backward();
      if (HasFatalFailure()) return;
    }
  }
}

// Numbers of segments come in any order, so that some places see no key.
TEST_P(Attention, SeesItsSegmentAlone) {
  for (const auto& backend : backends_of(GetParam())) {
    SCOPED_TRACE(backend->name());
    Generator random(7);
    for (int i = 0; i < 60; ++i) {
      Case c = draw_case(random, 31, 9);
      if (i % 10 == 0) c.samples = 0;
      const Index numbers = random.draw(1, 4);
      c.set_segments([&](Index, Index) { return static_cast<double>(random.draw(0, numbers) - 1); });
      SCOPED_TRACE(fmt::format("case {}: {}", i, c.print()));
      Trial trial(*backend, GetParam(), c, random);
      trial.forward();
      trial.backward();
      if (HasFatalFailure()) return;
    }
  }
}

// The numbers of pairs do not depend on boxes of samples, heads, queries and keys.
TEST_P(Attention, LeavesOutTheSameWeightsInAllBoxes) {
  for (const auto& backend : backends_of(GetParam())) {
    SCOPED_TRACE(backend->name());
    Generator random(9);
    for (int i = 0; i < 40; ++i) {
      Case c = draw_case(random, 31, 9);
      if (i % 3 == 0) c.set_segments([&](Index, Index) { return static_cast<double>(random.draw(0, 1)); });
      c.set_dropout(i % 2 == 0 ? 0.1 : 0.7);
      SCOPED_TRACE(fmt::format("case {}: {}", i, c.print()));
      Trial trial(*backend, GetParam(), c, random);
      trial.forward();
      trial.backward();
      if (HasFatalFailure()) return;
    }
    Case c{{1, 1, 3, 3, true}, 1, {200, 401}, {0, 600}, {{530, 600}, {0, 530}}};
    c.set_dropout(0.5);
    Trial trial(*backend, GetParam(), c, random);
    trial.forward();
    trial.backward();
  }
}

// Some places get results for more keys, also where a set of keys has none that they see. The others stay as they are.
TEST_P(Attention, MergesResultsForTwoSetsOfKeys) {
  const DType dtype = GetParam(), sums = dtype == DType::f64 ? DType::f64 : DType::f32;
  for (const auto& backend : backends_of(dtype)) {
    SCOPED_TRACE(backend->name());
    Generator random(11);
    for (int i = 0; i < 60; ++i) {
      Case c = draw_case(random, 31, i % 10 == 0 ? 40 : 9);
      if (i % 20 == 0) c.samples = 0;
      if (i % 3 == 0) c.set_segments([&](Index, Index) { return static_cast<double>(random.draw(0, 3)); });
      const Index middle = random.draw(c.keys.lo, c.keys.hi), first = random.draw(c.places.lo, c.places.hi);
      const Interval part{first, random.draw(first, c.places.hi)};
      SCOPED_TRACE(
          fmt::format("case {}: {}, [{},{}) sees keys from {} on later", i, c.print(), part.lo, part.hi, middle));
      const Truth truth(c, random);
      const auto results = [&](Interval places, Interval keys) {
        const Rows q = packed(random, dtype, random.draw(0, 3), places, {&truth.q})[0];
        const auto kv = packed(random, dtype, random.draw(0, 3), keys, {&truth.k, &truth.v});
        const std::array made{c.rows(sums, places, c.shape.queries, c.shape.dim),
                              c.rows(sums, places, c.shape.queries, 1)};
        backend->attention_forward(c.shape, q.heads, kv[0].heads, kv[1].heads, made[0].heads.x, made[1].heads.x,
                                   Write::over, {});
        return made;
      };
      const auto all = results(c.places, {c.keys.lo, middle}), before = results(c.places, {c.keys.lo, middle}),
                 more = results(part, {middle, c.keys.hi});
      backend->attention_merge(more[0].heads.x, more[1].heads.x, all[0].heads.x, all[1].heads.x, {});
      const double tolerance = 16 * (1 + truth.largest_score) * epsilon(sums);
      const std::array want{truth.y, truth.lse};
      for (std::size_t which = 0; which < 2; ++which)
        all[which].each([&](Index n, Index head, Index l, Index d) {
          const bool merged = part.lo <= l && l < part.hi;
          const double is = all[which].get(n, head, l, d), old = before[which].get(n, head, l, d);
          const double exact = want[which].get(n, head, l, d);
          if (merged && is != exact) {
            ASSERT_NEAR(is, exact, tolerance * std::max(1., std::abs(exact)));
          } else if (!merged) {
            ASSERT_EQ(is, old);
          }
        });
      if (HasFatalFailure()) return;
    }
  }
}

// Documents that end in blocks and between them, so that some blocks meet and others do not.
TEST_P(Attention, SegmentsCrossBlocks) {
  std::vector<std::unique_ptr<Backend>> backends;
  backends.push_back(make_reference_backend());
  if (GetParam() == DType::f32 && !onednn_version().empty()) backends.push_back(make_onednn_backend(2));
  for (const auto& backend : backends)
    for (const bool causal : {false, true}) {
      SCOPED_TRACE(fmt::format("{}, causal {}", backend->name(), causal));
      Generator random(8);
      Case c{{1, 1, 3, 3, causal}, 1, {500, 760}, {0, 1300}, {{0, 1300}}};
      c.set_segments([](Index, Index l) { return l < 100 ? 4 : l < 128 ? 1 : l < 640 ? 2 : l < 1031 ? 7 : 0; });
      Trial trial(*backend, GetParam(), c, random);
      trial.forward();
      trial.backward();
    }
}

// Longer than a block of either.
TEST_P(Attention, CrossesBlocks) {
  std::vector<std::unique_ptr<Backend>> backends;
  backends.push_back(make_reference_backend());
  if (GetParam() == DType::f32 && !onednn_version().empty()) backends.push_back(make_onednn_backend(2));
  for (const auto& backend : backends)
    for (const bool causal : {false, true}) {
      SCOPED_TRACE(fmt::format("{}, causal {}", backend->name(), causal));
      Generator random(2);
      const Case c{{1, 1, 3, 3, causal}, 1, {200, 401}, {0, 600}, {{530, 600}, {0, 530}}};
      Trial trial(*backend, GetParam(), c, random);
      trial.forward();
      trial.backward();
    }
}

// Scores beyond what exp() can take.
TEST_P(Attention, TakesLargeScores) {
  for (const auto& backend : backends_of(GetParam())) {
    SCOPED_TRACE(backend->name());
    Generator random(3);
    const Case c{{1, 1, 5, 200, true}, 1, {0, 31}, {0, 31}, {{0, 11}, {11, 31}}};
    Trial trial(*backend, GetParam(), c, random);
    trial.forward();
    trial.backward();
  }
}

TEST_P(Attention, EmptyBoxesAreAllowed) {
  for (const auto& backend : backends_of(GetParam())) {
    SCOPED_TRACE(backend->name());
    Generator random(4);
    for (int i = 0; i < 20; ++i) {
      Case c = draw_case(random, 5, 3);
      if (i % 4 == 0) c.samples = 0;
      if (i % 4 == 1) c.shape.groups = 0;
      if (i % 4 == 2) c.places.hi = c.places.lo;
      if (i % 4 == 3) {
        c.keys.hi = c.keys.lo;
        c.boxes = {c.keys, c.keys};
      }
      SCOPED_TRACE(c.print());
      Trial trial(*backend, GetParam(), c, random);
      trial.forward();
      trial.backward();
    }
  }
}

TEST_P(Attention, NotANumberIsSeen) {
  for (const auto& backend : backends_of(GetParam())) {
    SCOPED_TRACE(backend->name());
    Generator random(5);
    const Case c{{1, 1, 3, 1, true}, 1, {0, 31}, {0, 31}, {{0, 31}}};
    const Rows q = c.queries(GetParam()), k = c.of_keys(GetParam()), v = c.of_keys(GetParam()),
               y = c.queries(GetParam()), lse = c.log_sums(GetParam() == DType::f64 ? DType::f64 : DType::f32);
    for (const Rows* each : {&q, &k, &v}) each->draw(random);
    k.set(0, 0, 17, 1, std::numeric_limits<double>::quiet_NaN());
    backend->attention_forward(c.shape, q.heads, k.heads, v.heads, y.heads.x, lse.heads.x, Write::over, {});
    y.each([&](auto n, auto head, auto l, auto d) { EXPECT_EQ(std::isnan(y.get(n, head, l, d)), l >= 17) << l; });
    lse.each([&](auto n, auto head, auto l, auto d) { EXPECT_EQ(std::isnan(lse.get(n, head, l, d)), l >= 17) << l; });
  }
}

// Of padding, nothing is seen.
TEST_P(Attention, NotANumberInAnotherSegmentIsNotSeen) {
  for (const auto& backend : backends_of(GetParam())) {
    SCOPED_TRACE(backend->name());
    Generator random(9);
    Case c{{1, 1, 3, 1, false}, 1, {0, 31}, {0, 31}, {{0, 31}}};
    c.set_segments([](Index, Index l) { return l < 17 ? 1 : 0; });
    const Rows q = c.queries(GetParam()), k = c.of_keys(GetParam()), v = c.of_keys(GetParam()),
               y = c.queries(GetParam()), lse = c.log_sums(GetParam() == DType::f64 ? DType::f64 : DType::f32);
    for (const Rows* each : {&q, &k, &v}) each->draw(random);
    k.set(0, 0, 20, 1, std::numeric_limits<double>::quiet_NaN());
    backend->attention_forward(c.shape, q.heads, k.heads, v.heads, y.heads.x, lse.heads.x, Write::over, {});
    y.each([&](auto n, auto head, auto l, auto d) { EXPECT_EQ(std::isnan(y.get(n, head, l, d)), l >= 17) << l; });
  }
}

TEST(AttentionThreads, AnyNumberGivesTheSameBits) {
  if (onednn_version().empty()) GTEST_SKIP() << "this build lacks oneDNN";
  const Case c{{3, 2, 16, 0.25, true}, 2, {0, 211}, {0, 211}, {{0, 211}}};
  std::vector<std::array<Rows, 4>> results;
  for (const int threads : {1, 2, 5}) {
    Generator random(6);
    const auto backend = make_onednn_backend(threads);
    const Rows q = c.queries(DType::f32), k = c.of_keys(DType::f32), v = c.of_keys(DType::f32),
               dy = c.queries(DType::f32), lse = c.log_sums(DType::f32);
    for (const Rows* each : {&q, &k, &v, &dy}) each->draw(random);
    results.push_back({c.queries(DType::f32), c.queries(DType::f32), c.of_keys(DType::f32), c.of_keys(DType::f32)});
    const auto& [y, dq, dk, dv] = results.back();
    backend->attention_forward(c.shape, q.heads, k.heads, v.heads, y.heads.x, lse.heads.x, Write::over, {});
    backend->attention_backward(c.shape, q.heads, k.heads, v.heads, y.heads.x, dy.heads.x, lse.heads.x, dq.heads,
                                dk.heads, dv.heads, Write::over, {});
  }
  for (const auto& other : results)
    for (std::size_t i = 0; i < other.size(); ++i)
      other[i].each([&](auto... at) { ASSERT_EQ(other[i].get(at...), results[0][i].get(at...)); });
}

}  // namespace
}  // namespace partita::attention_test
