#pragma once

#include "partita/base/types.hpp"

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace partita {

/// A vocabulary of byte pairs: tokens are bytes, and pairs of tokens that are merged (Sennrich et al. 2016), with the
/// bytes of GPT-2 (Radford et al. 2019). Any bytes can be encoded, also those that are no text.
///
/// It is read from a file in the JSON of Hugging Face's tokenizers (tokenizer.json), and encodes as they do:
/// - `model` is of type BPE, with `vocab` and `merges`, each merge "a b" or ["a", "b"]; without dropout, prefixes,
///   suffixes, byte fallback and `ignore_merges`.
/// - `pre_tokenizer` is ByteLevel, with its usual pattern, that of GPT-2, and without `add_prefix_space`; `decoder` is
///   ByteLevel or null; `normalizer` is null.
/// - `added_tokens` are found where their content stands in the text; without lstrip, rstrip and single_word.
/// - What other parts of the file say, e.g. `post_processor`, does not matter: nothing is put around a text.
///
/// The pattern splits a text into contractions ('s 't 're 've 'm 'll 'd), letters, numbers, other characters and
/// spaces; letters and numbers are those of Unicode 16.0. A byte that is not part of valid UTF-8 is another character.
class BytePairs {
 public:
  /// Reads a file. Throws Error that names the file and the key, or the byte, if it is unreadable, no JSON, or asks for
  /// something else than the above.
  explicit BytePairs(const std::string& path);

  /// The tokens are 0 to size() - 1.
  Index size() const { return static_cast<Index>(bytes_.size()); }
  /// Returns the bytes of a token. A character of several bytes may be cut among tokens.
  /// @pre 0 <= token < size()
  const std::string& bytes(std::int32_t token) const { return bytes_[static_cast<std::size_t>(token)]; }
  std::vector<std::int32_t> encode(std::string_view text) const;

 private:
  friend class TextEncoder;
  struct Merge {
    std::int32_t rank, token;
  };
  /// Returns what two neighbors become; null if they stay.
  const Merge* merge(std::int32_t left, std::int32_t right) const;

  std::vector<std::string> bytes_;                             // by token
  std::array<std::int32_t, 256> of_byte_{};                    // the tokens of single bytes
  std::unordered_map<std::uint64_t, Merge> merges_;            // by both tokens
  std::map<std::string, std::int32_t, std::greater<>> added_;  // by content
  std::size_t longest_added_ = 0;
};

/// Encodes a text that comes in parts, with bounded memory. The tokens do not depend on the parts.
class TextEncoder {
 public:
  /// @pre `pairs` outlives the encoder.
  explicit TextEncoder(const BytePairs& pairs) : pairs_(pairs) {}
  using Sink = std::function<void(std::span<const std::int32_t> tokens)>;
  /// Passes the tokens that are certain to `sink`, in order, and keeps the rest of the text.
  void add(std::string_view text, const Sink& sink);
  /// Passes the last tokens. The next text is another one.
  void finish(const Sink& sink);

 private:
  struct Found {
    std::size_t at = 0, length = 0;
    std::int32_t token = 0;
  };
  void encode(bool last, const Sink& sink);
  Found next_added(std::size_t from, bool last, std::vector<std::size_t>& places) const;
  const std::vector<std::int32_t>& piece(std::string_view text);

  const BytePairs& pairs_;
  std::string rest_;
  std::unordered_map<std::string, std::vector<std::int32_t>> known_;  // pieces
  std::vector<std::int32_t> tokens_;                                  // of a long piece
};

}  // namespace partita
