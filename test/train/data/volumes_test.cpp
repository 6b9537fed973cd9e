// Data sets in HDF5 files: a saved data set reads back the same, by any box, in any order, prefetched or not; files of
// another form are refused.
#include "partita/train/data/dataset.hpp"
#include "test/support/error_of.hpp"
#include "test/support/hdf5_array.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <hdf5.h>
#include <sys/file.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace partita::test::volumes_test {
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
  data.read_f32(sample, box, out);
  return out;
}

/// Values rounded to f32, or labels.
std::vector<double> target(const Dataset& data, Index sample, const Box& box) {
  std::vector<double> out(static_cast<std::size_t>(box.volume()));
  if (data.classes() == 0) {
    data.read_target(sample, box, out);
    for (double& value : out) value = static_cast<float>(value);
    return out;
  }
  std::vector<std::int32_t> labels(out.size());
  data.read_labels(sample, box, labels);
  std::copy(labels.begin(), labels.end(), out.begin());
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
    EXPECT_GE(data->held_bytes(), 4 * 4 * part.volume() + 4 * 4 * target_part.volume())
        << "four samples and their targets in f32, at least";
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
        std::vector<std::int32_t> label(1);
        for (Index i = 0; i < 20; ++i) read_checked_labels(*data, i, Box(Shape{}), label);
      },
      {"data set '" + path + "': sample ", "has the label ", "but classes() is 2; labels are 0 to 1"});
}

/// Reads samples of 3 values as f64 and as f32, and what two announced ones take in memory.
template <class T>
void check_samples(const std::string& path, hid_t type, hid_t memory, const std::vector<T>& values, Index bytes) {
  const auto count = static_cast<hsize_t>(values.size() / 3);
  ASSERT_TRUE(write_array(path, {"samples", type, {count, 3}, true}, memory, values));
  ASSERT_TRUE(write_array(path, {"targets", H5T_STD_U8LE, {count}, false, 2}, H5T_NATIVE_INT, std::vector<int>(count)));
  const auto data = open_volumes(path);
  const Box box(data->sample());
  std::vector<Index> order(count);
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<Index>(i);
  data->hold(order, box);
  EXPECT_EQ(data->held_bytes(), static_cast<Index>(count) * (4 + 3 * bytes)) << "of the order, and of the numbers";
  for (const bool announced : {true, false})
    for (std::size_t i = 0; i < order.size(); ++i) {
      std::vector<double> exact(3);
      std::vector<float> rounded(3);
      data->read(order[i], box, exact);
      data->read_f32(order[i], box, rounded);
      for (std::size_t c = 0; c < 3; ++c) {
        EXPECT_EQ(exact[c], static_cast<double>(values[3 * i + c])) << announced << i;
        EXPECT_EQ(rounded[c], static_cast<float>(values[3 * i + c])) << announced << i;
      }
    }
}

TEST_F(Volumes, NumbersKeepTheirType) {
  const std::vector<double> exact{1.0 / 3, -1e300, 5e-324, 16777217, 1.7e9 + 0.25, -0.0};
  check_samples(path, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, exact, 8);
  check_samples(path, H5T_IEEE_F64BE, H5T_NATIVE_DOUBLE, exact, 8);
  check_samples(path, H5T_IEEE_F32BE, H5T_NATIVE_FLOAT, std::vector<float>{0.1F, -3e38F, 1e-45F}, 4);
  check_samples(path, H5T_STD_U8LE, H5T_NATIVE_INT, std::vector<int>{0, 128, 255}, 1);
  check_samples(path, H5T_STD_I8BE, H5T_NATIVE_INT, std::vector<int>{-128, 0, 127}, 1);
  check_samples(path, H5T_STD_U16BE, H5T_NATIVE_INT, std::vector<int>{0, 32768, 65535}, 2);
  check_samples(path, H5T_STD_I16LE, H5T_NATIVE_INT, std::vector<int>{-32768, 0, 32767}, 2);
  check_samples(path, H5T_STD_U32LE, H5T_NATIVE_LLONG, std::vector<long long>{0, 16777217, 4294967295}, 4);
  check_samples(path, H5T_STD_I32LE, H5T_NATIVE_LLONG, std::vector<long long>{-2147483647, 16777219, 0}, 4);
  check_samples(path, H5T_STD_I64BE, H5T_NATIVE_LLONG, std::vector<long long>{-(1LL << 53), 0, (1LL << 53) - 1}, 8);
  check_samples(path, H5T_STD_U64LE, H5T_NATIVE_ULLONG, std::vector<unsigned long long>{1ULL << 63, 0, 1}, 8);
}

