#include "src/cli/options/optimizer_options.hpp"

#include "partita/base/error.hpp"

#include <algorithm>

namespace partita::cli {

namespace {

struct OptimizerOption {
  const char* name;
  std::vector<Method> users;

  bool used_by(Method method) const { return std::find(users.begin(), users.end(), method) != users.end(); }
};

const std::vector<OptimizerOption>& table() {
  using enum Method;
  static const std::vector<OptimizerOption> options{
      {"momentum", {sgd, rmsprop, lars}},
      {"nesterov", {sgd}},
      {"beta1", {adam, adamw, lamb}},
      {"beta2", {adam, adamw, lamb, rmsprop}},
      {"epsilon", {adagrad, rmsprop, adam, adamw, lamb}},
      {"trust", {lars}},
  };
  return options;
}

}  // namespace

std::string used_by(std::string_view option) {
  const auto found =
      std::find_if(table().begin(), table().end(), [&](const auto& each) { return each.name == option; });
  require(found != table().end(), "this option is in the table");
  const auto& users = found->users;
  std::string text = "used by ";
  for (std::size_t i = 0; i < users.size(); ++i)
    text.append(i == 0 ? "" : i + 1 < users.size() ? ", " : " and ").append(name(users[i]));
  return text;
}

std::vector<std::string> unused_options(Method method) {
  std::vector<std::string> unused;
  for (const auto& option : table())
    if (!option.used_by(method)) unused.emplace_back(option.name);
  return unused;
}

void check_used(const boost::program_options::variables_map& values, Method method) {
  for (const auto& option : unused_options(method))
    if (values.count(option) != 0 && !values[option].defaulted())
      fail("--{} is {}, but the optimizer is {}; leave it out or choose another --optimizer", option, used_by(option),
           name(method));
}

std::vector<std::string> check_rates(const TrainerOptions& o, Index steps) {
  const bool decays = o.optimizer.decay != Decay::none;
  if (decays && o.decay_steps > 0 && o.decay_steps < steps)
    fail(
        "--decay-steps {}: the learning rate would be 0 after these steps, but {} are asked for; give --decay-steps "
        "{}, fewer --steps, or --decay none",
        o.decay_steps, steps, steps);
  std::vector<std::string> notes;
  if (!decays && o.decay_steps > 0)
    notes.push_back(fmt::format("--decay-steps {}: it has no effect without --decay linear or cosine", o.decay_steps));
  if (o.optimizer.warm_up > steps)
    notes.push_back(fmt::format("--warm-up {}: the training has {}, so its learning rate does not reach --rate {}",
                                o.optimizer.warm_up, counted(steps, "step"), o.optimizer.rate));
  return notes;
}

}  // namespace partita::cli
