#include "partita/base/optimizer.hpp"

#include "partita/base/error.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

namespace partita {

namespace {

constexpr std::array<std::string_view, 7> methods{"sgd", "adagrad", "rmsprop", "adam", "adamw", "lars", "lamb"};

void check_fraction(double value, std::string_view what) {
  if (!(value >= 0 && value < 1)) fail("{} is {}; it must be in [0, 1)", what, value);
}

}  // namespace

std::string_view name(Method method) { return methods[static_cast<std::size_t>(method)]; }

Method parse_method(const std::string& text) {
  const auto found = std::find(methods.begin(), methods.end(), text);
  if (found == methods.end()) {
    const std::vector<std::string> names(methods.begin(), methods.end());
    fail("there is no optimizer '{}'{}; there are {}", text, did_you_mean(text, names), quoted_list(names));
  }
  return static_cast<Method>(found - methods.begin());
}

double usual_rate(Method method) {
  switch (method) {
    case Method::sgd:
    case Method::lars: return 0.05;
    case Method::adagrad: return 0.01;
    case Method::rmsprop:
    case Method::adam:
    case Method::adamw:
    case Method::lamb: return 0.001;
  }
  broken("unknown method");
}

std::vector<std::string_view> Optimizer::states() const {
  switch (method) {
    case Method::sgd:
    case Method::lars:
      return momentum > 0 ? std::vector<std::string_view>{"velocity"} : std::vector<std::string_view>{};
    case Method::adagrad: return {"square"};
    case Method::rmsprop:
      return momentum > 0 ? std::vector<std::string_view>{"square", "velocity"}
                          : std::vector<std::string_view>{"square"};
    case Method::adam:
    case Method::adamw:
    case Method::lamb: return {"square", "mean"};
  }
  broken("unknown method");
}

double Optimizer::rate_at(Index step, Index steps) const {
  if (step < warm_up) return rate * static_cast<double>(step + 1) / static_cast<double>(warm_up);
  const double done = static_cast<double>(step - warm_up) / static_cast<double>(std::max<Index>(steps - warm_up, 1));
  switch (decay) {
    case Decay::none: return rate;
    case Decay::linear: return rate * (floor + (1 - floor) * std::max(1 - done, 0.0));
    case Decay::cosine:
      return rate * (floor + (1 - floor) * 0.5 * (1 + std::cos(std::numbers::pi * std::min(done, 1.0))));
  }
  broken("unknown decay");
}

void Optimizer::check() const {
  if (!(rate > 0) || !std::isfinite(rate)) fail("the learning rate is {}; it must be more than 0, and finite", rate);
  check_fraction(momentum, "the momentum");
  check_fraction(beta1, "beta1");
  check_fraction(beta2, "beta2");
  if (!(epsilon > 0) || !std::isfinite(epsilon)) fail("epsilon is {}; it must be more than 0, and finite", epsilon);
  if (!(trust > 0) || !std::isfinite(trust))
    fail("the trust coefficient is {}; it must be more than 0, and finite", trust);
  if (!(weight_decay >= 0) || !std::isfinite(weight_decay))
    fail("the weight decay is {}; it must be 0 or more, and finite", weight_decay);
  if (!(floor >= 0 && floor <= 1)) fail("the floor of the decay is {}; it must be from 0 to 1", floor);
  if (!(clip_norm >= 0) || !std::isfinite(clip_norm))
    fail("the norm to which gradients are clipped is {}; it must be more than 0 and finite, or 0 to clip none",
         clip_norm);
  if (warm_up < 0) fail("the warm-up is {} steps; it must be 0 or more", warm_up);
  if (nesterov && method != Method::sgd) fail("Nesterov's momentum works with sgd only, not with {}", name(method));
  if (nesterov && momentum == 0) fail("Nesterov's momentum needs a momentum above 0");
}

std::string Optimizer::print() const {
  constexpr std::string_view decays[]{"", " linear decay", " cosine decay"};
  std::string text = fmt::format("{} rate {:g}", name(method), rate);
  const bool has_momentum = method == Method::sgd || method == Method::rmsprop || method == Method::lars;
  const bool has_mean = method == Method::adam || method == Method::adamw || method == Method::lamb;
  if (has_momentum) text += fmt::format(" momentum {:g}{}", momentum, nesterov ? " nesterov" : "");
  if (has_mean) text += fmt::format(" beta1 {:g}", beta1);
  if (has_mean || method == Method::rmsprop) text += fmt::format(" beta2 {:g}", beta2);
  if (has_mean || method == Method::rmsprop || method == Method::adagrad) text += fmt::format(" epsilon {:g}", epsilon);
  if (method == Method::lars) text += fmt::format(" trust {:g}", trust);
  if (weight_decay > 0) text += fmt::format(" weight decay {:g}", weight_decay);
  if (warm_up > 0) text += fmt::format(" warm-up {}", warm_up);
  text += decays[static_cast<int>(decay)];
  if (decay != Decay::none && floor > 0) text += fmt::format(" to {:g}", floor);
  if (clip_norm > 0) text += fmt::format(" clip {:g}", clip_norm);
  return text;
}

Decay parse_decay(const std::string& text) {
  if (text == "none") return Decay::none;
  if (text == "linear") return Decay::linear;
  if (text == "cosine") return Decay::cosine;
  fail("'{}' is not a decay of the learning rate; use none, linear or cosine", text);
}

}  // namespace partita
