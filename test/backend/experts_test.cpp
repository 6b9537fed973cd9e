#include "test/support/functors.hpp"
#include "test/support/naive.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

namespace partita::experts_test {
namespace {

using naive::Generator;

double tolerance(DType dtype) {
  return dtype == DType::f64 ? 1e-12 : dtype == DType::f32 ? 4e-6 : dtype == DType::bf16 ? 2e-2 : 3e-3;
}

/// A box N C L that does not begin at the origin.
Box box_of(Index samples, Index channels, Index places) {
  Box box(3);
  box[0] = {1, 1 + samples};
  box[1] = {2, 2 + channels};
  box[2] = {3, 3 + places};
  return box;
}

struct Case {
  Routing routing;
  Index samples = 1, channels = 1, places = 1;
};

/// Some have slots that no place takes, some drop places, and some have no samples. The largest needs chunks.
std::vector<Case> cases() {
  return {{{1, 1, 1}, 1, 1, 1},         {{3, 1, 2, false}, 2, 5, 7},  {{3, 2, 2, false}, 2, 5, 7},
          {{3, 2, 7, true}, 2, 5, 7},   {{4, 4, 3, true}, 1, 2, 3},   {{4, 4, 1, false}, 2, 3, 5},
          {{7, 3, 4, true}, 3, 67, 11}, {{5, 1, 2, true}, 2, 33, 13}, {{2, 2, 1, true}, 0, 3, 4},
          {{8, 2, 9, false}, 2, 64, 31}};
}

/// The routes by their definition. Places count from 0.
struct Definition {
  const Routing& routing;
  Index samples, places;
  std::vector<std::vector<std::vector<double>>> p;       // of sample, place and expert
  std::vector<std::vector<std::vector<Index>>> choices;  // of sample and place, the best one first
  std::vector<std::vector<std::vector<Index>>> takers;   // of sample and expert: all places that chose it

  Definition(const Routing& how, const Tensor& scores)
      : routing(how), samples(scores.box().extent(0)), places(scores.extent('L')) {
    for (Index n = 0; n < samples; ++n) {
      p.emplace_back();
      choices.emplace_back();
      takers.emplace_back(static_cast<std::size_t>(routing.experts));
      for (Index l = 0; l < places; ++l) {
        std::vector<double> s;
        for (Index e = 0; e < routing.experts; ++e) s.push_back(scores.get((n * places + l) * routing.experts + e));
        std::vector<Index> order(s.size());
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), [&](Index a, Index b) { return s[a] > s[b]; });
        order.resize(static_cast<std::size_t>(routing.chosen));
        for (const Index e : order) takers[n][e].push_back(l);
        choices[n].push_back(order);
        double sum = 0;
        for (double& each : s) sum += each = std::exp(each);
        for (double& each : s) each /= sum;
        p[n].push_back(s);
      }
    }
  }
  double gate(Index n, Index l, Index e) const {
    double divisor = 0;
    for (const Index chosen : choices[n][l]) divisor += p[n][l][chosen];
    return p[n][l][e] / (routing.normalized ? divisor : 1);
  }
  /// The slot of a place, from 0; -1 if the expert drops it.
  Index slot(Index n, Index l, Index e) const {
    const auto& of = takers[n][e];
    const Index at = std::find(of.begin(), of.end(), l) - of.begin();
    return at < std::min(routing.slots, std::ssize(of)) ? at : -1;
  }
  /// The place in a slot; -1 if there is none.
  Index place(Index n, Index s, Index e) const { return s < std::ssize(takers[n][e]) ? takers[n][e][s] : -1; }
  /// The derivative of the gate of expert e by the score of expert `by`.
  double slope(Index n, Index l, Index e, Index by) const {
    const auto& of = choices[n][l];
    const bool counts = !routing.normalized || std::find(of.begin(), of.end(), by) != of.end();
    return gate(n, l, e) * ((e == by ? 1 : 0) - (counts ? gate(n, l, by) : 0));
  }
};

/// Calls check(backend) for every backend.
template <class Check>
void for_backends(const Check& check) {
  for (const auto& backend : test::all_types()) {
    SCOPED_TRACE(backend->name());
    check(*backend);
  }
}

