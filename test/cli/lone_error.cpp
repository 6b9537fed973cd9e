// A program with a layer that fails on one rank only, during training. lone_error.py runs it.
#include "partita/partita.hpp"
#include "src/base/plain_text.hpp"

#include <sys/time.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>

using namespace partita;

namespace {

/// Simulates a corrupted heap: the fault occurs while the process holds the allocator's lock. Whatever allocates memory
/// afterwards, such as a backtrace, never returns.
[[noreturn]] void fault_in_malloc() {
  std::signal(SIGALRM, [](int) { raise(SIGSEGV); });
  const itimerval soon{.it_interval = {}, .it_value = {.tv_sec = 0, .tv_usec = 50'000}};
  setitimer(ITIMER_REAL, &soon, nullptr);
  std::array<void*, 64> blocks{};
  while (true) {
    std::size_t bytes = 2000;  // too large for the thread's cache of small blocks
    for (void*& block : blocks) block = std::malloc(bytes += 100);
    for (void* block : blocks) std::free(block);
  }
}

/// A layer that copies its input. In step 3, the rank in the environment variable FAIL_RANK fails in the way that
/// FAIL_HOW names.
class Fragile final : public CustomLayer {
 public:
  std::string_view kind() const override { return "fragile"; }
  Shape output(std::span<const Shape> inputs) const override { return inputs[0]; }
  OperatorLayouts layouts(const LayoutRequest& request) const override {
    return {.x = {request.output}, .y = request.output, .dx = {request.output.dual()}};
  }
  void forward(const KernelCall& call, std::span<const Tensor> x, const Tensor& y) const override {
    if (call.step.get(0) == 3 && call.grid.rank() == parse_number<int>(std::getenv("FAIL_RANK"))) {
      const std::string how = std::getenv("FAIL_HOW");
      if (how == "error") fail("layer '{}': it broke", call.layer.name);
      if (how == "memory") throw std::bad_alloc();
      if (how == "fault") fault_in_malloc();
      if (how == "hang") std::this_thread::sleep_for(std::chrono::hours(1));
      throw std::runtime_error("something else");
    }
    copy_box(x[0], y, y.box(), {});
  }
  void backward_data(const KernelCall&, const Tensor& dy, std::span<const Tensor> dx) const override {
    copy_box(dy, dx[0], dy.box(), {});
  }
};

Model fragile_model() {
  Model m("fragile");
  auto t = m.input("image", {.channels = 1, .spatial = {8, 8}});
  t = m.layer("weak", std::make_shared<Fragile>(), {t});
  t = m.linear("fc", t, {.features = 10});
  m.softmax_cross_entropy("loss", t);
  return m;
}

}  // namespace

int main(int argc, char** argv) { return partita::main(argc, argv, fragile_model); }
