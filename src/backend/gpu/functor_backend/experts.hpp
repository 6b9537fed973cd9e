#pragma once

#include "partita/base/dispatch.hpp"
#include "src/backend/common/expert_checks.hpp"
#include "src/backend/gpu/functor_backend/elementwise.hpp"
#include "src/backend/gpu/functors/experts.hpp"

#include <algorithm>

namespace partita {

/// The routes of the places of a tensor N C L, on its device.
inline Routes device_routes(const Routing& routing, const Tensor& routes, const Tensor& like) {
  return {routing, device_data<std::int32_t>(routes), like.extent('L')};
}

template <class Launcher>
void FunctorBackend<Launcher>::route(const Routing& routing, const Tensor& scores, const Tensor& routes,
                                     const Tensor& gates, Stream stream) {
  check_routes(routing, routes, scores);
  check_scores(routing, scores, scores);
  if (gates) check_gates(routing, gates, scores);
  routes.zero(stream);
  const Routes to = device_routes(routing, routes, scores);
  const Index samples = scores.box().extent(0), choices = to.places * to.chosen;
  dispatch_float(scores.dtype(), [&](auto t) {
    using T = decltype(t);
    launch_.for_each(samples, to.places,
                     ChooseExperts<T>{device_data<T>(scores), to, gates ? device_data<double>(gates) : nullptr},
                     stream);
  });
  launch_.for_each(samples, choices, FillSlots{to}, stream);
  launch_.template reduce<double, 1>(samples * to.experts, choices, IsChosen{to}, KeepCount{to}, stream);
}

template <class Launcher>
void FunctorBackend<Launcher>::dispatch_forward(const Routing& routing, const Tensor& routes, const Tensor& x,
                                                const Tensor& y, Stream stream) {
  check_slots(routing, routes, x, y);
  dispatch_float(x.dtype(), [&](auto t) {
    using T = decltype(t);
    launch_.for_elements(
        rows_of_channels(y),
        TakePlaces<T>{{}, device_data<T>(y), device_data<T>(x), device_routes(routing, routes, x), x.extent('C')},
        stream);
  });
}

template <class Launcher>
void FunctorBackend<Launcher>::dispatch_backward(const Routing& routing, const Tensor& routes, const Tensor& dy,
                                                 const Tensor& dx, Stream stream) {
  check_slots(routing, routes, dx, dy);
  dispatch_float(dx.dtype(), [&](auto t) {
    using T = decltype(t);
    launch_.for_elements(
        rows_of_channels(dx),
        SumSlots<T>{
            {}, device_data<T>(dx), device_data<T>(dy), device_routes(routing, routes, dx), nullptr, dx.extent('C')},
        stream);
  });
}

template <class Launcher>
void FunctorBackend<Launcher>::combine_forward(const Routing& routing, const Tensor& routes, const Tensor& gates,
                                               const Tensor& x, const Tensor& y, Stream stream) {
  check_combine(routing, routes, gates, x, y);
  dispatch_float(y.dtype(), [&](auto t) {
    using T = decltype(t);
    launch_.for_elements(rows_of_channels(y),
                         SumSlots<T>{{},
                                     device_data<T>(y),
                                     device_data<T>(x),
                                     device_routes(routing, routes, y),
                                     device_data<double>(gates),
                                     y.extent('C')},
                         stream);
  });
}

template <class Launcher>
void FunctorBackend<Launcher>::combine_backward(const Routing& routing, const Tensor& routes, const Tensor& gates,
                                                const Tensor& scores, const Tensor& x, const Tensor& dy, double balance,
                                                const Tensor& dx, const Tensor& dscores, Stream stream) {
  check_combine_backward(routing, routes, gates, scores, x, dy, dx, dscores);
  const Routes of = device_routes(routing, routes, dy);
  const Index channels = dy.extent('C'), rows = dy.box().extent(0) * of.places;
  const auto scratch = launch_.scratch();  // for the gradients of gates
  const Index fit = rows_in(scratch, static_cast<std::size_t>(of.chosen) * sizeof(double), "gates of experts");
  auto* dgates = reinterpret_cast<double*>(scratch.data());
  dispatch_float(dy.dtype(), [&](auto t) {
    using T = decltype(t);
    launch_.for_elements(
        rows_of_channels(dx),
        SlotGradient<T>{{}, device_data<T>(dx), device_data<T>(dy), of, device_data<double>(gates), channels}, stream);
    for (Index first = 0; first < rows; first += fit) {
      const Index count = std::min(fit, rows - first);
      launch_.template reduce<Accumulator<T>, 1>(
          count * of.chosen, channels, GateGradient<T>{device_data<T>(x), device_data<T>(dy), of, first, channels},
          KeepGateGradient<T>{dgates}, stream);
      launch_.for_each(
          1, count, WriteScoreGradient<T>{device_data<T>(scores), device_data<T>(dscores), of, dgates, first, balance},
          stream);
    }
  });
}

}  // namespace partita
