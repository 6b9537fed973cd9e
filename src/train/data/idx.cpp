#include "partita/base/error.hpp"
#include "partita/train/data/dataset.hpp"
#include "src/system/seekable.hpp"
#include "src/train/data/sample_set.hpp"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <limits>

namespace partita {

namespace {

using Bytes = std::vector<unsigned char>;

/// A file that is read from its beginning, and decompressed if it is gzipped.
class InputFile {
 public:
  explicit InputFile(const std::string& path) : path_(path) {
    check_seekable(path);
    file_ = gzopen(path.c_str(), "rb");
    if (file_ == nullptr) fail("cannot open '{}': {}", path, std::strerror(errno));
    gzbuffer(file_, 1 << 17);
  }
  ~InputFile() { gzclose_r(file_); }
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  /// Reads up to out.size() bytes; fewer only at the end of the file. Throws Error if the file cannot be read.
  Index read(std::span<unsigned char> out) {
    Index found = 0;
    while (found < static_cast<Index>(out.size())) {
      const Index rest = std::min<Index>(static_cast<Index>(out.size()) - found, 1 << 30);  // gzread counts in int
      const int n = gzread(file_, out.data() + found, static_cast<unsigned>(rest));
      if (n <= 0) break;
      found += n;
    }
    int error = Z_OK;
    const std::string text = gzerror(file_, &error);
    if (error == Z_ERRNO) fail("cannot read '{}': {}", path_, std::strerror(errno));
    if (error != Z_OK && error != Z_BUF_ERROR) fail("'{}' is damaged: {}", path_, text);  // Z_BUF_ERROR: cut short
    return found;
  }

  /// Throws Error unless the file ends here. The end of a gzipped file has a checksum.
  void check_end(Index bytes) {
    std::array<unsigned char, 1> more{};
    if (read(more) > 0) fail("'{}' is damaged: its header announces {} bytes in all, but it has more", path_, bytes);
    int error = Z_OK;
    gzerror(file_, &error);
    if (error == Z_BUF_ERROR) fail("'{}' is truncated: its last bytes, with the checksum, are missing", path_);
  }

  /// Continues at byte `at`, which must not be before the current position.
  void seek(Index at) {
    if (gzseek(file_, at, SEEK_SET) < 0) fail("'{}' is damaged: cannot skip to byte {}", path_, at);
  }

  /// Returns the size of the file in bytes if it is not gzipped, so that it is known without reading; else -1.
  Index size() {
    if (gzdirect(file_) == 0) return -1;
    std::error_code error;
    const auto size = std::filesystem::file_size(path_, error);
    return error ? -1 : static_cast<Index>(size);
  }

  const std::string& path() const { return path_; }

