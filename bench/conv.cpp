// On one rank, compares the backend's convolutions on channels-last tensors with bare oneDNN. oneDNN runs in the faster
// of two forms, blocked and channels-last, and its operands already have that form. If the ratio is below 0.9, compares
// also with oneDNN on plain weights that it reorders in every run, because weights change with every step. The layers
// are those of ResNet-50 (He et al. 2016, table 1; stride in the 3x3) and the first layer of the mesh network (Dryden
// et al. 2019).
// On two ranks, compares partitioned layers with the same layers on one rank. The time includes all communication of
// the layer except the sum of dw, which is compared with MPI's all-reduce.
//   build/mpiexec -n 1 build/bench/conv [TEXT]    only cases whose name contains TEXT
//   build/mpiexec -n 2 build/bench/conv [TEXT]
#include "bench/support/bare_conv.hpp"
#include "bench/support/layer.hpp"
#include "bench/support/measure.hpp"
#include "partita/base/philox.hpp"
#include "partita/comm/mpi.hpp"
#include "partita/tensor/dist_tensor.hpp"
#include "src/backend/measure.hpp"

#include <fmt/format.h>

#include <array>
#include <functional>
#include <string>
#include <vector>

using namespace partita;

namespace {

constexpr std::array layers{
    bench::ConvShape{3, 64, 7, 2, 224},
    // conv2
    bench::ConvShape{64, 64, 1, 1, 56}, bench::ConvShape{64, 64, 3, 1, 56}, bench::ConvShape{64, 256, 1, 1, 56},
    bench::ConvShape{256, 64, 1, 1, 56},
    // conv3
    bench::ConvShape{256, 128, 1, 1, 56}, bench::ConvShape{128, 128, 3, 2, 56}, bench::ConvShape{128, 512, 1, 1, 28},
    bench::ConvShape{256, 512, 1, 2, 56}, bench::ConvShape{512, 128, 1, 1, 28}, bench::ConvShape{128, 128, 3, 1, 28},
    // conv4
    bench::ConvShape{512, 256, 1, 1, 28}, bench::ConvShape{256, 256, 3, 2, 28}, bench::ConvShape{256, 1024, 1, 1, 14},
    bench::ConvShape{512, 1024, 1, 2, 28}, bench::ConvShape{1024, 256, 1, 1, 14}, bench::ConvShape{256, 256, 3, 1, 14},
    // conv5
    bench::ConvShape{1024, 512, 1, 1, 14}, bench::ConvShape{512, 512, 3, 2, 14}, bench::ConvShape{512, 2048, 1, 1, 7},
    bench::ConvShape{1024, 2048, 1, 2, 14}, bench::ConvShape{2048, 512, 1, 1, 7}, bench::ConvShape{512, 512, 3, 1, 7}};

/// One layer of each kind of the mesh network for 1024x1024.
constexpr std::array mesh{bench::ConvShape{18, 128, 5, 2, 1024}, bench::ConvShape{128, 128, 5, 1, 512},
                          bench::ConvShape{128, 160, 3, 2, 512}, bench::ConvShape{160, 160, 3, 1, 256},
                          bench::ConvShape{160, 192, 3, 2, 256}, bench::ConvShape{192, 192, 3, 1, 128},
                          bench::ConvShape{192, 256, 3, 2, 128}, bench::ConvShape{256, 256, 3, 1, 64}};

std::string name_of(const bench::ConvShape& s) {
  return fmt::format("{}x{}-{}to{}-stride{}-{}", s.kernel, s.kernel, s.channels, s.filters, s.stride, s.size);
}

/// Our side: the backend's convolution on channels-last tensors, as layers hold them.
class Ours {
 public:
  Ours(const bench::ConvShape& s, Index batch, Backend& backend)
      : windows_(2, Window{.kernel = s.kernel, .stride = s.stride, .pad_lo = s.pad(), .pad_hi = s.pad()}),
        backend_(backend) {
    const auto allocator = std::make_shared<Allocator>();
    const auto random = [&](const Shape& shape, std::uint32_t stream) {
      const Tensor tensor(DType::f32, shape.names(), Box(shape), allocator, MemoryClass::activations, Fill::none);
      fill(tensor, shape, [&](Index i) { return Random(1, stream).normal(i); });
      return tensor;
    };
    x_ = random({{'N', batch}, {'C', s.channels}, {'H', s.size}, {'W', s.size}}, 1);
    w_ = random({{'F', s.filters}, {'C', s.channels}, {'H', s.kernel}, {'W', s.kernel}}, 2);
    y_ = random({{'N', batch}, {'C', s.filters}, {'H', s.out()}, {'W', s.out()}}, 3);
  }
  /// Chooses the kernel as training does.
  void choose(ConvPass pass) { measure_fastest(backend_, {}, {pass, windows_, x_.box(), w_.box(), y_.box(), false}); }
  void run(ConvPass pass) {
    switch (pass) {
      case ConvPass::forward: return backend_.conv_forward(windows_, x_, w_, Tensor(), y_, {});
      case ConvPass::backward_data: return backend_.conv_backward_data(windows_, y_, w_, x_, {});
      case ConvPass::backward_filter: return backend_.conv_backward_filter(windows_, x_, y_, w_, Write::over, {});
    }
  }

