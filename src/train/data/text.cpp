#include "partita/base/error.hpp"
#include "partita/base/philox.hpp"
#include "partita/train/data/byte_pairs.hpp"
#include "partita/train/data/dataset.hpp"
#include "src/system/seekable.hpp"
#include "src/system/system_file.hpp"

#include <algorithm>
#include <filesystem>
#include <utility>

namespace partita {

namespace {

/// Samples of `length` tokens, each with the token that follows as its label. Everything is read where it is asked for,
/// so nothing is held.
class Tokens : public Dataset {
 public:
  Tokens(Index length, Index vocabulary, Index size) : length_(length), vocabulary_(vocabulary), size_(size) {}

  Shape sample() const override { return {{'C', 1}, {'L', length_}}; }
  Shape target() const override { return {{'L', length_}}; }
  Index size() const override { return size_; }
  Index classes() const override { return vocabulary_; }
  Index vocabulary() const override { return vocabulary_; }
  void hold(std::span<const Index>, const Box&) override {}
  bool needs_announcement() const override { return false; }
  void read(Index sample, const Box& box, std::span<double> out) const override { read_from(sample, box[1].lo, out); }
  void read_labels(Index sample, const Box& box, std::span<std::int32_t> out) const override {
    read_from(sample, box[0].lo + 1, out);
  }

 protected:
  /// Sets `out` to the tokens of a sample from place `first` on; place `length` is that of the last label.
  virtual void read_tokens(Index sample, Index first, std::span<std::int32_t> out) const = 0;

  const Index length_, vocabulary_;

 private:
  template <class T>
  void read_from(Index sample, Index first, std::span<T> out) const {
    require(sample >= 0 && sample < size_, "the data set has the sample");
    std::vector<std::int32_t> tokens(out.size());
    read_tokens(sample, first, tokens);
    std::copy(tokens.begin(), tokens.end(), out.begin());
  }

  Index size_;
};

/// The bytes of a file that are for training, or for the test.
class TextPart {
 public:
  TextPart(const std::string& path, bool training) : training_(training) {
    const bool folder = std::filesystem::is_directory(path);
    path_ = folder ? path + (training ? "/training.txt" : "/test.txt") : path;
    check_seekable(path_);
    try {
      file_ = std::make_unique<const Descriptor>(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
    } catch (const Error& error) {
      fail("cannot open '{}': {}", path_, error.what());
    }
    const auto size = static_cast<Index>(std::filesystem::file_size(path_));
    const Index split = folder ? 0 : size - size / 10;
    bytes_ = {folder || training ? 0 : split, folder || !training ? size : split};
  }

  Index size() const { return bytes_.extent(); }
  void read(Index first, std::span<std::byte> out) const {
    try {
      read_all(*file_, out, bytes_.lo + first);
    } catch (const Error& error) {
      fail("cannot read '{}' at byte {}: {}", path_, bytes_.lo + first, error.what());
    }
  }
  /// The number of samples of `length` tokens. Throws Error if there is none.
  Index samples(Index tokens, std::string_view what, Index length) const {
    const Index samples = (tokens - 1) / length;  // the last label lies behind its sample
    if (samples < 1)
      fail("'{}' has {} {} for {}; a sample takes {} and one more", path_, tokens, what,
           training_ ? "training" : "the test", length);
    return samples;
  }

 private:
  std::string path_;
  std::unique_ptr<const Descriptor> file_;
  Interval bytes_;
  bool training_;
};

/// The bytes of a part of a file.
class Text final : public Tokens {
 public:
  Text(TextPart part, Index length)
      : Tokens(length, 256, part.samples(part.size(), "bytes", length)), part_(std::move(part)) {}

 private:
  void read_tokens(Index sample, Index first, std::span<std::int32_t> out) const override {
    std::vector<std::byte> bytes(out.size());
    part_.read(sample * length_ + first, bytes);
    std::transform(bytes.begin(), bytes.end(), out.begin(), [](std::byte b) { return std::to_integer<int>(b); });
  }

