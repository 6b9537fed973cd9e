#include "src/train/data/over_tokens.hpp"

#include <algorithm>
#include <vector>

namespace partita {

namespace {

/// Tokens, and beside them the numbers of their documents, which count up in each sample.
class Documents final : public OverTokens {
 public:
  Documents(std::unique_ptr<Dataset> tokens, std::int32_t separator)
      : OverTokens(std::move(tokens), "separate documents"), separator_(separator) {
    if (separator < 0 || separator >= known())
      fail("the separator {} is no token of the data set '{}', which has the tokens 0 to {}", separator, name(),
           known() - 1);
  }

  std::vector<SampleInput> inputs() const override {
    const Shape places{{'C', 1}, {'L', length()}};
    return {{"tokens", places, known()}, {"segments", places, length()}};
  }
  Index classes() const override { return tokens().classes(); }
  Index classes_beside(Index ignored) const override { return tokens().classes_beside(ignored); }
  void read_labels(Index sample, const Box& box, std::span<std::int32_t> out) const override {
    tokens().read_labels(sample, box, out);
  }
  /// A document's number is how many separators the sample has before it, so these are read, too.
  void read_input(int input, Index sample, const Box& box, std::span<double> out) const override {
    if (input == 0) return tokens().read(sample, box, out);
    Box from_start = box;
    from_start[1].lo = 0;
    std::vector<double> row(static_cast<std::size_t>(from_start.volume()));
    tokens().read(sample, from_start, row);
    double document = 0;
    for (Index l = 0; l < std::ssize(row); ++l) {
      if (l >= box[1].lo) out[l - box[1].lo] = document;
      if (row[l] == static_cast<double>(separator_)) ++document;
    }
  }

 private:
  std::int32_t separator_;
};

}  // namespace

std::unique_ptr<Dataset> separate_documents(std::unique_ptr<Dataset> tokens, std::int32_t separator) {
  return std::make_unique<Documents>(std::move(tokens), separator);
}

}  // namespace partita
