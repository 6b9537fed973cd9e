#include "partita/base/error.hpp"
#include "partita/base/philox.hpp"
#include "partita/train/data/dataset.hpp"

#include <cmath>
#include <utility>
#include <vector>

namespace partita {

namespace {

/// Tokens of another data set, some of which are to be guessed. What happens to a token depends on the seed, its sample
/// and its place alone, so that every part of a sample is the same on every rank.
class MaskedTokenSet final : public Dataset {
 public:
  MaskedTokenSet(std::unique_ptr<Dataset> tokens, const MaskedTokens& options)
      : tokens_(std::move(tokens)),
        options_(options),
        guessed_(options.seed, hash_text("guessed tokens")),
        shown_(options.seed, hash_text("shown tokens")),
        other_(options.seed, hash_text("other tokens")) {
    set_name(tokens_->name());
  }

  Index number(Index sample) const override { return tokens_->number(sample); }
  Shape sample() const override { return tokens_->sample(); }
  Shape target() const override { return {{'L', tokens_->sample()['L']}}; }
  Index size() const override { return tokens_->size(); }
  Index classes() const override { return vocabulary(); }
  Index vocabulary() const override { return tokens_->vocabulary() + 1; }
  void hold(std::span<const Index> /*samples*/, const Box& /*box*/) override {}
  bool needs_announcement() const override { return false; }
  Index held_bytes() const override { return tokens_->held_bytes(); }

  void read(Index sample, const Box& box, std::span<double> out) const override {
    tokens_->read(sample, box, out);
    for (Index i = 0; i < std::ssize(out); ++i) {
      const Index at = number_of(sample, box[1].lo + i);
      if (is_guessed(at)) out[i] = shown_instead(at, out[i]);
    }
  }
  void read_labels(Index sample, const Box& box, std::span<std::int32_t> out) const override {
    Box tokens(2);
    tokens[0] = {0, 1};
    tokens[1] = box[0];
    std::vector<double> row(out.size());
    tokens_->read(sample, tokens, row);
    for (Index i = 0; i < std::ssize(out); ++i)
      out[i] = is_guessed(number_of(sample, box[0].lo + i)) ? static_cast<std::int32_t>(row[i]) : options_.ignored;
  }
  Index classes_beside(Index /*ignored*/) const override { return classes(); }

 private:
  Index number_of(Index sample, Index place) const { return number(sample) * tokens_->sample()['L'] + place; }
  bool is_guessed(Index at) const { return guessed_.uniform(at) < options_.share; }
  /// Of ten tokens, eight become the mask, one another token, and one stays.
  double shown_instead(Index at, double token) const {
    const double draw = shown_.uniform(at);
    if (draw < 0.8) return static_cast<double>(tokens_->vocabulary());
    if (draw < 0.9) return std::floor(other_.uniform(at) * static_cast<double>(tokens_->vocabulary()));
    return token;
  }

  std::unique_ptr<Dataset> tokens_;
  MaskedTokens options_;
  Random guessed_, shown_, other_;
};

}  // namespace

std::unique_ptr<Dataset> mask_tokens(std::unique_ptr<Dataset> tokens, const MaskedTokens& options) {
  if (!(options.share > 0 && options.share <= 1))
    fail("the share of tokens to guess is {}; it must be more than 0 and at most 1", options.share);
  if (tokens->vocabulary() < 1 || !tokens->sample().has('L'))
    fail("the data set '{}' has no sequences of tokens, of which some could be masked", tokens->name());
  if (tokens->needs_announcement())
    fail("the data set '{}' holds what it announced; tokens are masked in sets that read any sample at any time",
         tokens->name());
  if (options.ignored >= 0 && options.ignored <= tokens->vocabulary())
    fail("the label {} of tokens that are not guessed is a token", options.ignored);
  return std::make_unique<MaskedTokenSet>(std::move(tokens), options);
}

}  // namespace partita