 private:
  std::string path_;
  gzFile file_ = nullptr;
};

[[noreturn]] void fail_truncated(const std::string& path, Index expected, Index found) {
  fail("'{}' is truncated: its header announces {} bytes in all, but it ends after {}", path, expected, found);
}

/// An IDX file's header: 00 00, the type of the elements, the number of dimensions, and each extent as a big-endian
/// 32-bit number.
struct Header {
  std::vector<Index> extents;
  Index bytes() const { return 4 + 4 * static_cast<Index>(extents.size()); }
  Index elements() const {
    Index count = 1;
    for (const Index extent : extents) count *= extent;
    return count;
  }
};

void check_magic(const std::string& path, const std::array<unsigned char, 4>& magic) {
  constexpr unsigned char unsigned_byte = 0x08;
  if (magic[0] != 0 || magic[1] != 0)
    fail("'{}' is not an IDX file: expected it to begin with 00 00, found {:02x} {:02x}", path, magic[0], magic[1]);
  if (magic[2] != unsigned_byte)
    fail("'{}' holds elements of IDX type {:02x}; expected unsigned bytes, type 08", path, magic[2]);
}

Header read_header(InputFile& file, int least_dims, int most_dims) {
  std::array<unsigned char, 4> word{};
  if (const Index found = file.read(word); found < 4)
    fail("'{}' is not an IDX file: expected a header of 4 bytes or more, found {}", file.path(), found);
  check_magic(file.path(), word);
  const int dims = word[3];
  if (dims < least_dims || dims > most_dims)
    fail("'{}' has the wrong number of dimensions: expected {}, found {}", file.path(),
         least_dims == most_dims ? fmt::format("{}", least_dims) : fmt::format("{} to {}", least_dims, most_dims),
         dims);
  Header header;
  Index room = std::numeric_limits<Index>::max() / 2;  // so that the number of elements does not overflow
  for (int d = 0; d < dims; ++d) {
    if (const Index found = file.read(word); found < 4) fail_truncated(file.path(), 4 + 4 * dims, 4 + 4 * d + found);
    const Index extent = Index{word[0]} << 24 | Index{word[1]} << 16 | Index{word[2]} << 8 | Index{word[3]};
    if (extent > room) fail("'{}' is damaged: its header announces more bytes than a file can have", file.path());
    room /= std::max<Index>(extent, 1);
    header.extents.push_back(extent);
  }
  return header;
}

/// Compares the size of a file that is not gzipped with its header.
void check_size(InputFile& file, const Header& header) {
  const Index expected = header.bytes() + header.elements(), found = file.size();
  if (found >= 0 && found < expected) fail_truncated(file.path(), expected, found);
  if (found > expected)
    fail("'{}' is damaged: its header announces {} bytes in all, but it has {}", file.path(), expected, found);
}

Bytes labels_of(const std::string& path) {
  InputFile file(path);
  const Header header = read_header(file, 1, 1);
  check_size(file, header);
  Bytes labels;
  // In pieces, so that the header of a damaged file cannot make us allocate all memory.
  for (Index next = 0; next < header.elements();) {
    const Index piece = std::min<Index>(header.elements() - next, 1 << 20);
    labels.resize(static_cast<std::size_t>(next + piece));
    const Index found = file.read(std::span(labels).subspan(static_cast<std::size_t>(next)));
    next += found;
    if (found < piece) fail_truncated(path, header.bytes() + header.elements(), header.bytes() + next);
  }
  file.check_end(header.bytes() + header.elements());
  return labels;
}

class Idx final : public Dataset {
 public:
  Idx(std::string images, const std::string& labels, double mean, double deviation)
      : path_(std::move(images)), labels_path_(labels), labels_(labels_of(labels)) {
    InputFile file(path_);
    header_ = read_header(file, 3, 4);
    check_size(file, header_);
    if (header_.extents[0] != size())
      fail("'{}' holds {} images, but '{}' holds {} labels", path_, header_.extents[0], labels, size());
    const auto& e = header_.extents;
    sample_ = e.size() == 3 ? Shape{{'C', 1}, {'H', e[1]}, {'W', e[2]}} : Shape{{'C', e[1]}, {'H', e[2]}, {'W', e[3]}};
    classes_ = classes_beside(-1);
    for (std::size_t p = 0; p < 256; ++p) {
      scaled_[p] = (static_cast<double>(p) / 255.0 - mean) / deviation;
      rounded_[p] = static_cast<float>(scaled_[p]);
    }
  }

  Shape sample() const override { return sample_; }
  Index size() const override { return static_cast<Index>(labels_.size()); }
  Index classes() const override { return classes_; }
  Index classes_beside(Index ignored) const override {
    Index classes = 0;
    for (const auto label : labels_)
      if (label != ignored) classes = std::max(classes, Index{label} + 1);
    return classes;
  }

  void hold(std::span<const Index> samples, const Box& box) override {
    require(box.dims() == sample_.dims() && Box(sample_).contains(box), "the box lies inside the sample");
    for (const Index sample : samples) require(sample >= 0 && sample < size(), "the data set has the samples");
    SampleSet announced(samples, size());
    if (announced == samples_ && box == box_) return;
    samples_ = {};  // if reading fails, nothing is held
    Bytes().swap(pixels_);
    box_ = box;
    if (!box.empty()) stream(announced);
    samples_ = std::move(announced);
  }

  Index held_bytes() const override { return static_cast<Index>(labels_.size() + pixels_.size()) + samples_.bytes(); }
  Index bytes_to_hold(Index samples, const Box& box, Index, const Box&) const override {
    return size() + SampleSet::bytes(size()) + (box.empty() ? 0 : samples * box.volume());
  }

  void read(Index sample, const Box& box, std::span<double> out) const override { read(sample, box, scaled_, out); }
  void read_f32(Index sample, const Box& box, std::span<float> out) const override { read(sample, box, rounded_, out); }

  std::int32_t label(Index sample) const override {
    require(sample >= 0 && sample < size(), "the data set has the sample");
    return labels_[sample];
  }

