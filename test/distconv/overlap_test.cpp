// Proves overlap with simulated times, so that neither cores nor memory matter: a transfer has a fixed latency, and a
// kernel sleeps for a time proportional to its output. Without overlap a step takes transfer + compute. With overlap it
// takes max(transfer, compute) + boundary.
#include "partita/distconv/conv.hpp"
#include "partita/distconv/pool.hpp"
#include "src/backend/cpu/reference.hpp"
#include "src/comm/delaying.hpp"
#include "src/comm/threads/threads.hpp"
#include "test/support/adjoint.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace partita::test::overlap_test {

namespace {

using Clock = std::chrono::steady_clock;

constexpr double transfer = 0.15;
constexpr int attempts = 3;  // a loaded machine may be late, but never early

/// Seconds that the kernels take for all outputs (`forward`), inputs (`data`) and outputs (`filter`) of a rank.
struct Times {
  double forward = 0, data = 0, filter = 0;
};

/// Sleeps for the simulated time, then computes as the reference backend does.
class SlowBackend final : public ReferenceBackend {
 public:
  SlowBackend(Times times, Index elements) : times_(times), elements_(static_cast<double>(elements)) {}

  void conv_forward(std::span<const Window> windows, const Tensor& x, const Tensor& w, const Tensor& bias,
                    const Tensor& y, Stream stream) override {
    spend(times_.forward, y.box());
    ReferenceBackend::conv_forward(windows, x, w, bias, y, stream);
  }
  void conv_backward_data(std::span<const Window> windows, const Tensor& dy, const Tensor& w, const Tensor& dx,
                          Stream stream) override {
    spend(times_.data, dx.box());
    ReferenceBackend::conv_backward_data(windows, dy, w, dx, stream);
  }
  void conv_backward_filter(std::span<const Window> windows, const Tensor& x, const Tensor& dy, const Tensor& dw,
                            Write write, Stream stream) override {
    spend(times_.filter, dy.box());
    ReferenceBackend::conv_backward_filter(windows, x, dy, dw, write, stream);
  }
  void pool_forward(const Pooling& pooling, const Tensor& x, const Tensor& y, const Tensor& picked, const Box& part,
                    Stream stream) override {
    spend(times_.forward, part);
    ReferenceBackend::pool_forward(pooling, x, y, picked, part, stream);
  }
  void pool_backward(const Pooling& pooling, const Tensor& dy, const Tensor& picked, const Tensor& dx, const Box& part,
                     Stream stream) override {
    spend(times_.data, part);
    ReferenceBackend::pool_backward(pooling, dy, picked, dx, part, stream);
  }

 private:
  void spend(double seconds, const Box& result) const {
    std::this_thread::sleep_for(
        std::chrono::duration<double>(seconds * static_cast<double>(result.volume()) / elements_));
  }

