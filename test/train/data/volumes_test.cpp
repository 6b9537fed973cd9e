// Data sets in HDF5 files: a saved data set reads back the same, by any box, in any order, prefetched or not; files of
// another form are refused.
#include "partita/train/data/dataset.hpp"
#include "test/support/error_of.hpp"

#include <gtest/gtest.h>
#include <hdf5.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace partita::test {
namespace {

namespace fs = std::filesystem;

class Volumes : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder); }
  void TearDown() override { fs::remove_all(folder); }
  fs::path folder = fs::temp_directory_path() / fmt::format("partita-volumes-{}", getpid());
  std::string path = (folder / "set.h5").string();
};

std::vector<float> image(const Dataset& data, Index sample, const Box& box) {
  std::vector<float> out(static_cast<std::size_t>(box.volume()));
  data.read(sample, box, out);
  return out;
}

std::vector<float> target(const Dataset& data, Index sample, const Box& box) {
  std::vector<float> out(static_cast<std::size_t>(box.dims() == 0 ? 1 : box.volume()));
  data.read_target(sample, box, out);
  return out;
}

struct Kind {
  Shape sample, target;
  Index classes;
};

const std::vector<Kind> kinds{
    {{{'C', 2}, {'D', 3}, {'H', 4}, {'W', 5}}, {{'D', 3}, {'H', 4}, {'W', 5}}, 3},  // labels of voxels
    {{{'C', 3}, {'H', 4}, {'W', 5}}, {}, 7},                                        // one label per sample
    {{{'C', 1}, {'W', 9}}, {{'C', 4}}, 0},                                          // values
};

TEST_F(Volumes, HoldWhatWasSaved) {
  for (const auto& [shape, answer, classes] : kinds) {
    const auto original = make_synthetic(shape, answer, 5, classes, 1, 0);
    save_volumes(path, *original);
    const auto data = open_volumes(path);
    EXPECT_EQ(data->sample(), shape);
    EXPECT_EQ(data->target(), answer);
    EXPECT_EQ(data->size(), 5);
    EXPECT_EQ(data->classes(), classes);
    Box part(shape), target_part(answer);
    part[part.dims() - 1] = {1, 4};
    if (answer.dims() > 0) target_part[0] = {1, 3};
    const std::vector<Index> order{3, 0, 4, 0};
    data->hold(order, part);
    data->hold_targets(order, target_part);
    EXPECT_EQ(data->held_bytes(), data->bytes_to_hold(4, part, 4, target_part));
    EXPECT_GE(data->held_bytes(), 4 * 4 * part.volume() + 4 * 4) << "four samples and their targets in f32, at least";
    for (const Index sample : order) {
      EXPECT_EQ(image(*data, sample, part), image(*original, sample, part));
      EXPECT_EQ(target(*data, sample, target_part), target(*original, sample, target_part));
    }
    EXPECT_EQ(image(*data, 2, Box(shape)), image(*original, 2, Box(shape)))
        << "samples that were not announced are read directly";
  }
}

TEST_F(Volumes, ASetThatReadsHdf5CanBeSaved) {
  for (const auto& [shape, answer, classes] : kinds) {
    save_volumes(path, *make_synthetic(shape, answer, 40, classes, 1, 0));
    const auto data = open_volumes(path);
    const std::string copy = (folder / "copy.h5").string();
    save_volumes(copy, *data);
    const auto copied = open_volumes(copy);
    EXPECT_EQ(image(*copied, 39, Box(shape)), image(*data, 39, Box(shape)));
    EXPECT_EQ(target(*copied, 39, Box(answer)), target(*data, 39, Box(answer)));
  }
}

TEST_F(Volumes, ManyAreReadAheadAndMayBeLeft) {
  const auto original = make_synthetic(kinds[1].sample, {}, 300, 7, 1, 0);
  save_volumes(path, *original);
  const auto data = open_volumes(path);
  std::vector<Index> order(300);
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<Index>((i * 7) % 300);
  for (int epoch = 0; epoch < 3; ++epoch) {
    data->hold(order, Box(kinds[1].sample));
    for (std::size_t i = 0; i < order.size() / 2; ++i)
      ASSERT_EQ(image(*data, order[i], Box(kinds[1].sample)), image(*original, order[i], Box(kinds[1].sample)));
  }
}

TEST_F(Volumes, FilesOfAnotherFormAreRefused) {
  expect_error([&] { open_volumes(path); }, {path, "o such file"});
  std::ofstream(path) << "no HDF5";
  const std::string damaged =
      "data set '" + path + "': the file is damaged, cut short or of another kind; copy it again";
  EXPECT_EQ(error_of([&] { open_volumes(path); }).find(damaged), 0U);
  const auto write = [&](const char* name, std::vector<hsize_t> extents, bool fresh) {
    const hid_t file = fresh ? H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT)
                             : H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
    const hid_t space = H5Screate_simple(static_cast<int>(extents.size()), extents.data(), nullptr);
    const hid_t data = H5Dcreate2(file, name, H5T_NATIVE_INT32, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    H5Dclose(data);
    H5Sclose(space);
    H5Fclose(file);
  };
  write("other", {2}, true);
  expect_error([&] { open_volumes(path); }, {path, "it has no array 'samples'; a data set has the arrays"});
  write("samples", {2, 1, 3}, false);
  expect_error([&] { open_volumes(path); }, {path, "it has no array 'targets'"});
  write("targets", {3}, false);
  expect_error([&] { open_volumes(path); }, {path, "2 samples, but 3 targets"});
  write("samples", {2, 1, 3}, true);
  write("targets", {2}, false);
  expect_error([&] { open_volumes(path); }, {path, "give it an attribute 'classes'"});
  write("samples", {2}, true);
  write("targets", {2}, false);
  expect_error([&] { open_volumes(path); }, {path, "'samples' has 1 dimensions"});
}

TEST_F(Volumes, ATruncatedFileFailsWhenItIsRead) {
  const auto original = make_synthetic(kinds[0].sample, kinds[0].target, 50, 3, 1, 0);
  save_volumes(path, *original);
  fs::resize_file(path, fs::file_size(path) / 2);
  expect_error(
      [&] {
        const auto data = open_volumes(path);
        const std::vector<Index> order{0, 49};
        data->hold(order, Box(kinds[0].sample));
        for (const Index sample : order) image(*data, sample, Box(kinds[0].sample));
      },
      {path, ": the file is damaged, cut short or of another kind; copy it again or write it again (HDF5: "});
}

TEST_F(Volumes, LabelsBeyondTheClassesAreNamed) {
  save_volumes(path, *make_synthetic(kinds[1].sample, {}, 20, 7, 1, 0));
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  const hid_t targets = H5Dopen2(file, "targets", H5P_DEFAULT), classes = H5Aopen(targets, "classes", H5P_DEFAULT);
  const int two = 2;
  H5Awrite(classes, H5T_NATIVE_INT, &two);
  H5Aclose(classes);
  H5Dclose(targets);
  H5Fclose(file);
  const auto data = open_volumes(path);
  expect_error(
      [&] {
        std::vector<float> label(1);
        for (Index i = 0; i < 20; ++i) read_checked_target(*data, i, Box(Shape{}), label);
      },
      {"data set '" + path + "': sample ", "has the label ", "but classes() is 2; labels are 0 to 1"});
}

}  // namespace
}  // namespace partita::test
