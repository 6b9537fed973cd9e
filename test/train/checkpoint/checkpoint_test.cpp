#include "partita/comm/counting.hpp"
#include "test/train/checkpoint/checkpoints.hpp"

#include <hdf5.h>
#include <sys/syscall.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>

namespace {

constexpr int unlimited = 1 << 30;

/// The number of writes to partial files until the disk is full.
std::atomic<int> writes_left = unlimited;

}  // namespace

// Overrides the C library's function in this program, and so in HDF5.
extern "C" ssize_t pwrite(int file, const void* data, size_t size, off_t at) {
  std::error_code error;
  const auto path = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(file), error).string();
  if (path.ends_with(".partial") && writes_left-- <= 0) {
    errno = ENOSPC;
    return -1;
  }
  return syscall(SYS_pwrite64, file, data, size, at);
}

namespace partita::checkpoint_test {
namespace {

using namespace test;

const Shape scalar{};
const Shape filter{{'F', 5}, {'C', 3}, {'H', 3}, {'W', 2}};
const Shape linear{{'F', 3}, {'C', 7}};
const Shape bias{{'F', 3}};
const Shape deep{{'F', 2}, {'C', 3}, {'D', 2}, {'H', 1}, {'W', 4}};
const Shape nothing{{'F', 0}, {'C', 4}};

/// The same tensors with layouts on "a=2 b=2": whole, uneven, with empty boxes, sharded over two axes, in every dtype.
const std::vector<Spec> on_four{{"conv1/weight", filter, DType::f32, "F@a C@b"},
                                {"conv1/moments/first", filter, DType::f64, "C H@(b,a)"},
                                {"conv2/weight", filter, DType::bf16, "W@b F@a"},
                                {"fc/weight", linear, DType::f16, "F@(a,b)"},
                                {"fc/bias", bias, DType::f64, ""},
                                {"deep", deep, DType::f32, "H@a C@b"},
                                {"none", nothing, DType::f32, "C@a"},
                                {"step", scalar, DType::f64, ""},
                                {"seen", bias, DType::i32, "F@b"}};

std::vector<Spec> laid_out(const std::vector<std::string>& layouts) {
  auto specs = on_four;
  for (std::size_t i = 0; i < specs.size(); ++i) specs[i].layout = layouts.empty() ? "" : layouts.at(i);
  return specs;
}

const auto on_three = laid_out({"W@x", "F@x", "C@x", "C@x", "F@x", "D@x", "F@x", "", ""});
const auto on_five = laid_out({"F@x", "C@x", "H@x", "F@x", "F@x", "C@x", "C@x", "", "F@x"});

TEST_F(Checkpoint, AnyGridLoadsWhatAnotherSaved) {
  save(path_, "a=2 b=2", on_four);
  load(path_, "a=2 b=2", on_four);
  load(path_, "x=3", on_three);
  load(path_, "x=5", on_five);
  load(path_, "", laid_out({}));
  save(path_, "", laid_out({}));
  load(path_, "a=2 b=2", on_four);
  save(path_, "x=5", on_five);
  load(path_, "x=3", on_three);
  EXPECT_EQ(files(), 1U);
}

// `load` compares every element of what it names.
TEST_F(Checkpoint, OrderAndChoiceOfTensorsAreFree) {
  const std::vector<Spec> reversed{on_four.rbegin(), on_four.rend()};
  const std::vector<std::vector<Spec>> choices{on_four,      reversed,     {on_four[4], on_four[0]},
                                               {on_four[6]}, {on_four[7]}, {}};
  for (const auto& saved : {on_four, reversed}) {
    save(path_, "a=2 b=2", saved);
    for (const auto& chosen : choices) {
      EXPECT_EQ(load_error(path_, "a=2 b=2", chosen), "no Error") << chosen.size() << " tensors";
      load(path_, "a=2 b=2", chosen);
    }
  }
  save(path_, "a=2 b=2", {});
  EXPECT_EQ(load_error(path_, "x=3", {}), "no Error");
  EXPECT_EQ(load_error(path_, "x=3", {on_three[0]}).find("checkpoint '" + path_ + "' has no tensor 'conv1/weight'"), 0U)
      << "what was not chosen is not saved";
}

TEST_F(Checkpoint, EveryRankNamesWhatItWants) {
  save(path_, "a=2 b=2", on_four);
  const std::vector<std::vector<Spec>> wanted{{on_four[1], on_four[0]}, {}, {on_four[0]}, {on_four[5], on_four[8]}};
  on_grid("a=2 b=2", [&](const ProcessGrid& grid) {
    const auto tensors = make(wanted[grid.rank()], grid);
    load_checkpoint(path_, tensors, grid.world());
    for (const auto& named : tensors) {
      const Tensor& found = named.tensor.local;
      const Tensor expected = found.like(found.box());
      fill_values(named, expected);
      EXPECT_EQ(std::memcmp(found.data(), expected.data(), static_cast<std::size_t>(found.bytes())), 0) << named.name;
    }
  });
}

TEST_F(Checkpoint, OtherDtypesAreConverted) {
  save(path_, "", {{"w", linear, DType::bf16, ""}});
  on_grid("x=2", [&](const ProcessGrid& grid) {
    const auto tensors = make({{"w", linear, DType::f64, "C@x"}}, grid);
    load_checkpoint(path_, tensors, grid.world());
    const Tensor& found = tensors[0].tensor.local;
    const Tensor expected = found.like(found.box());
    fill(expected, linear, [](Index i) { return value("w", DType::bf16, i); });
    for (Index i = 0; i < found.volume(); ++i) EXPECT_EQ(found.get(i), expected.get(i));
  });
}

TEST_F(Checkpoint, TheFileIsInLogicalOrderWithNames) {
  save(path_, "a=2 b=2", on_four);
  const hid_t in = H5Fopen(path_.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
  const hid_t data = H5Dopen2(in, "conv1/weight", H5P_DEFAULT);
  std::vector<double> elements(static_cast<std::size_t>(filter.volume()));
  ASSERT_GE(H5Dread(data, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, elements.data()), 0);
  for (Index i = 0; i < filter.volume(); ++i) EXPECT_EQ(elements[i], value("conv1/weight", DType::f32, i));
  const hid_t attribute = H5Aopen(data, "dimensions", H5P_DEFAULT), type = H5Aget_type(attribute);
  char* text = nullptr;
  ASSERT_GE(H5Aread(attribute, type, &text), 0);
  EXPECT_STREQ(text, "FCHW");
  free(text);
  H5Tclose(type);
  H5Aclose(attribute);
  H5Dclose(data);
  H5Fclose(in);
}

TEST_F(Checkpoint, KeepsTextAttributes) {
  const std::map<std::string, std::string> texts{
      {"strategy", "grid = \"a=2\"\n"}, {"empty", ""}, {"größe", "ü"}, {"long", std::string(200000, 'x')}};
  save(path_, "a=2 b=2", on_four, texts);
  EXPECT_EQ(checkpoint_attributes(path_), texts);
  save(path_, "", {});
  EXPECT_TRUE(checkpoint_attributes(path_).empty());
}

TEST_F(Checkpoint, EveryElementTravelsOnce) {
  least_written_bytes = usual_;  // rank 0 writes
  const Grid grid_of_six = Grid::parse("a=2 b=3");
  std::mutex mutex;
  Traffic total;
  run_threads(6, [&](Communicator& world) {
    const auto counter = std::make_shared<TrafficCounter>();
    const ProcessGrid grid(grid_of_six, counting(world, counter), {});
    // F has two blocks, of which rank 0 owns one. D has two blocks that are not empty, of which rank 0 owns one. The
    // last tensor is whole on rank 0.
    const auto tensors = make({{"replicated over b", linear, DType::f64, "F@a"},
                               {"partly empty", deep, DType::f32, "D@b"},
                               {"whole", bias, DType::bf16, ""}},
                              grid);
    save_checkpoint(path_, tensors, {}, grid.world());
    const std::scoped_lock lock(mutex);
    for (const auto& [label_and_verb, traffic] : counter->by_label())
      if (label_and_verb.second == Verb::exchange) total += traffic;
  });
  EXPECT_EQ(total, (Traffic{2, 1 * 7 * 8 + 24 * 4}));
}

TEST_F(Checkpoint, ThreadRanksOfSeveralGridsDoNotDisturbEachOther) {
  run_threads(6, [&](Communicator& world) {
    const int half = world.rank() / 3;
    const ProcessGrid grid(Grid::parse("x=3"), world.split(half, world.rank()), {});
    const auto path = file(half == 0 ? "a.h5" : "b.h5");
    for (int i = 0; i < 5; ++i) {
      const auto tensors = make(on_three, grid);
      save_checkpoint(path, tensors, {}, grid.world());
      load_checkpoint(path, tensors, grid.world());
    }
  });
  EXPECT_EQ(files(), 2U);
}

TEST_F(Checkpoint, AMissingFolderIsNamedOnEveryRank) {
  const auto path = file("none/run.h5");
  EXPECT_EQ(save_error(path, "a=2 b=2", on_four),
            "checkpoint '" + path + "': cannot create '" + path + ".partial': No such file or directory");
  std::ofstream(file("plain")) << "text";
  const auto below = file("plain") + "/run.h5";
  EXPECT_EQ(save_error(below, "x=3", on_three),
            "checkpoint '" + below + "': cannot create '" + below + ".partial': Not a directory");
  EXPECT_EQ(files(), 1U);
}

TEST_F(Checkpoint, AnyWriteThatFailsLeavesTheOldFileAlone) {
  save(path_, "a=2 b=2", on_four);
  std::set<std::string> whats;
  for (int works = 0;; ++works) {
    writes_left = works;
    const auto message = save_error(path_, "x=3", on_three);
    const bool was_full = writes_left < 0;
    writes_left = unlimited;
    if (!was_full) break;
    const auto start = "checkpoint '" + path_ + "': cannot ", end = std::string(": No space left on device");
    ASSERT_TRUE(message.starts_with(start) && message.ends_with(end)) << message << " at " << works;
    whats.insert(message.substr(start.size(), message.size() - start.size() - end.size()));
    ASSERT_EQ(files(), 1U);
    ASSERT_EQ(H5Fget_obj_count(static_cast<hid_t>(H5F_OBJ_ALL), H5F_OBJ_ALL), 0);
    load(path_, "x=3", on_three);
  }
  EXPECT_TRUE(whats.contains("finish '" + path_ + ".partial'"));
  for (const auto& spec : on_three)
    EXPECT_EQ(whats.contains("write tensor '" + spec.name + "'"), spec.shape.volume() > 0) << spec.name;
}

TEST_F(Checkpoint, AFolderOfTheSameNameIsRefused) {
  std::filesystem::create_directory(path_);
  EXPECT_EQ(save_error(path_, "a=2 b=2", on_four),
            "checkpoint '" + path_ + "': cannot rename '" + path_ + ".partial' to it: Is a directory");
  EXPECT_EQ(files(), 1U);
  EXPECT_EQ(load_error(path_, "x=3", on_three), "checkpoint '" + path_ + "': cannot read it: Is a directory");
}

TEST_F(Checkpoint, PendingSumsAndNamesGivenTwiceAreRefused) {
  EXPECT_EQ(save_error(path_, "a=2 b=2", {{"w", linear, DType::f32, "F@a sum@b"}}),
            "checkpoint '" + path_ + "': tensor 'w' [F@a C sum@b] is a pending sum; form the sum first");
  EXPECT_EQ(save_error(path_, "x=3", {on_three[0], on_three[0]}),
            "checkpoint '" + path_ + "': tensor 'conv1/weight' is named twice");
  const auto message = save_error(path_, "x=2", {{"w", bias, DType::f32, ""}, {"w/x", bias, DType::f32, ""}});
  EXPECT_EQ(message.find("checkpoint '" + path_ + "': cannot write tensor 'w/x': "), 0U) << message;
  EXPECT_EQ(files(), 0U);
}

TEST_F(Checkpoint, WhatIsNoCheckpointOrOfAnotherVersionIsRefused) {
  EXPECT_EQ(load_error(path_, "x=3", on_three),
            "checkpoint '" + path_ + "': cannot open it: No such file or directory");
  EXPECT_THROW(checkpoint_attributes(path_), Error);
  std::ofstream(path_) << "some text that is not HDF5";
  EXPECT_EQ(load_error(path_, "x=3", on_three), "checkpoint '" + path_ + "' is not an HDF5 file");
  std::ofstream(path_).flush();
  EXPECT_EQ(load_error(path_, "x=3", on_three), "checkpoint '" + path_ + "' is not an HDF5 file");
  H5Fclose(H5Fcreate(path_.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT));
  EXPECT_EQ(load_error(path_, "x=3", on_three), "checkpoint '" + path_ +
                                                    "': it is damaged: its checksums are missing: the file was "
                                                    "truncated, or another program or version 1 wrote it");
  seal();
  EXPECT_EQ(
      load_error(path_, "x=3", on_three),
      "checkpoint '" + path_ +
          "': it is not a checkpoint of Partita: the file is damaged, cut short or of another kind; copy it again "
          "or write it again (HDF5: can't locate attribute: 'partita_checkpoint')");
  std::filesystem::remove(path_);  // save() replaces checkpoints only
  save(path_, "", {});
  const hid_t out = H5Fopen(path_.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  const hid_t attribute = H5Aopen(out, "partita_checkpoint", H5P_DEFAULT);
  const int next = 3;
  H5Awrite(attribute, H5T_NATIVE_INT, &next);
  H5Aclose(attribute);
  H5Fclose(out);
  seal();
  EXPECT_EQ(load_error(path_, "x=3", {}), "checkpoint '" + path_ + "' has version 3; this program reads version 2");
}

TEST_F(Checkpoint, NoByteCanChangeUnnoticed) {
  save(path_, "a=2 b=2", on_four);
  std::ifstream in(path_, std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(in)), {});
  for (std::size_t at = 0; at < whole.size(); at += 7) {  // an odd step reaches every byte of a number
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 1 << at % 8);
    std::ofstream(path_, std::ios::binary) << damaged;
    const auto message = load_error(path_, "x=3", on_three), start = "checkpoint '" + path_ + "'";
    EXPECT_TRUE(message.find(start + ": it is damaged: ") == 0 || message == start + " is not an HDF5 file")
        << "byte " << at << ": " << message;
  }
}

TEST_F(Checkpoint, ATruncatedFileIsDamagedAtAnyLength) {
  save(path_, "a=2 b=2", on_four);
  const auto size = std::filesystem::file_size(path_);
  std::ifstream in(path_, std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(in)), {});
  for (const auto length : {size - 1, size / 2, size / 8, std::uintmax_t{100}, std::uintmax_t{9}}) {
    std::filesystem::remove(path_);
    std::ofstream(path_, std::ios::binary).write(whole.data(), static_cast<std::streamsize>(length));
    const auto message = load_error(path_, "x=3", on_three);
    EXPECT_EQ(message.find("checkpoint '" + path_ + "': it is damaged: "), 0U) << message;
    EXPECT_EQ(message.find(" | "), std::string::npos) << message;
  }
}

TEST_F(Checkpoint, AMissingTensorIsNamedWithTheNearest) {
  save(path_, "a=2 b=2", on_four);
  EXPECT_EQ(load_error(path_, "x=3", {on_three[0], {"conv1/weigth", filter, DType::f32, "F@x"}}),
            "checkpoint '" + path_ + "' has no tensor 'conv1/weigth' (did you mean 'conv1/weight'?)");
  EXPECT_EQ(load_error(path_, "", {{"conv1", filter, DType::f32, ""}})
                .find("checkpoint '" + path_ + "' has no tensor 'conv1'"),
            0U);
}

TEST_F(Checkpoint, AnotherShapeOrKindIsRefusedBeforeAnythingIsRead) {
  save(path_, "a=2 b=2", on_four);
  const Shape wide{{'F', 3}, {'C', 8}}, other{{'V', 3}, {'C', 7}};
  const auto error = [&](const Shape& shape) {
    return load_error(path_, "x=3", {{"fc/weight", shape, DType::f16, ""}});
  };
  const auto start = "checkpoint '" + path_ + "': cannot read tensor 'fc/weight': ";
  EXPECT_EQ(error(wide), start + "the file has F=3 C=7, expected F=3 C=8");
  EXPECT_EQ(error(other), start + "the file has F=3 C=7, expected V=3 C=7");
  EXPECT_EQ(load_error(path_, "x=3", {{"fc/weight", linear, DType::i32, ""}}),
            start + "the file does not hold integer numbers");
  EXPECT_EQ(load_error(path_, "x=3", {{"seen", bias, DType::f32, ""}}),
            "checkpoint '" + path_ + "': cannot read tensor 'seen': the file does not hold floating-point numbers");
  on_grid("x=2", [&](const ProcessGrid& grid) {
    const auto tensors = make({{"fc/bias", bias, DType::f64, ""}, {"fc/weight", wide, DType::f16, ""}}, grid);
    EXPECT_THROW(load_checkpoint(path_, tensors, grid.world()), Error);
    for (Index i = 0; i < 3; ++i) EXPECT_EQ(tensors[0].tensor.local.get(i), 0);
  });
}

}  // namespace
}  // namespace partita::checkpoint_test