  Times times_;
  double elements_;
};

/// Seconds of one forward and one backward pass on the slower rank.
struct Measured {
  double forward = 0, backward = 0;
};

double slowest(Communicator& comm, Clock::time_point start) {
  double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  comm.all_reduce(&seconds, 1, DType::f64, ReduceOp::max, {}).wait();
  return seconds;
}

Clock::time_point start_together(Communicator& comm) {
  double nothing = 0;
  comm.all_reduce(&nothing, 1, DType::f64, ReduceOp::sum, {}).wait();
  return Clock::now();
}

/// A layer N C H@y W with 3x3 windows on two ranks of 20 rows each. One row in 20 reads the halo.
struct Cut {
  Shape shape{{'N', 1}, {'C', 1}, {'H', 40}, {'W', 4}};
  Layout layout = Layout::parse("N C H@y W", shape, Grid::parse("y=2"));
  std::vector<Window> windows = std::vector<Window>(2, Window{.kernel = 3, .pad_lo = 1, .pad_hi = 1});
  Halo x = halo_of_inputs(layout, layout, windows), dy = halo_of_outputs(layout, layout, windows);
};

/// Measures the functions for forward and backward that `make(cut, rank, box)` returns, on a slow simulated network.
template <class Make>
Measured measure_on(const Times& times, bool overlap, Make&& make) {
  const Cut cut;
  Measured measured;
  run_threads(2, [&](Communicator& world) {
    const auto slow = delaying(world, {.latency = transfer, .bandwidth = 0});
    const Box owned = cut.layout.owned(world.rank());
    SlowBackend backend(times, owned.volume());
    const RankContext rank{backend, *slow, overlap, {}};
    const auto [forward, backward] = make(cut, rank, owned);
    auto start = start_together(world);
    forward();
    const double forward_time = slowest(world, start);
    start = start_together(world);
    backward();
    const double backward_time = slowest(world, start);
    if (world.rank() == 0) measured = {forward_time, backward_time};
  });
  return measured;
}

/// y = conv(x, w)
Measured measure(const Times& times, bool overlap) {
  return measure_on(times, overlap, [](const Cut& cut, const RankContext& rank, const Box& owned) {
    const auto conv = std::make_shared<SpatialConv>(cut.windows, cut.x, cut.dy, rank.comm.rank());
    const Tensor x(DType::f64, "NCHW", owned),
        w(DType::f64, "FCHW", Box(Shape{{'F', 1}, {'C', 1}, {'H', 3}, {'W', 3}}));
    const Tensor y = x.like(owned), dx = x.like(owned), dw = w.like(w.box());
    const auto extended = std::make_shared<Tensor>();
    return std::pair([=, &rank] { conv->forward(rank, x, w, {}, y, *extended); },
                     [=, &rank] {
                       auto dy = conv->start_backward(rank, y);
                       conv->backward_filter(rank, *extended, y, dw, Write::over);
                       conv->backward_data(rank, dy, w, dx);
                     });
  });
}

/// y = pool(x)
Measured measure_pool(const Times& times, bool overlap) {
  return measure_on(times, overlap, [](const Cut& cut, const RankContext& rank, const Box& owned) {
    const auto pool = std::make_shared<SpatialPool>(PoolKind::max, cut.windows, false, cut.x, rank.comm.rank());
    const Tensor x(DType::f64, "NCHW", owned), y = x.like(owned), dx = x.like(owned), picked = y.like(DType::i32);
    return std::pair([=, &rank] { pool->forward(rank, x, y, picked); },
                     [=, &rank] { pool->backward(rank, y, picked, dx); });
  });
}

using Measure = Measured (*)(const Times& times, bool overlap);

bool near(double measured, double expected) { return measured <= 1.25 * expected + 0.03; }

/// No run can be faster than its sleeps, so every attempt is checked against the lower bound. One attempt must come
/// near the expected times.
void expect_times(Measure measure, const Times& times, bool overlap, double forward, double backward) {
  Measured measured;
  for (int attempt = 0; attempt < attempts; ++attempt) {
    measured = measure(times, overlap);
    ASSERT_GE(measured.forward, forward - 0.001);
    ASSERT_GE(measured.backward, backward - 0.001);
    if (near(measured.forward, forward) && near(measured.backward, backward)) return;
  }
  ADD_FAILURE() << "forward " << measured.forward << " s, expected " << forward << "; backward " << measured.backward
                << " s, expected " << backward;
}

}  // namespace

TEST(Overlap, TransferHidesBehindLongerCompute) {
  expect_times(measure, {.forward = 0.2, .data = 0.05, .filter = 0.2}, true, 0.2 + 0.2 / 20, 0.2 + 0.05);
}

TEST(Overlap, ComputeHidesBehindLongerTransfer) {
  expect_times(measure, {.forward = 0.12, .data = 0.05, .filter = 0.12}, true, transfer + 0.12 / 20, transfer + 0.05);
}

TEST(Overlap, WithoutItTimesAddUp) {
  expect_times(measure, {.forward = 0.2, .data = 0.05, .filter = 0.2}, false, 0.2 + transfer, 0.2 + 0.05 + transfer);
}

TEST(Overlap, OfPooling) {
  const Times times{.forward = 0.2, .data = 0.2, .filter = 0};
  expect_times(measure_pool, times, true, 0.2, 0.2);  // nothing is computed twice
  expect_times(measure_pool, times, false, 0.2 + transfer, 0.2 + transfer);
}

}  // namespace partita::test::overlap_test
