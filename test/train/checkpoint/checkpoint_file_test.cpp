// Checkpoints as files: what they replace, their permissions, and that one file stays one file.
#include "partita/comm/counting.hpp"
#include "src/train/files/long_work.hpp"
#include "test/train/checkpoint/checkpoints.hpp"

#include <atomic>
#include <chrono>
#include <fstream>
#include <thread>

namespace partita::checkpoint_file_test {
namespace {

using namespace test;

const Shape linear{{'F', 3}, {'C', 7}}, bias{{'F', 3}};
const std::vector<Spec> on_four{{"fc/weight", linear, DType::f16, "F@(a,b)"},
                                {"fc/bias", bias, DType::f64, ""},
                                {"deep/er/weight", linear, DType::f32, "F@a C@b"}};
const std::vector<Spec> on_three{{"fc/weight", linear, DType::f16, "C@x"},
                                 {"fc/bias", bias, DType::f64, ""},
                                 {"deep/er/weight", linear, DType::f32, "F@x"}};

class CheckpointFiles : public Checkpoint {};

TEST_F(CheckpointFiles, EqualContentGivesEqualFiles) {
  const auto bytes = [](const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return std::string((std::istreambuf_iterator<char>(in)), {});
  };
  save(path_, "a=2 b=2", on_four, {{"step", "7"}});
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));  // HDF5 counts time in seconds
  save(file("again.h5"), "a=2 b=2", on_four, {{"step", "7"}});
  EXPECT_TRUE(bytes(path_) == bytes(file("again.h5")));
  EXPECT_EQ(CheckpointFile(path_).identity(), CheckpointFile(file("again.h5")).identity());
  save(path_, "a=2 b=2", on_four, {{"step", "8"}});
  EXPECT_NE(CheckpointFile(path_).identity(), CheckpointFile(file("again.h5")).identity());
}

TEST_F(CheckpointFiles, OtherFilesAreNotReplaced) {
  std::ofstream(path_) << "notes";
  const auto message = save_error(path_, "x=3", on_three);
  EXPECT_EQ(message, "'" + path_ +
                         "' is not a checkpoint of Partita, so it is not replaced; save to another name, or "
                         "remove it (checkpoint '" +
                         path_ + "' is not an HDF5 file)");
  EXPECT_EQ(std::filesystem::file_size(path_), 5U);
  EXPECT_EQ(files(), 1U);
  std::ofstream(path_).flush();  // an empty file holds nothing
  save(path_, "x=3", on_three);
}

TEST_F(CheckpointFiles, ALinkInPlaceOfThePartialFileIsNotFollowed) {
  std::ofstream(file("victim")) << "precious";
  std::filesystem::create_symlink("victim", path_ + ".partial");
  EXPECT_EQ(save_error(path_, "x=3", on_three),
            "checkpoint '" + path_ + "': cannot create '" + path_ + ".partial': it is a symbolic link; remove it");
  EXPECT_EQ(std::filesystem::file_size(file("victim")), 8U);
}

TEST_F(CheckpointFiles, AReplacedFileKeepsItsPermissions) {
  using std::filesystem::perms;
  save(path_, "x=3", on_three);
  for (const auto kept :
       {perms::owner_read | perms::owner_write, perms::owner_read | perms::owner_write | perms::group_read}) {
    std::filesystem::permissions(path_, kept);
    save(path_, "x=3", on_three);
    EXPECT_EQ(std::filesystem::status(path_).permissions(), kept);
  }
}

// All of a file is read from one file, even if another one takes its name.
TEST_F(CheckpointFiles, AnOpenCheckpointStaysTheSameFile) {
  save(path_, "x=3", on_three, {{"step", "7"}});
  const CheckpointFile open(path_);
  save(path_, "x=3", {{"other", bias, DType::f32, ""}}, {{"step", "8"}});
  EXPECT_EQ(open.attributes().at("step"), "7");
  on_grid("x=3", [&](const ProcessGrid& grid) { open.load(make(on_three, grid), grid.world()); });
  EXPECT_EQ(open.tensors().at("fc/weight"), "F=3 C=7");
  const CheckpointFile later(path_);
  const auto message =
      message_on("x=2", [&](const ProcessGrid& grid) { (grid.rank() == 0 ? open : later).load({}, grid.world()); });
  EXPECT_EQ(message.find("checkpoint '" + path_ + "': the ranks opened different files of this name"), 0U) << message;
}

// While rank 0 writes, the other ranks get signs of life, so that no time limit ends their waiting.
TEST_F(CheckpointFiles, RanksDoNotWaitLongWhileOneWrites) {
  run_threads(2, [&](Communicator& comm) {
    std::atomic<bool> written = false;
    const auto counter = std::make_shared<TrafficCounter>();
    const auto counted = counting(comm, counter);
    const auto signs = [&] {
      Index count = 0;
      for (const auto& [key, traffic] : counter->by_label())
        count += key.second == Verb::all_reduce ? traffic.messages : 0;
      return count;
    };
    agree_on_long_work(*counted, [&] {
      if (comm.rank() != 0) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(500));  // the slow disk
      written = true;
    });
    EXPECT_EQ(written.load(), comm.rank() == 0);
    EXPECT_GE(signs(), 5);
  });
}

}  // namespace
}  // namespace partita::checkpoint_file_test
