#include "partita/base/error.hpp"
#include "partita/train/data/dataset.hpp"
#include "test/support/error_of.hpp"

#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <filesystem>
#include <fstream>

namespace partita::idx_test {
namespace {

using Bytes = std::vector<unsigned char>;

/// An IDX file of unsigned bytes.
Bytes idx(const std::vector<unsigned>& extents, const Bytes& elements) {
  Bytes file{0, 0, 8, static_cast<unsigned char>(extents.size())};
  for (const unsigned extent : extents)
    for (const int shift : {24, 16, 8, 0}) file.push_back(static_cast<unsigned char>(extent >> shift));
  file.insert(file.end(), elements.begin(), elements.end());
  return file;
}

/// Pixels with distinct values: 7, 14, ... modulo 256.
Bytes ramp(std::size_t count) {
  Bytes bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<unsigned char>(7 * (i + 1));
  return bytes;
}

class Idx : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  /// Writes a file, gzipped if `gzip` is true, and returns its path.
  std::string write(const std::string& name, const Bytes& bytes, bool gzip) const {
    const auto path = (folder_ / name).string();
    if (gzip) {
      const gzFile file = gzopen(path.c_str(), "wb");
      gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
      gzclose(file);
    } else {
      std::ofstream(path, std::ios::binary)
          .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    }
    return path;
  }
  std::string write(const std::string& name, const Bytes& bytes) const { return write(name, bytes, GetParam()); }

  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("partita_idx_test_" + std::to_string(getpid()));
};

std::vector<float> read(const Dataset& data, Index i, const Box& box) {
  std::vector<float> pixels(static_cast<std::size_t>(box.volume()));
  data.read_f32(i, box, pixels);
  return pixels;
}

float scaled(unsigned char p) { return static_cast<float>((p / 255.0 - 0.25) / 0.5); }

Box make_box(std::initializer_list<Interval> sides) {
  Box box(static_cast<int>(sides.size()));
  int d = 0;
  for (const auto side : sides) box[d++] = side;
  return box;
}

TEST_P(Idx, ReadsShapeLabelsAndPixels) {
  const auto images = write("images", idx({3, 2, 5}, ramp(30))), labels = write("labels", idx({3}, {2, 0, 6}));
  const auto data = open_idx(images, labels, 0.25, 0.5);
  EXPECT_EQ(data->sample(), (Shape{{'C', 1}, {'H', 2}, {'W', 5}}));
  EXPECT_EQ(data->size(), 3);
  EXPECT_EQ(data->classes(), 7);
  EXPECT_EQ(data->label(0), 2);
  EXPECT_EQ(data->label(2), 6);
  const Box whole(data->sample());
  data->hold(std::vector<Index>{0, 1, 2}, whole);
  for (Index i = 0; i < 3; ++i) {
    const auto pixels = read(*data, i, whole);
    for (std::size_t p = 0; p < 10; ++p) EXPECT_EQ(pixels[p], scaled(ramp(30)[static_cast<std::size_t>(i) * 10 + p]));
  }
}

TEST_P(Idx, EveryHeldBoxGivesItsPixels) {
  constexpr Index channels = 2, rows = 3, columns = 5, volume = channels * rows * columns;
  const auto images = write("images", idx({4, 2, 3, 5}, ramp(4 * volume)));
  const auto data = open_idx(images, write("labels", idx({4}, {0, 1, 0, 1})), 0.25, 0.5);
  EXPECT_EQ(data->sample(), (Shape{{'C', channels}, {'H', rows}, {'W', columns}}));
  for (Index c = 0; c <= channels; ++c)
    for (Index h = 0; h <= rows; ++h)
      for (Index w = 0; w <= columns; ++w) {
        const Box held = make_box({{c / 2, channels}, {h, rows}, {w / 3, w}});
        const Box asked = make_box({{c, channels}, {h, rows - (h < rows ? 1 : 0)}, {w / 2, w}});
        data->hold(std::vector<Index>{3, 1, 3}, held);  // in any order, with duplicates
        EXPECT_EQ(data->held_bytes(), data->bytes_to_hold(2, held, 0, {}));
        EXPECT_GE(data->held_bytes(), 2 * held.volume() + 4) << "pixels and labels";
        for (const Index i : {1, 3}) {
          const auto pixels = read(*data, i, asked);
          auto next = pixels.begin();
          for (Index y = asked[0].lo; y < asked[0].hi; ++y)
            for (Index x = asked[1].lo; x < asked[1].hi; ++x)
              for (Index z = asked[2].lo; z < asked[2].hi; ++z)
                ASSERT_EQ(*next++, scaled(ramp(4 * volume)[((i * channels + y) * rows + x) * columns + z]));
        }
      }
}

TEST_P(Idx, MayBeEmpty) {
  const auto data = open_idx(write("images", idx({0, 2, 5}, {})), write("labels", idx({0}, {})), 0.25, 0.5);
  EXPECT_EQ(data->size(), 0);
  EXPECT_EQ(data->classes(), 0);
  data->hold({}, Box(data->sample()));
}

TEST_P(Idx, HoldsAgain) {
  const auto images = write("images", idx({3, 2, 5}, ramp(30))), labels = write("labels", idx({3}, {2, 0, 6}));
  const auto data = open_idx(images, labels, 0.25, 0.5);
  const Box row = make_box({{0, 1}, {1, 2}, {0, 5}});
  data->hold(std::vector<Index>{0}, Box(data->sample()));
  data->hold(std::vector<Index>{2}, row);
  EXPECT_EQ(read(*data, 2, row)[0], scaled(ramp(30)[25]));
  std::filesystem::remove(images);
  data->hold(std::vector<Index>{2}, row);  // held samples are not read again
  EXPECT_EQ(read(*data, 2, row)[0], scaled(ramp(30)[25]));
  const auto message = test::error_of([&] { data->hold(std::vector<Index>{1}, row); });
  EXPECT_NE(message.find("cannot open '" + images + "': No such file or directory"), std::string::npos) << message;
}

TEST_P(Idx, NamesAMissingFile) {
  const auto labels = write("labels", idx({1}, {0}));
  const auto missing = (folder_ / "none").string();
  EXPECT_EQ(test::error_of([&] { open_idx(missing, labels, 0, 1); }),
            "cannot open '" + missing + "': No such file or directory");
  EXPECT_EQ(test::error_of([&] { open_idx(folder_.string(), labels, 0, 1); }),
            "cannot read '" + folder_.string() + "': Is a directory");
}

TEST_P(Idx, RefusesWhatIsNoIdx) {
  const auto labels = write("labels", idx({1}, {0}));
  const auto message = [&](const Bytes& bytes) {
    const auto path = write("images", bytes);
    auto text = test::error_of([&] { open_idx(path, labels, 0, 1); });
    if (const auto at = text.find(path); at != std::string::npos) text.replace(at, path.size(), "PATH");
    return text;
  };
  EXPECT_EQ(message({}), "'PATH' is not an IDX file: expected a header of 4 bytes or more, found 0");
  EXPECT_EQ(message({0, 0, 8}), "'PATH' is not an IDX file: expected a header of 4 bytes or more, found 3");
  EXPECT_EQ(message({'P', 'N', 'G', 0, 0}), "'PATH' is not an IDX file: expected it to begin with 00 00, found 50 4e");
  EXPECT_EQ(message({0, 0, 13, 3, 0}), "'PATH' holds elements of IDX type 0d; expected unsigned bytes, type 08");
  EXPECT_EQ(message(idx({1}, {0})), "'PATH' has the wrong number of dimensions: expected 3 to 4, found 1");
  EXPECT_EQ(message({0, 0, 8, 3, 0, 0, 0, 1, 0, 0}),
            "'PATH' is truncated: its header announces 16 bytes in all, but it ends after 10");
  constexpr unsigned huge = 0xffffffff;
  EXPECT_EQ(message(idx({huge, huge, huge}, {})),
            "'PATH' is damaged: its header announces more bytes than a file can have");
  EXPECT_EQ(message(idx({2, 1, 1}, {0, 0})), "'PATH' holds 2 images, but '" + labels + "' holds 1 labels");
}

TEST_P(Idx, FindsTruncatedLabels) {
  const auto labels = write("labels", idx({3}, {0, 1}));
  EXPECT_EQ(test::error_of([&] { open_idx("", labels, 0, 1); }),
            "'" + labels + "' is truncated: its header announces 11 bytes in all, but it ends after 10");
}

TEST_P(Idx, FindsTruncatedImages) {
  const auto images = write("images", idx({3, 2, 5}, ramp(29))), labels = write("labels", idx({3}, {2, 0, 6}));
  const auto open = [&] { return open_idx(images, labels, 0.25, 0.5); };
  if (!GetParam()) {  // a plain file is checked by its size when it is opened
    EXPECT_EQ(test::error_of(open),
              "'" + images + "' is truncated: its header announces 46 bytes in all, but it ends after 45");
    return;
  }
  const auto data = open();
  const Box row = make_box({{0, 1}, {0, 1}, {0, 5}});
  data->hold(std::vector<Index>{1}, row);
  EXPECT_EQ(test::error_of([&] { data->hold(std::vector<Index>{2}, row); }),
            "'" + images + "' is truncated: its header announces 3 images, but it ends in image 2 (counted from 0)");
}

TEST_P(Idx, FindsAGzippedFileThatIsCutOrDamaged) {
  const auto labels = write("labels", idx({40}, Bytes(40)));
  const auto images = write("images", idx({40, 28, 28}, ramp(40 * 28 * 28)), true);
  const Box pixel = make_box({{0, 1}, {3, 4}, {3, 4}});
  const auto size = std::filesystem::file_size(images);
  std::fstream(images, std::ios::binary | std::ios::in | std::ios::out)
      .seekp(static_cast<std::streamoff>(size) - 8)
      .put('?');
  const auto hold_last = [&] { open_idx(images, labels, 0, 1)->hold(std::vector<Index>{39}, pixel); };
  EXPECT_NE(test::error_of(hold_last).find("'" + images + "' is "), std::string::npos) << test::error_of(hold_last);
  std::filesystem::resize_file(images, size / 2);
  EXPECT_NE(test::error_of(hold_last).find("'" + images + "' is truncated"), std::string::npos)
      << test::error_of(hold_last);
}

// The last 8 bytes of a gzipped file are a checksum and the length.
TEST_P(Idx, FindsAGzippedFileWithoutItsEndOrWithMoreThanItsHeaderSays) {
  const Box pixel = make_box({{0, 1}, {0, 1}, {0, 1}});
  const auto labels = write("labels", idx({2}, {1, 0}), true), longer = write("longer", idx({2}, {1, 0, 0}), true);
  const auto images = write("images", idx({2, 1, 1}, ramp(2)), true),
             more = write("more", idx({2, 1, 1}, ramp(3)), true);
  const auto error = [&](const std::string& pixels, const std::string& names) {
    return test::error_of([&] { open_idx(pixels, names, 0, 1)->hold(std::vector<Index>{1}, pixel); });
  };
  EXPECT_EQ(error(images, labels), "");
  EXPECT_EQ(error(images, longer),
            "'" + longer + "' is damaged: its header announces 10 bytes in all, but it has more");
  EXPECT_EQ(error(more, labels), "'" + more + "' is damaged: its header announces 18 bytes in all, but it has more");
  for (const auto& cut : {labels, images}) {
    std::filesystem::resize_file(cut, std::filesystem::file_size(cut) - 8);
    EXPECT_EQ(error(images, labels), "'" + cut + "' is truncated: its last bytes, with the checksum, are missing");
    write(cut == labels ? "labels" : "images", cut == labels ? idx({2}, {1, 0}) : idx({2, 1, 1}, ramp(2)), true);
  }
}

TEST_P(Idx, RefusesAFileThatIsLongerThanItsHeaderSays) {
  if (GetParam()) return;  // the length of a gzipped file is not known in advance
  const auto labels = write("labels", idx({1}, {0}));
  const auto images = write("images", idx({1, 1, 1}, {1, 2}));
  EXPECT_EQ(test::error_of([&] { open_idx(images, labels, 0, 1); }),
            "'" + images + "' is damaged: its header announces 17 bytes in all, but it has 18");
}

TEST_P(Idx, RefusesADeviationOfZero) { EXPECT_THROW(open_idx("", "", 0, 0), Error); }

TEST_P(Idx, WhatIsNotHeldIsRefused) {
  const auto images = write("images", idx({3, 2, 5}, ramp(30))), labels = write("labels", idx({3}, {2, 0, 6}));
  const auto data = open_idx(images, labels, 0.25, 0.5);
  const Box row = make_box({{0, 1}, {1, 2}, {0, 5}});
  EXPECT_DEATH(read(*data, 1, row), "a sample is announced before it is read");
  data->hold(std::vector<Index>{1}, row);
  EXPECT_DEATH(read(*data, 0, row), "a sample is announced before it is read");
  EXPECT_DEATH(read(*data, 1, Box(data->sample())), "a box is announced before it is read");
  EXPECT_DEATH(data->hold(std::vector<Index>{3}, row), "the data set has the samples");
  EXPECT_DEATH(data->label(3), "the data set has the sample");
}

INSTANTIATE_TEST_SUITE_P(Files, Idx, testing::Bool(),
                         [](const auto& gzip) { return std::string(gzip.param ? "Gzipped" : "Plain"); });

TEST(FashionMnist, NamesThePackageIfItIsMissing) {
  const auto message = test::error_of([] { open_fashion_mnist("/nowhere", false); });
  EXPECT_EQ(message,
            "Fashion-MNIST's file '/nowhere/t10k-images-idx3-ubyte.gz' is missing; install Debian's package "
            "dataset-fashion-mnist, or give the folder with --data-dir");
}

TEST(FashionMnist, HasItsKnownSizesMeanAndDeviation) {
  // test/run.sh installs the package; its line of counts reports the skip if there is no such package.
  if (!std::filesystem::exists("/usr/share/datasets/fashion-mnist"))
    GTEST_SKIP() << "dataset-fashion-mnist is not installed";
  EXPECT_EQ(open_fashion_mnist("", true)->size(), 60000);
  const auto data = open_fashion_mnist("", false);
  ASSERT_EQ(data->size(), 10000);
  EXPECT_EQ(data->classes(), 10);
  std::vector<Index> all(10000);
  std::array<int, 10> count{};
  for (Index i = 0; i < 10000; ++i) {
    all[i] = i;
    ++count.at(static_cast<std::size_t>(data->label(i)));
  }
  for (const int n : count) EXPECT_EQ(n, 1000);
  const Box whole(data->sample());
  data->hold(all, whole);
  double sum = 0, squares = 0;
  for (const Index i : all)
    for (const float pixel : read(*data, i, whole)) {
      sum += pixel;
      squares += static_cast<double>(pixel) * pixel;
    }
  EXPECT_NEAR(sum / (10000 * 784), 0, 0.01);
  EXPECT_NEAR(squares / (10000 * 784), 1, 0.02);
}

}  // namespace
}  // namespace partita::idx_test