TEST_F(Volumes, TargetsKeepTheirType) {
  std::vector<double> values;
  for (int i = 0; i < 8; ++i) values.push_back(1.7e9 + 0.25 * i);
  ASSERT_TRUE(write_array(path, {"samples", H5T_IEEE_F64LE, {8, 4}, true}, H5T_NATIVE_DOUBLE, std::vector<double>(32)));
  ASSERT_TRUE(write_array(path, {"targets", H5T_IEEE_F64LE, {8, 1}}, H5T_NATIVE_DOUBLE, values));
  const auto data = open_volumes(path);
  std::vector<double> read(1);
  for (Index i = 0; i < 8; ++i) {
    data->read_target(i, Box(data->target()), read);
    EXPECT_EQ(read[0], values[i]);
  }
  const std::string copy = (folder / "copy.h5").string();
  save_volumes(copy, *data, DType::f64);
  open_volumes(copy)->read_target(7, Box(data->target()), read);
  EXPECT_EQ(read[0], 1700000001.75);
  expect_error([&] { save_volumes(copy, *data, DType::f16); }, {copy, "values are saved in f32 or f64, not in f16"});
}

TEST_F(Volumes, WhatF32CannotHoldIsSavedInF64Only) {
  ASSERT_TRUE(write_array(path, {"samples", H5T_IEEE_F64LE, {2, 1}, true}, H5T_NATIVE_DOUBLE, std::vector{1.0, 1e39}));
  ASSERT_TRUE(write_array(path, {"targets", H5T_STD_I8LE, {2}, false, 2}, H5T_NATIVE_INT, std::vector<int>{0, 1}));
  const auto data = open_volumes(path);
  const std::string copy = (folder / "copy.h5").string();
  expect_error([&] { save_volumes(copy, *data); },
               {path, "sample 1 has the value 1e+39, beyond the range of f32; save it in f64"});
  EXPECT_FALSE(fs::exists(copy));
}

TEST_F(Volumes, LabelsAreWholeNumbers) {
  constexpr long long classes = 20000000;
  const std::vector<long long> labels{16777217, 16777219, 19999999, 20000000, -1, 1LL << 40};
  ASSERT_TRUE(write_array(path, {"samples", H5T_STD_U8LE, {6, 1}, true}, H5T_NATIVE_INT, std::vector<int>(6)));
  ASSERT_TRUE(write_array(path, {"targets", H5T_STD_I64LE, {6}, false, classes}, H5T_NATIVE_LLONG, labels));
  const auto data = open_volumes(path);
  data->hold_targets(std::vector<Index>{2, 1, 0}, Box(0));
  std::vector<std::int32_t> read(1);
  for (const Index sample : {2, 1, 0, 2}) {
    read_checked_labels(*data, sample, Box(0), read);
    EXPECT_EQ(read[0], labels[sample]);
  }
  for (std::size_t i = 0; i + 1 < labels.size(); ++i) EXPECT_EQ(data->label(static_cast<Index>(i)), labels[i]);
  for (const Index sample : {3, 4, 5})
    expect_error([&] { read_checked_labels(*data, sample, Box(0), read); },
                 {path, fmt::format("sample {} has the label {}, but classes() is 20000000; labels are 0 to 19999999",
                                    sample, labels[sample])});
}

TEST_F(Volumes, LabelsBeyond32BitsAreNamed) {
  ASSERT_TRUE(write_array(path, {"samples", H5T_STD_U8LE, {2, 1}, true}, H5T_NATIVE_INT, std::vector<int>(2)));
  const auto label = [&](hid_t type, unsigned long long value) {
    hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
    if (H5Lexists(file, "targets", H5P_DEFAULT) > 0) H5Ldelete(file, "targets", H5P_DEFAULT);
    H5Fclose(file);
    EXPECT_TRUE(write_array(path, {"targets", type, {2}, false, 7}, type, std::vector{value, value}));
    std::int32_t found = -7;
    const std::string error = error_of([&] { found = open_volumes(path)->label(1); });
    return error.empty() ? std::to_string(found) : error;
  };
  EXPECT_EQ(label(H5T_NATIVE_UINT64, 5), "5");
  EXPECT_NE(label(H5T_NATIVE_UINT64, ~0ULL).find("sample 1 has the label 18446744073709551615, but"),
            std::string::npos);
  EXPECT_NE(label(H5T_NATIVE_UINT64, 1ULL << 32).find("has the label 4294967296, but classes() is 7"),
            std::string::npos);
  EXPECT_NE(label(H5T_NATIVE_INT64, ~(1ULL << 40)).find("has the label -1099511627777, but"), std::string::npos);
}