  TextPart part_;
};

/// Tokens in memory, each of type T.
template <class T>
class EncodedText final : public Tokens {
 public:
  EncodedText(std::vector<T> tokens, Index length, Index vocabulary, Index samples)
      : Tokens(length, vocabulary, samples), tokens_(std::move(tokens)) {}
  Index held_bytes() const override { return std::ssize(tokens_) * Index{sizeof(T)}; }

 private:
  void read_tokens(Index sample, Index first, std::span<std::int32_t> out) const override {
    std::copy_n(tokens_.begin() + sample * length_ + first, out.size(), out.begin());
  }

  std::vector<T> tokens_;
};

template <class T>
std::unique_ptr<Dataset> encoded(const TextPart& part, Index length, const BytePairs& pairs,
                                 const std::function<void(Index, Index)>& progress) {
  constexpr Index most = 1 << 20;
  std::vector<T> tokens;
  TextEncoder encoder(pairs);
  const auto append = [&](std::span<const std::int32_t> more) {
    tokens.insert(tokens.end(), more.begin(), more.end());
  };
  std::vector<std::byte> bytes;
  for (Index done = 0; done < part.size(); done += std::ssize(bytes)) {
    bytes.resize(static_cast<std::size_t>(std::min(most, part.size() - done)));
    part.read(done, bytes);
    encoder.add({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, append);
    if (progress) progress(done + std::ssize(bytes), part.size());
  }
  encoder.finish(append);
  tokens.shrink_to_fit();
  const Index samples = part.samples(std::ssize(tokens), "tokens", length);
  return std::make_unique<EncodedText<T>>(std::move(tokens), length, pairs.size(), samples);
}

/// Tokens that count up, and jump at the beginning of each run of eight places. So all but one of eight follow from the
/// token before.
class SyntheticTokens final : public Tokens {
 public:
  SyntheticTokens(Index length, Index vocabulary, Index size, std::uint64_t seed, int part)
      : Tokens(length, vocabulary, size),
        starts_(seed, hash_text("synthetic tokens"), static_cast<std::uint64_t>(part)) {}

 private:
  void read_tokens(Index sample, Index first, std::span<std::int32_t> out) const override {
    constexpr Index run = 8;
    const Index runs = length_ / run + 1;  // of a sample, with its last label
    for (Index i = 0; i < std::ssize(out); ++i) {
      const Index place = first + i;
      const auto start = starts_.bits(sample * runs + place / run) % static_cast<std::uint64_t>(vocabulary_);
      out[i] = static_cast<std::int32_t>((static_cast<Index>(start) + place % run) % vocabulary_);
    }
  }

  Random starts_;
};

void check_length(Index length) {
  if (length < 1) fail("a sample of text has 1 or more places, not {}", length);
}

}  // namespace

std::unique_ptr<Dataset> open_text(const std::string& path, Index length, bool training) {
  check_length(length);
  auto text = std::make_unique<Text>(TextPart(path, training), length);
  text->set_name("text");
  return text;
}

std::unique_ptr<Dataset> open_text(const std::string& path, Index length, bool training, const BytePairs& pairs,
                                   const std::function<void(Index done, Index all)>& progress) {
  check_length(length);
  const TextPart part(path, training);
  constexpr Index most = Index{1} << 16;  // different tokens of 2 bytes
  auto text = pairs.size() <= most ? encoded<std::uint16_t>(part, length, pairs, progress)
                                   : encoded<std::int32_t>(part, length, pairs, progress);
  text->set_name("text");
  return text;
}

std::unique_ptr<Dataset> make_synthetic_tokens(Index length, Index vocabulary, Index size, std::uint64_t seed,
                                               int part) {
  if (size < 0) fail("a synthetic data set cannot have {} samples", size);
  if (length < 1 || vocabulary < 1) fail("samples of {} tokens of {}; both must be 1 or more", length, vocabulary);
  return std::make_unique<SyntheticTokens>(length, vocabulary, size, seed, part);
}

}  // namespace partita
