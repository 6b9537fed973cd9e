#include "partita/base/error.hpp"
#include "partita/base/philox.hpp"
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

/// Bytes `begin` on of a file.
class Text final : public Tokens {
 public:
  Text(std::string path, std::unique_ptr<const Descriptor> file, Index begin, Index length, Index samples)
      : Tokens(length, 256, samples), path_(std::move(path)), file_(std::move(file)), begin_(begin) {}

 private:
  void read_tokens(Index sample, Index first, std::span<std::int32_t> out) const override {
    std::vector<std::byte> bytes(out.size());
    const Index at = begin_ + sample * length_ + first;
    try {
      read_all(*file_, bytes, at);
    } catch (const Error& error) {
      fail("cannot read '{}' at byte {}: {}", path_, at, error.what());
    }
    std::transform(bytes.begin(), bytes.end(), out.begin(), [](std::byte b) { return std::to_integer<int>(b); });
  }

  std::string path_;
  std::unique_ptr<const Descriptor> file_;
  Index begin_;
};

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

std::unique_ptr<const Descriptor> opened(const std::string& path) {
  try {
    return std::make_unique<const Descriptor>(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  } catch (const Error& error) {
    fail("cannot open '{}': {}", path, error.what());
  }
}

}  // namespace

std::unique_ptr<Dataset> open_text(const std::string& path, Index length, bool training) {
  if (length < 1) fail("a sample of text has 1 or more places, not {}", length);
  const bool folder = std::filesystem::is_directory(path);
  const std::string name = folder ? path + (training ? "/training.txt" : "/test.txt") : path;
  check_seekable(name);
  auto file = opened(name);
  const auto size = static_cast<Index>(std::filesystem::file_size(name));
  const Index split = folder ? 0 : size - size / 10;
  const Index begin = folder || training ? 0 : split, end = folder || !training ? size : split;
  const Index samples = (end - begin - 1) / length;  // the last label lies behind its sample
  if (samples < 1)
    fail("'{}' has {} bytes for {}; a sample takes {} and one more", name, end - begin,
         training ? "training" : "the test", length);
  auto text = std::make_unique<Text>(name, std::move(file), begin, length, samples);
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