  std::string label_beyond(Index classes, std::optional<Index> ignored) const override {
    const auto beyond = [&](unsigned char label) { return label >= classes && label != ignored; };
    const auto found = std::find_if(labels_.begin(), labels_.end(), beyond);
    if (found == labels_.end()) return "";
    const auto count = std::count_if(found, labels_.end(), beyond);
    return fmt::format("sample {} of '{}' has the label {}{}", found - labels_.begin(), labels_path_, *found,
                       count == 1 ? "" : fmt::format(", the first of {} such labels", count));
  }

 private:
  /// Reads pixels, of which `scaled` has the 256 values.
  template <class T>
  void read(Index sample, const Box& box, const std::array<T, 256>& scaled, std::span<T> out) const {
    require(samples_.has(sample), "a sample is announced before it is read");
    require(box.dims() == box_.dims() && box_.contains(box), "a box is announced before it is read");
    require(static_cast<Index>(out.size()) == box.volume(), "room for the box");
    if (box.empty()) return;
    const unsigned char* held = pixels_.data() + samples_.place(sample) * box_.volume();
    auto next = out.begin();
    for (Index c = box[0].lo; c < box[0].hi; ++c)
      for (Index h = box[1].lo; h < box[1].hi; ++h) {
        const Index row = (c - box_[0].lo) * box_.extent(1) + h - box_[1].lo;
        const unsigned char* pixel = held + row * box_.extent(2) + box[2].lo - box_[2].lo;
        next = std::transform(pixel, pixel + box.extent(2), next, [&scaled](unsigned char p) { return scaled[p]; });
      }
  }

  /// Stores the box of each of `samples` in `pixels_`, in one pass over the file.
  void stream(const SampleSet& samples) {
    InputFile file(path_);
    Bytes whole(static_cast<std::size_t>(sample_.volume()));
    pixels_.resize(static_cast<std::size_t>(samples.count() * box_.volume()));
    auto next = pixels_.begin();
    samples.each([&](Index sample) {
      const Index start = header_.bytes() + sample * sample_.volume();
      file.seek(start);
      if (const Index found = file.read(whole); found < sample_.volume())
        fail("'{}' is truncated: its header announces {} images, but it ends in image {} (counted from 0)", path_,
             size(), sample);
      for (Index c = box_[0].lo; c < box_[0].hi; ++c)
        for (Index h = box_[1].lo; h < box_[1].hi; ++h) {
          const auto row = whole.begin() + (c * sample_.extent(1) + h) * sample_.extent(2);
          next = std::copy(row + box_[2].lo, row + box_[2].hi, next);
        }
    });
    if (samples.has(size() - 1)) file.check_end(header_.bytes() + header_.elements());
  }

  std::string path_, labels_path_;
  Bytes labels_;
  Header header_;
  Shape sample_;
  Index classes_ = 0;
  std::array<double, 256> scaled_{};
  std::array<float, 256> rounded_{};
  SampleSet samples_;  // held samples
  Box box_;            // held box of each sample
  Bytes pixels_;       // C H W of the box, sample by sample
};

}  // namespace

std::unique_ptr<Dataset> open_idx(const std::string& images, const std::string& labels, double mean, double deviation) {
  if (!(deviation > 0.0)) fail("pixels are divided by their deviation, which must be positive, not {}", deviation);
  return std::make_unique<Idx>(images, labels, mean, deviation);
}

std::unique_ptr<Dataset> open_fashion_mnist(const std::string& folder, bool training) {
  constexpr double mean = 0.2860, deviation = 0.3530;  // of the training images' pixels in [0, 1]
  const std::filesystem::path from(folder.empty() ? "/usr/share/datasets/fashion-mnist" : folder);
  const std::string part = training ? "train" : "t10k";
  const std::string images = (from / (part + "-images-idx3-ubyte.gz")).string();
  const std::string labels = (from / (part + "-labels-idx1-ubyte.gz")).string();
  for (const auto& file : {images, labels}) {
    std::error_code error;
    if (!std::filesystem::exists(file, error))
      fail(
          "Fashion-MNIST's file '{}' is missing; install Debian's package dataset-fashion-mnist, or give the folder "
          "with --data-dir",
          file);
  }
  return open_idx(images, labels, mean, deviation);
}

}  // namespace partita
