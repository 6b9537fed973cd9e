#include "src/cli/support/option_values.hpp"

#include "partita/base/error.hpp"
#include "partita/base/plain_text.hpp"

#include <string_view>

namespace partita::cli {

void check_optimizer(const Optimizer& optimizer) {
  const auto alone = [&](const char* option, auto Optimizer::*number) {
    Optimizer one;  // with its own values, which are allowed
    one.*number = optimizer.*number;
    about(option, one.*number, [&] { one.check(); });
  };
  alone("--rate", &Optimizer::rate);
  alone("--momentum", &Optimizer::momentum);
  alone("--beta1", &Optimizer::beta1);
  alone("--beta2", &Optimizer::beta2);
  alone("--epsilon", &Optimizer::epsilon);
  alone("--trust", &Optimizer::trust);
  alone("--weight-decay", &Optimizer::weight_decay);
  alone("--warm-up", &Optimizer::warm_up);
  about("--nesterov", [&] { optimizer.check(); });
}

BatchNorm parse_batch_norm(const std::string& text) {
  if (text == "synchronized") return {};
  if (text == "local") return {.statistics = Statistics::local};
  constexpr std::string_view prefix = "ranks=";
  if (text.starts_with(prefix))
    if (const auto ranks = parse_number<int>(text.substr(prefix.size())); ranks && *ranks >= 1)
      return {.statistics = Statistics::ranks, .ranks = *ranks};
  fail("--batch-norm {}: write synchronized, local or ranks=N, with N of 1 or more", text);
}

OnNan parse_on_nan(const std::string& text) {
  if (text == "stop") return OnNan::stop;
  if (text == "skip") return OnNan::skip;
  fail("--on-nan {}: write stop or skip", text);
}

}  // namespace partita::cli
