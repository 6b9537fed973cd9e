// The CPU moves boxes as a loop over their elements does; tensors on another device move through that device alone.
#include "partita/device/device.hpp"
#include "partita/device/tensor.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <numeric>
#include <random>
#include <vector>

namespace partita::test::device_test {
namespace {

/// The offsets of all elements of a move, the slowest dimension first.
std::vector<std::pair<Index, Index>> offsets(const std::vector<Index>& extent, const std::vector<Index>& from,
                                             const std::vector<Index>& to) {
  std::vector<std::pair<Index, Index>> all{{0, 0}};
  for (std::size_t d = 0; d < extent.size(); ++d) {
    std::vector<std::pair<Index, Index>> next;
    for (const auto& [a, b] : all)
      for (Index i = 0; i < extent[d]; ++i) next.emplace_back(a + i * from[d], b + i * to[d]);
    all = std::move(next);
  }
  return all;
}

/// Strides of a dense array whose dimensions lie in a drawn order, with a gap after each.
std::vector<Index> strides(const std::vector<Index>& extent, std::mt19937_64& random) {
  std::vector<std::size_t> order(extent.size());
  std::iota(order.begin(), order.end(), 0U);
  std::shuffle(order.begin(), order.end(), random);
  std::vector<Index> all(extent.size());
  Index stride = 1;
  for (const std::size_t d : order) {
    all[d] = stride;
    stride *= extent[d] + static_cast<Index>(random() % 2);
  }
  return all;
}

TEST(HostDevice, MovesEveryElementOfABoxOnce) {
  std::mt19937_64 random(3);
  constexpr std::size_t elements = 4096;
  for (int drawn = 0; drawn < 500; ++drawn) {
    std::vector<Index> extent(random() % (max_dims + 1));
    for (Index& each : extent) each = 1 + static_cast<Index>(random() % 4);
    const auto from_stride = strides(extent, random), to_stride = strides(extent, random);
    std::vector<float> from(elements), to(elements, 0.25F);
    for (std::size_t i = 0; i < elements; ++i) from[i] = static_cast<float>(i);
    std::vector<double> wide(elements, 0.25);
    BoxMove move{.from = from.data(), .to = to.data(), .from_type = DType::f32, .to_type = DType::f32};
    for (std::size_t d = 0; d < extent.size(); ++d) move.push(extent[d], from_stride[d], to_stride[d]);
    auto expected = to;
    move.combine = std::array{Combine::replace, Combine::add, Combine::largest}[drawn % 3];
    for (const auto& [a, b] : offsets(extent, from_stride, to_stride))
      expected[b] = move.combine == Combine::largest ? std::max(from[a], expected[b])
                                                     : from[a] + (move.combine == Combine::add ? expected[b] : 0);
    BoxMove converts = move;
    converts.combine = Combine::replace;
    converts.to = wide.data();
    converts.to_type = DType::f64;
    const BoxMove both[] = {move, converts};
    host_device().move(both, {});
    EXPECT_EQ(to, expected);
    for (const auto& [a, b] : offsets(extent, from_stride, to_stride)) EXPECT_EQ(wide[b], from[a]);
  }
}

TEST(BoxMove, MergesDimensionsThatAreContiguousOnBothSides) {
  BoxMove move;
  move.push(3, 20, 40);
  move.push(1, 7, 9);
  move.push(4, 5, 10);
  move.push(5, 1, 2);
  EXPECT_EQ(move.dims, 1);
  EXPECT_EQ(move.extent[0], 60);
  EXPECT_EQ(move.from_stride[0], 1);
  EXPECT_EQ(move.to_stride[0], 2);
  move.push(2, 1, 1);
  EXPECT_EQ(move.dims, 2);
}

/// Memory that the CPU may not access, as far as tensors know. It counts what it is asked to do, by stream.
class OtherDevice final : public Device {
 public:
  std::string_view name() const override { return "other"; }
  bool host() const override { return false; }
  void* allocate(std::size_t bytes) override { return host_device().allocate(bytes); }
  void release(void* data) override { host_device().release(data); }
  void zero(void* data, std::size_t bytes, Stream stream) override {
    host_device().zero(data, bytes, stream);
    streams.push_back(stream.native);
  }
  void move(std::span<const BoxMove> moves, Stream stream) override {
    host_device().move(moves, stream);
    streams.push_back(stream.native);
  }
  void copy(const void* from, void* to, std::size_t bytes, Stream stream) override {
    host_device().copy(from, to, bytes, stream);
    streams.push_back(stream.native);
  }
  Stream make_stream(Priority) override { return {}; }
  Event record(Stream) override { return {}; }
  Event mark(Stream stream) override { return host_device().mark(stream); }
  double seconds(const Event& from, const Event& to) override { return host_device().seconds(from, to); }
  bool passed(const Event&) override { return true; }
  void wait(Stream, const Event&) override {}
  void wait(const Event&) override {}
  void finish(Stream stream) override {
    host_device().finish(stream);
    waits.push_back(stream.native);
  }
  std::vector<void*> streams, waits;
};

TEST(Device, TensorsOfAnAllocatorMoveOnItsDeviceAndStream) {
  OtherDevice device;
  int queue = 0;
  const Stream stream{&queue};
  const auto allocator = std::make_shared<Allocator>(device, 0, stream);
  const Box box(Shape{{'N', 2}, {'C', 3}, {'H', 4}});
  Box part = box;
  part[2] = {1, 3};
  const Tensor x(DType::f32, "NCH", box, allocator, MemoryClass::workspace, Fill::none);
  EXPECT_EQ(&x.device(), &device);
  x.zero(stream);
  static_cast<void>(x.like(box));  // zeroed on the allocator's stream
  const Tensor y = extract(x, part, MemoryClass::halos, stream), wide = convert(y, DType::f64, stream);
  EXPECT_EQ(&wide.device(), &device);
  copy_box(y, x, part, stream);
  add_box(y, x, part, stream);
  const Tensor flat = Tensor::flat(x, part.volume(), MemoryClass::workspace);
  pack(x, part, flat.data(), stream);
  unpack(flat.data(), part, x, stream);
  unpack_add(flat.data(), part, x, stream);
  EXPECT_EQ(device.streams, std::vector<void*>(9, &queue));
  EXPECT_TRUE(device.waits.empty());
  EXPECT_EQ(read(x, stream), std::vector<double>(24, 0));
  EXPECT_EQ(device.streams, std::vector<void*>(10, &queue));
  EXPECT_EQ(device.waits, std::vector<void*>{&queue});
  EXPECT_DEATH(x.as<float>(), "the CPU may not access a tensor in the memory of a device");
}

}  // namespace
}  // namespace partita::test::device_test
