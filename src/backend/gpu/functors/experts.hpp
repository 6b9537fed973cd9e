#pragma once

#include "partita/base/accumulator.hpp"
#include "src/backend/common/routes.hpp"
#include "src/backend/gpu/functors/launcher.hpp"
#include "src/backend/gpu/functors/to_element.hpp"

namespace partita {

/// Chooses the experts of each place, and writes its gates.
template <class T>
struct ChooseExperts {
  const T* scores;
  Routes to;
  double* gates;  // may be null
  PARTITA_HOST_DEVICE void operator()(Index sample, Index place) const {
    const Index row = sample * to.places + place;
    const T* of_place = scores + row * to.experts;
    choose_experts(of_place, to, sample, place);
    if (gates != nullptr) write_gates(of_place, to, sample, place, gates + row * to.chosen);
  }
};

/// Gives a choice its slot: the number of places before it that chose the same expert.
struct FillSlots {
  Routes to;
  PARTITA_HOST_DEVICE void operator()(Index sample, Index choice) const {
    const Index place = choice / to.chosen, i = choice % to.chosen;
    const std::int32_t expert = to.expert(sample, place, i);
    const std::int32_t* choices = &to.expert(sample, 0, 0);
    Index slot = 0;
    for (Index before = 0; before < place * to.chosen; ++before) slot += choices[before] == expert ? 1 : 0;
    if (slot >= to.slots) return;
    to.slot(sample, place, i) = static_cast<std::int32_t>(slot + 1);
    to.place(sample, slot, expert) = static_cast<std::int32_t>(place + 1);
  }
};

/// 1 for each choice of an expert. The groups are the experts of each sample.
struct IsChosen {
  Routes of;
  PARTITA_HOST_DEVICE Sums<double, 1> operator()(Index group, Index choice) const {
    const Index sample = group / of.experts;
    return {{(&of.expert(sample, 0, 0))[choice] == group % of.experts ? 1.0 : 0.0}};
  }
};
struct KeepCount {
  Routes to;
  PARTITA_HOST_DEVICE void operator()(Index group, const Sums<double, 1>& sums) const {
    to.count(group / to.experts, group % to.experts) = static_cast<std::int32_t>(sums.of[0]);
  }
};

/// The place in each slot; its channels are those of an expert.
template <class T>
struct TakePlaces {
  Inputs<> in;
  T* out;
  const T* x;
  Routes of;
  Index channels;
  PARTITA_HOST_DEVICE auto column(Index /*part*/, Index column) const {
    return [x = x, of = of, channels = channels, expert = column / channels, c = column % channels](Index row) {
      const Index sample = row / of.slots, place = of.place(sample, row % of.slots, expert);
      return place == 0 ? T(0) : x[(sample * of.places + place - 1) * channels + c];
    };
  }
};

/// The sum over the slots of a place, each times its gate.
template <class T>
struct SumSlots {
  Inputs<> in;
  T* out;
  const T* x;
  Routes of;
  const double* gates;  // null: all are 1
  Index channels;
  PARTITA_HOST_DEVICE auto column(Index /*part*/, Index c) const {
    return [x = x, of = of, gates = gates, channels = channels, c](Index row) {
      using A = Accumulator<T>;
      A sum = 0;
      for (Index i = 0; i < of.chosen; ++i) {
        const Index slot = of.row(row / of.places, row % of.places, i);
        if (slot < 0) continue;
        const A gate = gates == nullptr ? A(1) : static_cast<A>(gates[row * of.chosen + i]);
        sum += gate * static_cast<A>(x[slot * channels + c]);
      }
      return to_element<T>(sum);
    };
  }
};

/// The gradient of each slot: gate * dy.
template <class T>
struct SlotGradient {
  Inputs<> in;
  T* out;
  const T* dy;
  Routes of;
  const double* gates;
  Index channels;
  PARTITA_HOST_DEVICE auto column(Index /*part*/, Index column) const {
    return [dy = dy, of = of, gates = gates, channels = channels, expert = column / channels,
            c = column % channels](Index row) {
      using A = Accumulator<T>;
      const Index sample = row / of.slots, place = of.place(sample, row % of.slots, expert) - 1;
      if (place < 0) return T(0);
      const Index of_place = sample * of.places + place;
      const double gate = gates[of_place * of.chosen + of.choice(sample, place, expert)];
      return to_element<T>(static_cast<A>(gate) * static_cast<A>(dy[of_place * channels + c]));
    };
  }
};

/// Products of dy and the slot of each choice, whose sum is the gradient of the gate.
template <class T>
struct GateGradient {
  const T *x, *dy;
  Routes of;
  Index first;  // place, of those of all samples
  Index channels;
  PARTITA_HOST_DEVICE Sums<Accumulator<T>, 1> operator()(Index group, Index c) const {
    using A = Accumulator<T>;
    const Index row = first + group / of.chosen, slot = of.row(row / of.places, row % of.places, group % of.chosen);
    if (slot < 0) return {{A(0)}};
    return {{static_cast<A>(x[slot * channels + c]) * static_cast<A>(dy[row * channels + c])}};
  }
};
template <class T>
struct KeepGateGradient {
  double* dgates;
  PARTITA_HOST_DEVICE void operator()(Index group, const Sums<Accumulator<T>, 1>& sums) const {
    dgates[group] = static_cast<double>(sums.of[0]);
  }
};

/// The gradient of the scores of each place.
template <class T>
struct WriteScoreGradient {
  const T* scores;
  T* out;
  Routes of;
  const double* dgates;  // from the place `first` on
  Index first;
  double balance;
  PARTITA_HOST_DEVICE void operator()(Index /*one*/, Index i) const {
    const Index row = first + i;
    const ScoreGradient<T> gradient(scores + row * of.experts, of, row / of.places, row % of.places,
                                    dgates + i * of.chosen, balance);
    for (Index e = 0; e < of.experts; ++e) out[row * of.experts + e] = to_element<T>(gradient(e));
  }
};

}  // namespace partita