class ExpertKernels : public testing::TestWithParam<DType> {
 protected:
  struct Drawn {
    Tensor scores, x, slots, routes, gates;
  };
  Drawn drawn(const Case& each) {
    const auto& [routing, samples, channels, places] = each;
    const Box numbers(Shape{{'N', samples}, {'F', routing.numbers(places)}}),
        of_gates(Shape{{'N', samples}, {'F', places * routing.chosen}});
    Drawn all{random.tensor(GetParam(), "NCL", box_of(samples, routing.experts, places)),
              random.tensor(GetParam(), "NCL", box_of(samples, channels, places)),
              random.tensor(GetParam(), "NCL", box_of(samples, routing.experts * channels, routing.slots)),
              test::tensor(DType::i32, "NF", numbers), test::tensor(DType::f64, "NF", of_gates)};
    for (Index i = 0; i < all.routes.volume(); ++i) all.routes.set(i, -7);
    return all;
  }
  /// An element of slots, by expert, channel and slot.
  static Index at(const Case& each, Index n, Index e, Index c, Index s) {
    return ((n * each.routing.slots + s) * each.routing.experts + e) * each.channels + c;
  }
  /// Calls check(backend, case, tensors, definition) for every backend and case, with the routes of the backend.
  template <class Check>
  void for_cases(const Check& check) {
    for_backends([&](Backend& backend) {
      for (const Case& each : cases()) {
        const Drawn tensors = drawn(each);
        SCOPED_TRACE(fmt::format("{} experts, {} chosen, {} slots, {} places", each.routing.experts,
                                 each.routing.chosen, each.routing.slots, each.places));
        backend.route(each.routing, tensors.scores, tensors.routes, tensors.gates, {});
        check(backend, each, tensors, Definition(each.routing, tensors.scores));
      }
    });
  }
  Generator random{5};
};
INSTANTIATE_TEST_SUITE_P(DTypes, ExpertKernels, testing::Values(DType::f64, DType::f32, DType::bf16, DType::f16));

TEST_P(ExpertKernels, RoutesAreTheirDefinition) {
  for_cases([&](Backend& backend, const Case& each, const Drawn& drawn, const Definition& expected) {
    const Routing& r = each.routing;
    const Index numbers = r.numbers(each.places);
    EXPECT_EQ(numbers % 2, 0);
    for (Index n = 0; n < each.samples; ++n) {
      Index i = n * numbers;
      const auto next = [&] { return static_cast<Index>(drawn.routes.get(i++)); };
      for (Index l = 0; l < each.places; ++l)
        for (Index k = 0; k < r.chosen; ++k) {
          ASSERT_EQ(next(), expected.choices[n][l][k]);
          ASSERT_NEAR(drawn.gates.get((n * each.places + l) * r.chosen + k),
                      expected.gate(n, l, expected.choices[n][l][k]), 1e-12);
        }
      for (Index l = 0; l < each.places; ++l)
        for (const Index e : expected.choices[n][l]) ASSERT_EQ(next(), expected.slot(n, l, e) + 1);
      for (Index s = 0; s < r.slots; ++s)
        for (Index e = 0; e < r.experts; ++e) ASSERT_EQ(next(), expected.place(n, s, e) + 1);
      for (Index e = 0; e < r.experts; ++e) ASSERT_EQ(next(), std::ssize(expected.takers[n][e]));
      while (i < (n + 1) * numbers) ASSERT_EQ(next(), 0);
    }
    const Tensor again = drawn.routes.like(drawn.routes.box());
    backend.route(r, drawn.scores, again, {}, {});
    for (Index i = 0; i < again.volume(); ++i) ASSERT_EQ(again.get(i), drawn.routes.get(i)) << "without gates";
  });
}

// Of equal scores the first expert is chosen, and what is no number is nowhere out of range.
TEST_P(ExpertKernels, OfEqualScoresTheFirstIsChosen) {
  const Routing routing{4, 2, 3};
  for (const double score : {1.5, std::numeric_limits<double>::quiet_NaN()})
    for_backends([&](Backend& backend) {
      const Tensor scores = test::tensor(GetParam(), "NCL", box_of(1, 4, 3));
      for (Index i = 0; i < scores.volume(); ++i) scores.set(i, score);
      const Tensor routes = test::tensor(DType::i32, "NF", Box(Shape{{'N', 1}, {'F', routing.numbers(3)}}));
      backend.route(routing, scores, routes, {}, {});
      for (Index l = 0; l < 3; ++l)
        for (Index k = 0; k < 2; ++k) EXPECT_EQ(routes.get(2 * l + k), static_cast<double>(k)) << score;
    });
}

