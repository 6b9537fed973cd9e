// The backend's convolutions, on channels-last tensors, against bare oneDNN: the faster of its own blocked form and of
// channels last, its operands already in that form. ResNet-50's layers (He et al. 2016, table 1; stride in the 3x3).
//   build/mpiexec -n 1 build/bench/conv [CASES]    those whose name contains the text
#include "partita/backend/measure.hpp"
#include "partita/base/philox.hpp"
#include "partita/comm/mpi.hpp"
#include "partita/tensor/dist_tensor.hpp"
#include "support/bare_conv.hpp"
#include "support/measure.hpp"

#include <fmt/format.h>

#include <array>

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

/// Our side: tensors channels last, as layers hold them.
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
  /// As training chooses.
  void choose(ConvPass pass) { measure_fastest(backend_, {pass, windows_, x_.box(), w_.box(), y_.box(), false}); }
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

void measure(const bench::ConvShape& shape, Index batch, Backend& backend, const std::string& wanted) {
  static constexpr std::array names{"forward", "backward-data", "backward-filter"};
  for (const auto pass : {ConvPass::forward, ConvPass::backward_data, ConvPass::backward_filter}) {
    const auto* name = names[static_cast<std::size_t>(pass)];
    const auto text = fmt::format("{}x{}-{}to{}-stride{}-{}-{}-batch{}", shape.kernel, shape.kernel, shape.channels,
                                  shape.filters, shape.stride, shape.size, name, batch);
    if (text.find(wanted) == std::string::npos) continue;
    Ours ours(shape, batch, backend);
    ours.choose(pass);
    bench::BareConv blocked(shape, batch, pass, bench::Form::blocked),
        last(shape, batch, pass, bench::Form::channels_last);
    const auto first = bench::compare(
        MPI_COMM_WORLD, [&] { blocked.run(); }, [&] { last.run(); }, 0.1);
    auto& theirs = first.ratio > 1 ? blocked : last;
    bench::print(MPI_COMM_WORLD, "conv", text,
                 bench::compare(
                     MPI_COMM_WORLD, [&] { ours.run(pass); }, [&] { theirs.run(); }, 0.4),
                 first.ratio > 1 ? "onednn blocked" : "onednn nhwc");
  }
}

}  // namespace

int main(int argc, char** argv) {
  MpiSession session(argc, argv);
  if (session.world()->size() != 1) session.abort("conv measures the kernels of one rank: start it with -n 1", 2);
  bench::pin(0);
  const auto backend = make_onednn_backend(1);
  for (const Index batch : {1, 8})
    for (const auto& shape : layers) measure(shape, batch, *backend, argc > 1 ? argv[1] : "");
  return 0;
}