 private:
  std::vector<Window> windows_;
  Backend& backend_;
  Tensor x_, w_, y_;
};

/// Compares with the faster of oneDNN's forms or, with `blocked_form`, with the blocked form.
void measure(const bench::ConvShape& shape, Index batch, Backend& backend, const std::string& wanted,
             bool blocked_form) {
  static constexpr std::array names{"forward", "backward-data", "backward-filter"};
  for (const auto pass : {ConvPass::forward, ConvPass::backward_data, ConvPass::backward_filter}) {
    const auto* name = names[static_cast<std::size_t>(pass)];
    const auto text = fmt::format("{}-{}-batch{}", name_of(shape), name, batch);
    if (text.find(wanted) == std::string::npos) continue;
    Ours ours(shape, batch, backend);
    ours.choose(pass);
    bench::BareConv blocked(shape, batch, pass, bench::Form::blocked),
        last(shape, batch, pass, bench::Form::channels_last);
    const auto against = [&](const std::vector<std::function<void()>>& theirs, const std::vector<std::string>& forms) {
      const auto result = bench::compare(
          MPI_COMM_WORLD, [&] { ours.run(pass); }, theirs, 0.4);
      bench::print(MPI_COMM_WORLD, "conv", text, result, forms[result.best]);
      return result.ratio;
    };
    std::vector<std::function<void()>> theirs{[&] { blocked.run(); }};
    if (!blocked_form) theirs.emplace_back([&] { last.run(); });
    constexpr double wanted_ratio = 0.9;
    if (against(theirs, {"onednn blocked", "onednn nhwc"}) >= wanted_ratio) continue;
    bench::BareConv plain(shape, batch, pass, bench::Form::channels_last, /*plain_weights=*/true);
    against({[&] { plain.run(); }}, {"onednn nhwc, plain weights"});
  }
}

/// Compares two ranks with one rank, forward and backward.
class Pair {
 public:
  Pair(const std::shared_ptr<Communicator>& world, std::string wanted)
      : world_(world), self_(world->split(world->rank(), 0)), wanted_(std::move(wanted)) {}

  void measure(const std::string& what, const bench::ConvShape& shape, Index batch, const std::string& layout) {
    const auto name = fmt::format("{}-{}-batch{}", what, name_of(shape), batch);
    if (name.find(wanted_) == std::string::npos) return;
    bench::Layer together(shape, batch, "p=2", layout, world_), alone(shape, batch, "", "", self_);
    const auto one = [&](auto&& run) {
      return [this, run] {
        if (world_->rank() == 0) run();
      };
    };
    const auto row = [&](const char* direction, const bench::Comparison& comparison) {
      bench::print(
          MPI_COMM_WORLD, "conv",
          fmt::format("{}-{}{}{}", name, direction, together.algorithm().empty() ? "" : "-", together.algorithm()),
          comparison, "one rank");
    };
    row("forward", bench::compare(
                       MPI_COMM_WORLD, [&] { together.forward(); }, one([&] { alone.forward(); }), 0.4));
    if (world_->rank() == 0) alone.forward();  // backward needs the inputs that it saves
    row("backward", bench::compare(
                        MPI_COMM_WORLD, [&] { together.backward(); }, one([&] { alone.backward(); }), 0.4));
    if (together.summed_bytes() > 0) measure_sum(name, together);
  }

 private:
  static void measure_sum(const std::string& name, bench::Layer& layer) {
    std::vector<float> same(static_cast<std::size_t>(layer.summed_bytes()) / sizeof(float));
    const auto theirs = [&] {
      MPI_Allreduce(MPI_IN_PLACE, same.data(), static_cast<int>(same.size()), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    };
    bench::print(MPI_COMM_WORLD, "conv", name + "-dw-sum",
                 bench::compare(
                     MPI_COMM_WORLD, [&] { layer.sum_dw(); }, theirs, 0.2),
                 "mpi");
  }

  std::shared_ptr<Communicator> world_, self_;
  std::string wanted_;
};

void measure_pairs(const std::shared_ptr<Communicator>& world, const std::string& wanted) {
  Pair pair(world, wanted);
  for (const auto& shape : layers) pair.measure("sample", shape, 8, "N@p");
  for (const auto& shape : layers)
    if (shape.size >= 56) pair.measure("spatial", shape, 1, "H@p");
  for (const auto& shape : mesh) pair.measure("spatial", shape, 1, "H@p");
  for (const auto& shape : layers)
    if (shape.size <= 14) pair.measure("channel", shape, 1, "C@p");
}

}  // namespace

int main(int argc, char** argv) {
  MpiSession session(argc, argv);
  const auto world = session.world();
  bench::pin(world->rank());
  const std::string wanted = argc > 1 ? argv[1] : "";
  if (world->size() == 2) {
    measure_pairs(world, wanted);
    return 0;
  }
  if (world->size() != 1) session.abort("bench/conv needs 1 or 2 ranks: start it with -n 1 or -n 2", 2);
  const auto backend = make_onednn_backend(1);
  for (const Index batch : {1, 8})
    for (const auto& shape : layers) measure(shape, batch, *backend, wanted, false);
  for (const bool blocked : {false, true}) measure(mesh[0], 1, *backend, wanted, blocked);
  return 0;
}