TEST_P(ExpertKernels, DispatchIsItsDefinition) {
  for_cases([&](Backend& backend, const Case& each, const Drawn& drawn, const Definition& expected) {
    const auto& [routing, samples, channels, places] = each;
    const Tensor y = drawn.slots.like(drawn.slots.box()), dx = drawn.x.like(drawn.x.box());
    for (Index i = 0; i < y.volume(); ++i) y.set(i, 9);
    backend.dispatch_forward(routing, drawn.routes, drawn.x, y, {});
    backend.dispatch_backward(routing, drawn.routes, drawn.slots, dx, {});
    for (Index n = 0; n < samples; ++n)
      for (Index c = 0; c < channels; ++c) {
        for (Index e = 0; e < routing.experts; ++e)
          for (Index s = 0; s < routing.slots; ++s) {
            const Index place = expected.place(n, s, e);
            ASSERT_EQ(y.get(at(each, n, e, c, s)), place < 0 ? 0 : drawn.x.get((n * places + place) * channels + c));
          }
        for (Index l = 0; l < places; ++l) {
          double sum = 0;
          for (const Index e : expected.choices[n][l])
            if (const Index s = expected.slot(n, l, e); s >= 0) sum += drawn.slots.get(at(each, n, e, c, s));
          ASSERT_NEAR(dx.get((n * places + l) * channels + c), sum, tolerance(GetParam()));
        }
      }
  });
}

TEST_P(ExpertKernels, CombineIsItsDefinition) {
  for_cases([&](Backend& backend, const Case& each, const Drawn& drawn, const Definition& expected) {
    const auto& [routing, samples, channels, places] = each;
    const Tensor y = drawn.x.like(drawn.x.box());
    backend.combine_forward(routing, drawn.routes, drawn.gates, drawn.slots, y, {});
    for (Index n = 0; n < samples; ++n)
      for (Index l = 0; l < places; ++l)
        for (Index c = 0; c < channels; ++c) {
          double sum = 0;
          for (const Index e : expected.choices[n][l])
            if (const Index s = expected.slot(n, l, e); s >= 0)
              sum += expected.gate(n, l, e) * drawn.slots.get(at(each, n, e, c, s));
          ASSERT_NEAR(y.get((n * places + l) * channels + c), sum, tolerance(GetParam()));
        }
  });
}

TEST_P(ExpertKernels, CombineBackwardIsItsDefinition) {
  constexpr double balance = 0.7;
  for_cases([&](Backend& backend, const Case& each, const Drawn& drawn, const Definition& expected) {
    const auto& [routing, samples, channels, places] = each;
    const Tensor dx = drawn.slots.like(drawn.slots.box()), dscores = drawn.scores.like(drawn.scores.box());
    for (Index i = 0; i < dx.volume(); ++i) dx.set(i, 9);
    const auto dy = [&, &of = drawn.x, c_all = channels, l_all = places](Index n, Index l, Index c) {
      return of.get((n * l_all + l) * c_all + c);
    };
    backend.combine_backward(routing, drawn.routes, drawn.gates, drawn.scores, drawn.slots, drawn.x, balance, dx,
                             dscores, {});
    for (Index n = 0; n < samples; ++n)
      for (Index e = 0; e < routing.experts; ++e) {
        for (Index s = 0; s < routing.slots; ++s)
          for (Index c = 0; c < channels; ++c) {
            const Index place = expected.place(n, s, e);
            ASSERT_NEAR(dx.get(at(each, n, e, c, s)), place < 0 ? 0 : expected.gate(n, place, e) * dy(n, place, c),
                        tolerance(GetParam()));
          }
        for (Index l = 0; l < places; ++l) {
          double sum = 0;
          for (const Index chosen : expected.choices[n][l]) {
            const Index s = expected.slot(n, l, chosen);
            double product = 0;
            for (Index c = 0; s >= 0 && c < channels; ++c)
              product += dy(n, l, c) * drawn.slots.get(at(each, n, chosen, c, s));
            sum += product * expected.slope(n, l, chosen, e);
          }
          const std::vector<double>& p = expected.p[n][l];
          for (Index other = 0; other < routing.experts; ++other)
            sum += balance * static_cast<double>(routing.experts * std::ssize(expected.takers[n][other])) /
                   static_cast<double>(places * routing.chosen * places) * p[other] * ((other == e ? 1 : 0) - p[e]);
          ASSERT_NEAR(dscores.get((n * places + l) * routing.experts + e), sum, tolerance(GetParam()) * 10);
        }
      }
  });
}

}  // namespace
}  // namespace partita::experts_test