TEST_F(Volumes, BooleansAreZeroAndOne) {
  // As h5py writes them: an enumeration of bytes.
  const hid_t boolean = H5Tenum_create(H5T_NATIVE_INT8);
  for (const auto& [name, value] : {std::pair<const char*, std::int8_t>{"FALSE", 0}, {"TRUE", 1}})
    ASSERT_GE(H5Tenum_insert(boolean, name, &value), 0);
  ASSERT_TRUE(
      write_array(path, {"samples", boolean, {2, 3}, true}, boolean, std::vector<std::int8_t>{0, 1, 1, 1, 0, 0}));
  ASSERT_TRUE(write_array(path, {"targets", boolean, {2, 2}, false, 2}, boolean, std::vector<std::int8_t>{1, 0, 0, 1}));
  H5Tclose(boolean);
  const auto data = open_volumes(path);
  EXPECT_EQ(data->classes(), 2);
  data->hold(std::vector<Index>{0}, Box(data->sample()));
  EXPECT_EQ(data->held_bytes(), 4 + 3);
  for (const bool announced : {true, false})
    EXPECT_EQ(image(*data, 0, Box(data->sample())), (std::vector<float>{0, 1, 1})) << announced;
  EXPECT_EQ(image(*data, 1, Box(data->sample())), (std::vector<float>{1, 0, 0}));
  EXPECT_EQ(target(*data, 0, Box(data->target())), (std::vector<double>{1, 0}));
  EXPECT_EQ(target(*data, 1, Box(data->target())), (std::vector<double>{0, 1}));
}

TEST_F(Volumes, APlaceOutsideOfTheClassesIsNamed) {
  ASSERT_TRUE(write_array(path, {"samples", H5T_STD_U8LE, {1, 1, 2, 3}, true}, H5T_NATIVE_INT, std::vector<int>(6)));
  ASSERT_TRUE(write_array(path, {"targets", H5T_STD_U8LE, {1, 2, 3}, false, 3}, H5T_NATIVE_INT,
                          std::vector<int>{0, 1, 2, 0, 255, 1}));
  const auto data = open_volumes(path);
  Box row(data->target());
  row[0] = {1, 2};
  std::vector<std::int32_t> labels(3);
  expect_error([&] { read_checked_labels(*data, 0, row, labels); },
               {"sample 0 has the label 255 at H=1 W=1, but classes() is 3; labels are 0 to 2; give such places one"});
}

/// A filter that leaves the bytes as they are.
std::size_t unchanged(unsigned, std::size_t, const unsigned*, std::size_t bytes, std::size_t*, void**) { return bytes; }

TEST_F(Volumes, AMissingFilterIsNamed) {
  constexpr H5Z_filter_t number = 300;  // one of those for tests
  const H5Z_class2_t filter{H5Z_CLASS_T_VERS, number, 1, 1, "squeeze", nullptr, nullptr, unchanged};
  ASSERT_GE(H5Zregister(&filter), 0);
  const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
  const std::vector<hsize_t> piece{1, 3};
  H5Pset_chunk(creation, 2, piece.data());
  H5Pset_filter(creation, number, H5Z_FLAG_MANDATORY, 0, nullptr);
  ASSERT_TRUE(write_array(path, {"samples", H5T_IEEE_F32LE, {2, 3}, true, 0, creation}, H5T_NATIVE_FLOAT,
                          std::vector<float>{1, 2, 3, 4, 5, 6}));
  ASSERT_TRUE(write_array(path, {"targets", H5T_STD_U8LE, {2}, false, 2}, H5T_NATIVE_INT, std::vector<int>{0, 1}));
  H5Pclose(creation);
  EXPECT_EQ(image(*open_volumes(path), 1, Box(Shape{{'C', 3}})), (std::vector<float>{4, 5, 6}));
  ASSERT_GE(H5Zunregister(number), 0);
  expect_error([&] { open_volumes(path); },
               {path,
                "'samples' is compressed by the filter 300 ('squeeze'), which this HDF5 does not have; install its "
                "plugin and set HDF5_PLUGIN_PATH to the folder, or write the file with gzip where the filter is"});
}

