#include "src/cli/support/option_values.hpp"

#include "partita/base/error.hpp"

#include <charconv>

namespace partita::cli {

BatchNorm parse_batch_norm(const std::string& text) {
  if (text == "synchronized") return {};
  if (text == "local") return {.statistics = Statistics::local};
  int ranks = 0;
  const char* const end = text.data() + text.size();
  if (text.starts_with("ranks="))
    if (const auto [last, error] = std::from_chars(text.data() + 6, end, ranks);
        error == std::errc{} && last == end && ranks >= 1)
      return {.statistics = Statistics::ranks, .ranks = ranks};
  fail("--batch-norm {}: write synchronized, local or ranks=N, with N of 1 or more", text);
}

OnNan parse_on_nan(const std::string& text) {
  if (text == "stop") return OnNan::stop;
  if (text == "skip") return OnNan::skip;
  fail("--on-nan {}: write stop or skip", text);
}

}  // namespace partita::cli
