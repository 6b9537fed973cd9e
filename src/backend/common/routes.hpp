#pragma once

#include "partita/base/host_device.hpp"
#include "partita/base/routing.hpp"

#include <cmath>
#include <cstdint>

namespace partita {

/// Where the routes of samples lie in a tensor (Backend::route).
struct Routes {
  std::int32_t* data;
  Index experts, chosen, slots, places, numbers;
  bool normalized;
  Routes(const Routing& routing, std::int32_t* routes, Index places_of_sample)
      : data(routes),
        experts(routing.experts),
        chosen(routing.chosen),
        slots(routing.slots),
        places(places_of_sample),
        numbers(routing.numbers(places_of_sample)),
        normalized(routing.normalized) {}

  /// The expert of choice i.
  PARTITA_HOST_DEVICE std::int32_t& expert(Index sample, Index place, Index i) const {
    return data[sample * numbers + place * chosen + i];
  }
  PARTITA_HOST_DEVICE std::int32_t& slot(Index sample, Index place, Index i) const {
    return data[sample * numbers + (places + place) * chosen + i];
  }
  PARTITA_HOST_DEVICE std::int32_t& place(Index sample, Index slot, Index expert) const {
    return data[sample * numbers + 2 * places * chosen + slot * experts + expert];
  }
  PARTITA_HOST_DEVICE std::int32_t& count(Index sample, Index expert) const {
    return data[sample * numbers + 2 * places * chosen + slots * experts + expert];
  }
  /// Which choice of a place the expert is; `chosen` if it is none.
  PARTITA_HOST_DEVICE Index choice(Index sample, Index place, Index its_expert) const {
    Index i = 0;
    while (i < chosen && expert(sample, place, i) != its_expert) ++i;
    return i;
  }
  /// The row of the slot of choice i, if the channels of each expert and slot are a row; -1 if it has no slot.
  PARTITA_HOST_DEVICE Index row(Index sample, Index place, Index i) const {
    const Index at = slot(sample, place, i);
    return at == 0 ? -1 : (sample * slots + at - 1) * experts + expert(sample, place, i);
  }
};

/// The probabilities of experts: the softmax over the scores of a place.
template <class T>
struct ExpertProbabilities {
  const T* scores;
  double largest, sum;
  PARTITA_HOST_DEVICE ExpertProbabilities(const T* of, Index experts)
      : scores(of), largest(static_cast<double>(of[0])), sum(0) {
    for (Index e = 1; e < experts; ++e)
      if (static_cast<double>(of[e]) > largest) largest = static_cast<double>(of[e]);
    for (Index e = 0; e < experts; ++e) sum += std::exp(static_cast<double>(of[e]) - largest);
  }
  PARTITA_HOST_DEVICE double operator[](Index e) const {
    return std::exp(static_cast<double>(scores[e]) - largest) / sum;
  }
  /// By what the probabilities of a place's experts are divided to give its gates.
  PARTITA_HOST_DEVICE double divisor(const Routes& routes, Index sample, Index place) const {
    if (!routes.normalized) return 1;
    double chosen = 0;
    for (Index i = 0; i < routes.chosen; ++i) chosen += (*this)[routes.expert(sample, place, i)];
    return chosen;
  }
};

/// Chooses the experts of a place.
template <class T>
PARTITA_HOST_DEVICE void choose_experts(const T* scores, const Routes& routes, Index sample, Index place) {
  for (Index i = 0; i < routes.chosen; ++i) {
    Index best = -1;
    for (Index e = 0; e < routes.experts; ++e) {
      bool taken = false;
      for (Index before = 0; before < i; ++before) taken = taken || routes.expert(sample, place, before) == e;
      if (!taken && (best < 0 || static_cast<double>(scores[e]) > static_cast<double>(scores[best]))) best = e;
    }
    routes.expert(sample, place, i) = static_cast<std::int32_t>(best);
  }
}

/// Writes the gates of a place.
template <class T>
PARTITA_HOST_DEVICE void write_gates(const T* scores, const Routes& routes, Index sample, Index place, double* gates) {
  const ExpertProbabilities<T> p(scores, routes.experts);
  const double divisor = p.divisor(routes, sample, place);
  for (Index i = 0; i < routes.chosen; ++i) gates[i] = p[routes.expert(sample, place, i)] / divisor;
}

/// The gradient of the probabilities p of a place, and from it that of its scores: p[e] * (dp[e] - sum of p dp).
template <class T>
struct ScoreGradient {
  const Routes& routes;
  Index sample, place;
  const double* dgates;  // of the place
  double balance;        // of Backend::combine_backward
  ExpertProbabilities<T> p;
  double divisor, common = 0, mean = 0;

  PARTITA_HOST_DEVICE ScoreGradient(const T* scores, const Routes& its_routes, Index its_sample, Index its_place,
                                    const double* gradients, double its_balance)
      : routes(its_routes),
        sample(its_sample),
        place(its_place),
        dgates(gradients),
        balance(its_balance),
        p(scores, its_routes.experts),
        divisor(p.divisor(its_routes, its_sample, its_place)) {
    if (routes.normalized)
      for (Index i = 0; i < routes.chosen; ++i) common += p[routes.expert(sample, place, i)] / divisor * dgates[i];
    for (Index e = 0; e < routes.experts; ++e) mean += p[e] * slope(e);
  }
  PARTITA_HOST_DEVICE double operator()(Index e) const { return p[e] * (slope(e) - mean); }

 private:
  PARTITA_HOST_DEVICE double slope(Index e) const {
    const auto places = static_cast<double>(routes.places);
    const double share = static_cast<double>(routes.count(sample, e)) / (places * static_cast<double>(routes.chosen));
    const double balancing = balance * static_cast<double>(routes.experts) * share / places;
    const Index i = routes.choice(sample, place, e);
    return i < routes.chosen ? balancing + (dgates[i] - common) / divisor : balancing;
  }
};

}  // namespace partita
