#include "partita/base/dispatch.hpp"
#include "src/backend/common/expert_checks.hpp"
#include "src/backend/common/scratch.hpp"
#include "src/backend/cpu/reference.hpp"
#include "src/backend/cpu/wide_rows.hpp"

#include <algorithm>

namespace partita {

namespace {

Routes routes_of(const Routing& routing, const Tensor& routes, const Tensor& like) {
  return {routing, routes.as<std::int32_t>(), like.extent('L')};
}

/// Gives the places of a sample their slots, in order.
void fill_slots(const Routes& routes, Index sample) {
  for (Index place = 0; place < routes.places; ++place)
    for (Index i = 0; i < routes.chosen; ++i) {
      const Index expert = routes.expert(sample, place, i), slot = routes.count(sample, expert)++;
      if (slot >= routes.slots) continue;
      routes.slot(sample, place, i) = static_cast<std::int32_t>(slot + 1);
      routes.place(sample, slot, expert) = static_cast<std::int32_t>(place + 1);
    }
}

/// Calls take(i, row of the slots) for the choices of a place that have a slot.
template <class Take>
void each_slot(const Routes& routes, Index sample, Index place, const Take& take) {
  for (Index i = 0; i < routes.chosen; ++i)
    if (const Index row = routes.row(sample, place, i); row >= 0) take(i, row);
}

template <class T, class A>
void add_scaled(Index channels, A scale, const T* __restrict x, A* __restrict sum) {
  for (Index c = 0; c < channels; ++c) sum[c] += scale * static_cast<A>(x[c]);
}

}  // namespace

void ReferenceBackend::each_row(Index rows, const std::function<void(Index row)>& work) {
  constexpr Index block = 32;
  in_parallel((rows + block - 1) / block, [&](Backend&, Index i) {
    for (Index row = i * block; row < std::min(rows, (i + 1) * block); ++row) work(row);
  });
}

void ReferenceBackend::route(const Routing& routing, const Tensor& scores, const Tensor& routes, const Tensor& gates,
                             Stream stream) {
  check_routes(routing, routes, scores);
  check_scores(routing, scores, scores);
  if (gates) check_gates(routing, gates, scores);
  routes.zero(stream);
  const Routes to = routes_of(routing, routes, scores);
  dispatch_float(scores.dtype(), [&](auto t) {
    using T = decltype(t);
    in_parallel(scores.box().extent(0), [&](Backend&, Index sample) {
      for (Index place = 0; place < to.places; ++place) {
        const Index row = sample * to.places + place;
        const T* of_place = scores.as<T>() + row * to.experts;
        choose_experts(of_place, to, sample, place);
        if (gates) write_gates(of_place, to, sample, place, gates.as<double>() + row * to.chosen);
      }
      fill_slots(to, sample);
    });
  });
}

void ReferenceBackend::dispatch_forward(const Routing& routing, const Tensor& routes, const Tensor& x, const Tensor& y,
                                        Stream) {
  check_slots(routing, routes, x, y);
  const Routes of = routes_of(routing, routes, x);
  const Index channels = x.extent('C');
  dispatch_float(x.dtype(), [&](auto t) {
    using T = decltype(t);
    each_row(y.box().extent(0) * of.slots, [&](Index row) {
      const Index sample = row / of.slots;
      for (Index expert = 0; expert < of.experts; ++expert) {
        T* to = y.as<T>() + (row * of.experts + expert) * channels;
        if (const Index place = of.place(sample, row % of.slots, expert); place > 0)
          std::copy_n(x.as<T>() + (sample * of.places + place - 1) * channels, channels, to);
        else
          std::fill_n(to, channels, T(0));
      }
    });
  });
}

void ReferenceBackend::dispatch_backward(const Routing& routing, const Tensor& routes, const Tensor& dy,
                                         const Tensor& dx, Stream) {
  check_slots(routing, routes, dx, dy);
  const Routes of = routes_of(routing, routes, dx);
  const Index channels = dx.extent('C');
  dispatch_float(dx.dtype(), [&](auto t) {
    using T = decltype(t);
    using A = Accumulator<T>;
    each_row(dx.box().extent(0) * of.places, [&](Index row) {
      std::fill_n(dx.as<T>() + row * channels, channels, T(0));
      const Widened<T> sum(dx.as<T>() + row * channels, channels);
      each_slot(of, row / of.places, row % of.places,
                [&](Index, Index slot) { add_scaled(channels, A(1), dy.as<T>() + slot * channels, sum.data()); });
      sum.store();
    });
  });
}

void ReferenceBackend::combine_forward(const Routing& routing, const Tensor& routes, const Tensor& gates,
                                       const Tensor& x, const Tensor& y, Stream) {
  check_combine(routing, routes, gates, x, y);
  const Routes of = routes_of(routing, routes, y);
  const Index channels = y.extent('C');
  dispatch_float(y.dtype(), [&](auto t) {
    using T = decltype(t);
    using A = Accumulator<T>;
    each_row(y.box().extent(0) * of.places, [&](Index row) {
      std::fill_n(y.as<T>() + row * channels, channels, T(0));
      const Widened<T> sum(y.as<T>() + row * channels, channels);
      each_slot(of, row / of.places, row % of.places, [&](Index i, Index slot) {
        const A gate = static_cast<A>(gates.as<double>()[row * of.chosen + i]);
        add_scaled(channels, gate, x.as<T>() + slot * channels, sum.data());
      });
      sum.store();
    });
  });
}

// The slots come first: what they contribute to the gradients of gates is then read for the scores of each place.
void ReferenceBackend::combine_backward(const Routing& routing, const Tensor& routes, const Tensor& gates,
                                        const Tensor& scores, const Tensor& x, const Tensor& dy, double balance,
                                        const Tensor& dx, const Tensor& dscores, Stream) {
  check_combine_backward(routing, routes, gates, scores, x, dy, dx, dscores);
  const Routes of = routes_of(routing, routes, dy);
  const Index channels = dy.extent('C'), rows = dy.box().extent(0) * of.places;
  std::vector<double> dgates(static_cast<std::size_t>(rows * of.chosen));
  dispatch_float(dy.dtype(), [&](auto t) {
    using T = decltype(t);
    using A = Accumulator<T>;
    each_row(dy.box().extent(0) * of.slots, [&](Index row) {
      const Index sample = row / of.slots;
      for (Index expert = 0; expert < of.experts; ++expert) {
        const Index slot = (row * of.experts + expert) * channels, place = of.place(sample, row % of.slots, expert) - 1;
        T* to = dx.as<T>() + slot;
        if (place < 0) {
          std::fill_n(to, channels, T(0));
          continue;
        }
        const Index of_place = sample * of.places + place, at = of_place * of.chosen + of.choice(sample, place, expert);
        const T *gradient = dy.as<T>() + of_place * channels, *result = x.as<T>() + slot;
        const A gate = static_cast<A>(gates.as<double>()[at]);
        for (Index c = 0; c < channels; ++c) to[c] = static_cast<T>(gate * static_cast<A>(gradient[c]));
        dgates[at] = static_cast<double>(
            sum_of_row<A>(channels, [=](Index c) { return static_cast<A>(gradient[c]) * static_cast<A>(result[c]); }));
      }
    });
    each_row(rows, [&](Index row) {
      const ScoreGradient<T> gradient(scores.as<T>() + row * of.experts, of, row / of.places, row % of.places,
                                      dgates.data() + row * of.chosen, balance);
      for (Index e = 0; e < of.experts; ++e) dscores.as<T>()[row * of.experts + e] = static_cast<T>(gradient(e));
    });
  });
}

}  // namespace partita