TEST_F(Volumes, WhatIsNoArrayIsNamed) {
  const auto targets = [&] {
    return write_array(path, {"targets", H5T_STD_U8LE, {2}, true, 2}, H5T_NATIVE_INT, std::vector<int>{0, 1});
  };
  ASSERT_TRUE(targets());
  hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  ASSERT_GE(H5Lcreate_soft("/nothing", file, "samples", H5P_DEFAULT, H5P_DEFAULT), 0);
  H5Fclose(file);
  expect_error([&] { open_volumes(path); }, {path, "its link 'samples' leads nowhere; put the array there"});
  ASSERT_TRUE(targets());
  file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  H5Gclose(H5Gcreate2(file, "samples", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
  H5Fclose(file);
  expect_error([&] { open_volumes(path); }, {path, "'samples' is a group, not an array"});
}

// Several inputs are the arrays of a group; whole numbers with a vocabulary are tokens.
TEST_F(Volumes, HoldSeveralInputs) {
  const std::vector<SampleInput> inputs{{"dense", {{'C', 3}}, 0}, {"of/clicks", {{'C', 2}, {'L', 4}}, 9}};
  const auto original = make_synthetic(inputs, 6, 2, 1, 0);
  save_volumes(path, *original);
  const auto data = open_volumes(path);
  const auto found = data->inputs();
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(data->size(), 6);
  const std::vector<Index> order{5, 0, 3};
  std::vector<SampleShare> shares;
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(found[i].name, inputs[i].name);
    EXPECT_EQ(found[i].shape, inputs[i].shape);
    EXPECT_EQ(found[i].vocabulary, inputs[i].vocabulary);
    Box part(inputs[i].shape);
    part[part.dims() - 1] = {1, 3};
    shares.push_back({3, part});
    data->hold_input(i, order, part);
  }
  data->hold_targets(order, Box(0));
  EXPECT_EQ(data->held_bytes(), data->bytes_to_hold_inputs(shares, 3, Box(0)));
  for (const Index sample : order)
    for (int i = 0; i < 2; ++i) {
      std::vector<double> values(static_cast<std::size_t>(shares[i].box.volume())), right(values);
      data->read_input(i, sample, shares[i].box, values);
      original->read_input(i, sample, shares[i].box, right);
      for (double& each : right) each = static_cast<float>(each);
      EXPECT_EQ(values, right) << inputs[i].name << " of sample " << sample;
      EXPECT_EQ(data->label(sample), original->label(sample));
    }
}

TEST_F(Volumes, SayWhatIsWrongWithAnInput) {
  const auto write_input = [&](const Hdf5Array& array) {
    save_volumes(path, *make_synthetic({{"a", {{'C', 1}}, 0}, {"b", {{'C', 1}}, 0}}, 2, 2, 1, 0));
    const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
    H5Ldelete(file, "inputs/b", H5P_DEFAULT);
    H5Fclose(file);
    return write_array(path, array, H5T_NATIVE_INT, std::vector<int>(24));
  };
  ASSERT_TRUE(write_input({"inputs/b", H5T_STD_I32LE, {3, 2}, false}));
  expect_error([&] { open_volumes(path); }, {path, "it has 3 samples of 'b', but 2 targets"});
  ASSERT_TRUE(write_input({"inputs/b", H5T_STD_I32LE, {2}, false}));
  expect_error([&] { open_volumes(path); }, {path, "'inputs/b' has 1 dimensions; it needs N, C and"});
}

TEST_F(Volumes, AFileThatSomebodyWritesIsRefused) {
  save_volumes(path, *make_synthetic(kinds[1].sample, {}, 3, 7, 1, 0));
  const int writer = open(path.c_str(), O_RDWR);
  ASSERT_EQ(flock(writer, LOCK_EX | LOCK_NB), 0);
  expect_error([&] { open_volumes(path); }, {path, "another program is writing it; try again when that has ended"});
  ASSERT_EQ(flock(writer, LOCK_UN), 0);
  const auto data = open_volumes(path);
  EXPECT_NE(flock(writer, LOCK_EX | LOCK_NB), 0) << "nobody writes a file that is being read";
  open_volumes(path);  // others may read it
  close(writer);
}

}  // namespace
}  // namespace partita::test::volumes_test
