#pragma once

// Shared by the tests of checkpoints: tensors with known elements, saved and loaded on thread ranks of any grid.

#include "partita/base/error.hpp"
#include "partita/base/philox.hpp"
#include "partita/comm/process_grid.hpp"
#include "partita/train/checkpoint/checkpoint.hpp"
#include "src/comm/threads/threads.hpp"
#include "src/train/checkpoint/written_rows.hpp"
#include "src/train/files/checksums.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <mutex>
#include <set>

namespace partita::test {

/// A tensor of a test: its name, shape, dtype and layout on one grid.
struct Spec {
  std::string name;
  Shape shape;
  DType dtype;
  std::string layout;
};

/// Element i of the tensor `name`: any number that its dtype represents exactly, of either sign, including infinities
/// and NaN.
inline double value(const std::string& name, DType dtype, Index i) {
  const Random random(1, hash_text(name));
  if (dtype == DType::i32) return static_cast<double>(static_cast<std::int32_t>(random.bits(i)));
  if (i == 1) return -0.0;
  if (i == 2) return HUGE_VAL;
  const Tensor one(DType::f64, "L", Box(Shape{{'L', 1}}));
  one.set(0, random.normal(i) * 1e-3);
  return convert(one, dtype, {}).get(0);
}

/// Runs `body` on thread ranks of a grid.
inline void on_grid(const std::string& axes, const std::function<void(const ProcessGrid&)>& body) {
  const Grid grid = Grid::parse(axes);
  run_threads(grid.size(), [&](Communicator& world) { body(ProcessGrid(grid, world, {})); });
}

inline std::vector<NamedTensor> make(const std::vector<Spec>& specs, const ProcessGrid& grid) {
  std::vector<NamedTensor> tensors;
  for (const auto& [name, shape, dtype, text] : specs) {
    const auto layout = Layout::parse(text, shape, grid.grid());
    tensors.push_back({name, {}});
    tensors.back().tensor.layout = layout;
    tensors.back().tensor.local = Tensor(dtype, shape.names(), layout.owned(grid.rank()));
  }
  return tensors;
}

/// Sets every element to its `value`.
inline void fill_values(const NamedTensor& named, const Tensor& local) {
  fill(local, named.tensor.layout.shape(), [&](Index i) { return value(named.name, local.dtype(), i); });
}

inline void save(const std::string& path, const std::string& axes, const std::vector<Spec>& specs,
                 const std::map<std::string, std::string>& attributes = {}) {
  on_grid(axes, [&](const ProcessGrid& grid) {
    const auto tensors = make(specs, grid);
    for (const auto& named : tensors) fill_values(named, named.tensor.local);
    save_checkpoint(path, tensors, attributes, grid.world());
  });
}

/// Loads the tensors, and compares them bit by bit.
inline void load(const std::string& path, const std::string& axes, const std::vector<Spec>& specs) {
  on_grid(axes, [&](const ProcessGrid& grid) {
    const auto tensors = make(specs, grid);
    load_checkpoint(path, tensors, grid.world());
    for (const auto& named : tensors) {
      const Tensor& found = named.tensor.local;
      const Tensor expected = found.like(found.box());
      fill_values(named, expected);
      EXPECT_EQ(std::memcmp(found.data(), expected.data(), static_cast<std::size_t>(found.bytes())), 0)
          << named.name << " on " << axes << ", rank " << grid.rank();
    }
  });
}

/// Returns the message of the Error that every rank throws; if they differ, all messages, joined by " | ".
inline std::string message_on(const std::string& axes, const std::function<void(const ProcessGrid&)>& body) {
  std::mutex mutex;
  std::set<std::string> messages;
  on_grid(axes, [&](const ProcessGrid& grid) {
    std::string message = "no Error";
    try {
      body(grid);
    } catch (const Error& error) {
      message = error.what();
    }
    const std::scoped_lock lock(mutex);
    messages.insert(message);
  });
  std::string all;
  for (const auto& message : messages) all += (all.empty() ? "" : " | ") + message;
  return all;
}

inline std::string load_error(const std::string& path, const std::string& axes, const std::vector<Spec>& specs) {
  return message_on(axes, [&](const ProcessGrid& grid) { load_checkpoint(path, make(specs, grid), grid.world()); });
}

inline std::string save_error(const std::string& path, const std::string& axes, const std::vector<Spec>& specs) {
  return message_on(axes, [&](const ProcessGrid& grid) { save_checkpoint(path, make(specs, grid), {}, grid.world()); });
}

class Checkpoint : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(folder_);
    least_written_bytes = 8;  // all ranks write
  }
  void TearDown() override {
    std::filesystem::remove_all(folder_);
    least_written_bytes = usual_;
  }
  std::string file(const std::string& name) const { return (folder_ / name).string(); }
  /// Adds checksums to a file that HDF5 made.
  void seal() const {
    const int descriptor = open(path_.c_str(), O_RDWR);
    Checksums().seal(descriptor, static_cast<off_t>(std::filesystem::file_size(path_)));
    close(descriptor);
  }
  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder_), {}));
  }

  Index usual_ = least_written_bytes;
  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("partita_checkpoint_test_" + std::to_string(getpid()));
  std::string path_ = file("run.h5");
};

}  // namespace partita::test
