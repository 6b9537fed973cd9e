// Redistributions and convolutions on the test double of a device: exact, adjoint to each other, and without races.
#include "partita/distconv/conv.hpp"
#include "partita/tensor/redistribute.hpp"
#include "src/comm/threads/threads.hpp"
#include "test/support/adjoint.hpp"
#include "test/support/grids.hpp"
#include "test/support/lazy_backend.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

namespace partita::test::device_test {

namespace {

int seeds() { return std::getenv("PARTITA_LONG") == nullptr ? 5 : 200; }

/// A rank's memory and stream on a device.
struct Place {
  explicit Place(LazyDevice& its_device)
      : device(its_device),
        stream(its_device.make_stream(Priority::normal)),
        allocator(std::make_shared<Allocator>(its_device, 0, stream)) {}
  Tensor room(const Tensor& like) const {
    return {like.dtype(), like.names(), like.box(), allocator, MemoryClass::workspace, Fill::none};
  }
  Tensor bring(const Tensor& from) const {
    const Tensor to = room(from);
    from_host(from, to, stream);
    return to;
  }
  Tensor fetch(const Tensor& from) const { return on_host(from, stream); }
  DistTensor bring(DistTensor x) const {
    x.local = bring(x.local);
    return x;
  }
  DistTensor fetch(DistTensor x) const {
    x.local = fetch(x.local);
    return x;
  }

