#include "partita/base/philox.hpp"
#include "src/train/data/over_tokens.hpp"

#include <cmath>
#include <vector>

namespace partita {

namespace {

/// Tokens of another data set, some of which are to be guessed. What happens to a token depends on the seed, its sample
/// and its place alone, so that every part of a sample is the same on every rank.
class MaskedTokenSet final : public OverTokens {
 public:
  MaskedTokenSet(std::unique_ptr<Dataset> tokens, const MaskedTokens& options)
      : OverTokens(std::move(tokens), "be masked"),
        options_(options),
        guessed_(options.seed, hash_text("guessed tokens")),
        shown_(options.seed, hash_text("shown tokens")),
        other_(options.seed, hash_text("other tokens")) {
    if (options.ignored >= 0 && options.ignored <= known())
      fail("the label {} of tokens that are not guessed is a token", options.ignored);
  }

  std::vector<SampleInput> inputs() const override {
    std::vector<SampleInput> all = tokens().inputs();
    all.front().vocabulary = classes();
    return all;
  }
  Index classes() const override { return known() + 1; }

  void read_input(int input, Index sample, const Box& box, std::span<double> out) const override {
    tokens().read_input(input, sample, box, out);
    if (input > 0) return;
    for (Index i = 0; i < std::ssize(out); ++i) {
      const Index at = number_of(sample, box[1].lo + i);
      if (is_guessed(at)) out[i] = shown_instead(at, out[i]);
    }
  }
  void read_labels(Index sample, const Box& box, std::span<std::int32_t> out) const override {
    Box places(2);
    places[0] = {0, 1};
    places[1] = box[0];
    std::vector<double> row(out.size());
    tokens().read(sample, places, row);
    for (Index i = 0; i < std::ssize(out); ++i)
      out[i] = is_guessed(number_of(sample, box[0].lo + i)) ? static_cast<std::int32_t>(row[i]) : options_.ignored;
  }
  Index classes_beside(Index /*ignored*/) const override { return classes(); }

 private:
  Index number_of(Index sample, Index place) const { return number(sample) * length() + place; }
  bool is_guessed(Index at) const { return guessed_.uniform(at) < options_.share; }
  /// Of ten tokens, eight become the mask, one another token, and one stays.
  double shown_instead(Index at, double token) const {
    const double draw = shown_.uniform(at);
    if (draw < 0.8) return static_cast<double>(known());
    if (draw < 0.9) return std::floor(other_.uniform(at) * static_cast<double>(known()));
    return token;
  }

  MaskedTokens options_;
  Random guessed_, shown_, other_;
};

}  // namespace

std::unique_ptr<Dataset> mask_tokens(std::unique_ptr<Dataset> tokens, const MaskedTokens& options) {
  if (!(options.share > 0 && options.share <= 1))
    fail("the share of tokens to guess is {}; it must be more than 0 and at most 1", options.share);
  return std::make_unique<MaskedTokenSet>(std::move(tokens), options);
}

}  // namespace partita
