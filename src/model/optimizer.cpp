#include "partita/model/optimizer.hpp"

#include "partita/base/error.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace partita {

double Optimizer::rate_at(Index step, Index steps) const {
  if (step < warm_up) return rate * static_cast<double>(step + 1) / static_cast<double>(warm_up);
  const double done = static_cast<double>(step - warm_up) / static_cast<double>(std::max<Index>(steps - warm_up, 1));
  switch (decay) {
    case Decay::none: return rate;
    case Decay::linear: return rate * std::max(1 - done, 0.0);
    case Decay::cosine: return rate * 0.5 * (1 + std::cos(std::numbers::pi * std::min(done, 1.0)));
  }
  broken("unknown decay");
}

void Optimizer::check() const {
  if (!(rate > 0) || !std::isfinite(rate)) fail("the learning rate is {}; it must be more than 0", rate);
  if (!(momentum >= 0 && momentum < 1)) fail("the momentum is {}; it must be in [0, 1)", momentum);
  if (!(weight_decay >= 0) || !std::isfinite(weight_decay))
    fail("the weight decay is {}; it must be 0 or more", weight_decay);
  if (warm_up < 0) fail("the warm-up is {} steps; it must be 0 or more", warm_up);
  if (nesterov && momentum == 0) fail("Nesterov's method needs a momentum above 0");
}

std::string Optimizer::print() const {
  constexpr std::string_view decays[]{"", " linear decay", " cosine decay"};
  return fmt::format("sgd rate {:g} momentum {:g}{}{}{}{}", rate, momentum, nesterov ? " nesterov" : "",
                     weight_decay > 0 ? fmt::format(" weight decay {:g}", weight_decay) : "",
                     warm_up > 0 ? fmt::format(" warm-up {}", warm_up) : "", decays[static_cast<int>(decay)]);
}

Decay parse_decay(const std::string& text) {
  if (text == "none") return Decay::none;
  if (text == "linear") return Decay::linear;
  if (text == "cosine") return Decay::cosine;
  fail("'{}' is no decay of the learning rate; use none, linear or cosine", text);
}

}  // namespace partita
