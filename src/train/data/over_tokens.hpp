#pragma once

#include "partita/base/error.hpp"
#include "partita/train/data/dataset.hpp"

#include <memory>
#include <utility>

namespace partita {

/// A data set made of the sequences of tokens of another one, which it may read at any time.
class OverTokens : public DatasetOfInputs {
 public:
  /// Throws Error, with what some tokens could do, if there are none or they must be announced.
  OverTokens(std::unique_ptr<Dataset> tokens, std::string_view what) : tokens_(std::move(tokens)) {
    set_name(tokens_->name());
    vocabulary_ = tokens_->vocabulary();
    if (vocabulary_ < 1 || !tokens_->sample().has('L'))
      fail("the data set '{}' has no sequences of tokens, of which some could {}", name(), what);
    if (tokens_->needs_announcement())
      fail("the data set '{}' holds what it announced; give one that reads any sample at any time", name());
    length_ = tokens_->sample()['L'];
  }
  Index number(Index sample) const override { return tokens_->number(sample); }
  Index size() const override { return tokens_->size(); }
  Shape target() const override { return {{'L', length_}}; }
  void hold_input(int /*input*/, std::span<const Index> /*samples*/, const Box& /*box*/) override {}
  bool needs_announcement() const override { return false; }
  Index held_bytes() const override { return tokens_->held_bytes(); }

 protected:
  const Dataset& tokens() const { return *tokens_; }
  Index known() const { return vocabulary_; }  // tokens of the other set
  Index length() const { return length_; }

 private:
  std::unique_ptr<Dataset> tokens_;
  Index vocabulary_, length_ = 0;
};

}  // namespace partita