  LazyDevice& device;
  Stream stream;
  std::shared_ptr<Allocator> allocator;
};

DistTensor made(const Layout& layout, int rank, std::uint64_t seed) {
  DistTensor x(layout, rank, DType::f64, std::make_shared<Allocator>(), MemoryClass::workspace);
  fill_parts(x, seed, rank);
  return x;
}

/// Checks pairs of layouts that are drawn alike on every rank.
void check_redistributions(const Grid& grid, unsigned seed, Communicator& comm, LazyDevice& device) {
  const ProcessGrid host(grid, comm, all_axis_sets(grid));
  const ProcessGrid between(grid, make_device_threads(comm, device, std::chrono::seconds(60)), all_axis_sets(grid));
  const Place place(device);
  std::mt19937 random(seed);
  for (const Shape& shape :
       {Shape{{'N', 5}, {'C', 7}, {'H', 3}}, Shape{{'N', 2}, {'C', 1}}, Shape{{'N', 0}, {'C', 4}}}) {
    const auto layouts = all_layouts(shape, grid);
    for (int i = 0; i < 6; ++i) {
      const Layout &from = layouts[random() % layouts.size()], &to = layouts[random() % layouts.size()];
      SCOPED_TRACE(fmt::format("rank {}: {} -> {}", comm.rank(), from.print(), to.print()));
      const DistTensor x = made(from, comm.rank(), 1), y = made(to.dual(), comm.rank(), 2);
      const DistTensor moved = place.fetch(redistribute(place.bring(x), to, between, place.stream));
      const DistTensor back = place.fetch(redistribute(place.bring(y), from.dual(), between, place.stream));
      EXPECT_EQ(wrong_elements(moved, 1, host.along(to.partial()), comm), 0);
      EXPECT_EQ(inner(moved, y, comm), inner(x, back, comm));
    }
  }
}

/// <conv(x), dy> = <x, conv'(dy)> = <w, conv'(x, dy)>, each summed over the parts of all ranks.
void check_convolution(const Layout& x_layout, const std::vector<Window>& windows, Communicator& comm,
                       LazyDevice& device) {
  constexpr Index filters = 3;
  const int me = comm.rank();
  Shape outputs{{'N', x_layout.shape()['N']}, {'C', filters}}, weights{{'F', filters}, {'C', x_layout.shape()['C']}};
  for (const char dim : {'H', 'W'}) {
    const Window& window = windows[dim == 'H' ? 0 : 1];
    outputs.push_back({dim, window.outputs(x_layout.shape()[dim])});
    weights.push_back({dim, window.kernel});
  }
  const Layout y_layout = x_layout.onto(outputs);
  const SpatialConv conv(windows, halo_of_inputs(x_layout, y_layout, windows),
                         halo_of_outputs(x_layout, y_layout, windows), me);
  const auto filled = [](std::string_view names, const Shape& shape, const Box& box, std::uint64_t seed) {
    const Tensor tensor(DType::f64, names, box);
    fill(tensor, shape, [&](Index i) { return value(seed, i); });
    return tensor;
  };
  const Tensor x = filled("NCHW", x_layout.shape(), x_layout.owned(me), 11),
               dy = filled("NCHW", outputs, y_layout.owned(me), 12), w = filled("FCHW", weights, Box(weights), 13);

  const auto backend = make_lazy_backend(device);
  const auto between = make_device_threads(comm, device, std::chrono::seconds(60));
  const Place place(device);
  const RankContext rank{*backend, *between, true, place.stream};
  const Tensor y_there = place.room(dy), dx_there = place.room(x), dw_there = place.room(w), dy_there = place.bring(dy),
               w_there = place.bring(w);
  Tensor extended;
  conv.forward(rank, place.bring(x), w_there, {}, y_there, extended);
  auto started = conv.start_backward(rank, dy_there);
  conv.backward_filter(rank, extended, dy_there, dw_there, Write::over);
  conv.backward_data(rank, started, w_there, dx_there);
  const Tensor y = place.fetch(y_there), dx = place.fetch(dx_there), dw = place.fetch(dw_there);
  const bool counts = is_first(x_layout.grid(), me, x_layout.replicated());
  const double forward = sum_over(comm, counts ? inner_local(y, dy) : 0);
  EXPECT_EQ(forward, sum_over(comm, counts ? inner_local(x, dx) : 0));
  EXPECT_EQ(forward, sum_over(comm, counts ? inner_local(w, dw) : 0));
}

}  // namespace

TEST(OnADevice, RedistributionsAreExactAndAdjoint) {
  for (int seed = 0; seed < seeds(); ++seed)
    for (const char* text : {"", "a=2", "a=2 b=2", "a=4"}) {
      SCOPED_TRACE(fmt::format("seed {}, grid \"{}\"", seed, text));
      const Grid grid = Grid::parse(text);
      LazyDevice device(static_cast<unsigned>(seed));
      run_threads(grid.size(),
                  [&](Communicator& comm) { check_redistributions(grid, static_cast<unsigned>(seed), comm, device); });
      EXPECT_NO_THROW(device.check());
    }
}

TEST(OnADevice, ConvolutionsAreAdjoint) {
  const std::vector<std::vector<Window>> slides{
      {{3, 1, 1, 1, 1}, {3, 1, 1, 1, 1}}, {{2, 2, 1, 0, 1}, {5, 3, 2, 4, 0}}, {{7, 1, 1, 3, 3}, {1, 1, 1, 0, 0}}};
  for (int seed = 0; seed < seeds(); ++seed)
    for (const char* layout : {"", "H@a", "W@a", "N@a H@b", "H@a W@b", "H@(a,b)"}) {
      const bool two = std::string_view(layout).find('b') != std::string_view::npos;
      const Grid grid = Grid::parse(std::string_view(layout).empty() ? "" : two ? "a=2 b=2" : "a=2");
      const auto& windows = slides[static_cast<std::size_t>(seed) % slides.size()];
      SCOPED_TRACE(fmt::format("seed {}, layout \"{}\"", seed, layout));
      const Layout x = Layout::parse(layout, {{'N', 3}, {'C', 2}, {'H', 7}, {'W', 11}}, grid);
      LazyDevice device(static_cast<unsigned>(seed));
      run_threads(grid.size(), [&](Communicator& comm) { check_convolution(x, windows, comm, device); });
      EXPECT_NO_THROW(device.check());
    }
}

}  // namespace partita::test::device_test
