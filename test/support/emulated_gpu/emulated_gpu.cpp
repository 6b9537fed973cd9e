// The kernels of CudaLauncher, compiled for the CPU. They get other names, since the library may hold those for a GPU.
#define cuda emulated_cuda
#define CudaLauncher EmulatedLauncher
#include "src/backend/gpu/cuda/launcher.cuh"
#undef cuda
#undef CudaLauncher

#include "test/support/emulated_gpu/emulated_gpu.hpp"

#include "partita/base/error.hpp"
#include "src/backend/gpu/functor_backend/attention.hpp"
#include "src/backend/gpu/functor_backend/convolution.hpp"
#include "src/backend/gpu/functor_backend/elementwise.hpp"
#include "src/backend/gpu/functor_backend/experts.hpp"
#include "src/backend/gpu/functor_backend/losses.hpp"
#include "src/backend/gpu/functor_backend/moves.hpp"
#include "src/backend/gpu/functor_backend/normalization.hpp"
#include "src/backend/gpu/functor_backend/pooling.hpp"
#include "src/backend/gpu/functor_backend/resampling.hpp"
#include "src/backend/gpu/functor_backend/sequences.hpp"
#include "src/backend/gpu/functor_backend/updates.hpp"

#include <ucontext.h>

#include <array>
#include <csetjmp>
#include <memory>
#include <mutex>
#include <vector>

dim3 gridDim, threadIdx, blockIdx;

namespace {

/// A stack on which threads run, one after the other, until one waits at a barrier. That one keeps the stack.
struct Fiber {
  static constexpr std::size_t stack_bytes = 1 << 17;
  std::unique_ptr<std::byte[]> stack = std::make_unique_for_overwrite<std::byte[]>(stack_bytes);
  ucontext_t begin{};
  std::jmp_buf place{};  // where a thread waits
};

/// The threads of one block after the other.
class Block {
 public:
  void run(unsigned threads, const std::function<void()>& kernel) {
    kernel_ = &kernel;
    threads_ = threads;
    next_ = 0;
    waiting_.clear();
    while (next_ < threads_) run_new_fiber();
    // The order changes from one barrier to the next, so that a missing barrier gives wrong results.
    while (!waiting_.empty()) {
      std::vector<Waiting> turns(waiting_.rbegin(), waiting_.rend());
      waiting_.clear();
      for (const Waiting& turn : turns) enter(turn.fiber, turn.thread, false);
    }
  }

  void wait() {
    const unsigned thread = threadIdx.x;
    waiting_.push_back({fiber_, thread});
    if (_setjmp(fiber_->place) == 0) _longjmp(scheduler_, 1);
    threadIdx.x = thread;
  }

 private:
  struct Waiting {
    std::shared_ptr<Fiber> fiber;
    unsigned thread;
  };

  /// Runs threads that have not begun, until one waits or all have ended.
  static void run_threads();
  void run_new_fiber() {
    std::shared_ptr<Fiber> fiber = unused_.empty() ? std::make_shared<Fiber>() : unused_.back();
    if (!unused_.empty()) unused_.pop_back();
    getcontext(&fiber->begin);
    fiber->begin.uc_stack.ss_sp = fiber->stack.get();
    fiber->begin.uc_stack.ss_size = Fiber::stack_bytes;
    makecontext(&fiber->begin, &Block::run_threads, 0);
    enter(fiber, next_, true);
  }
  /// Begins a fiber or goes on with one, and returns when a thread waits or the fiber has ended. Jumps are much faster
  /// than changes of contexts, which ask the kernel.
  void enter(const std::shared_ptr<Fiber>& fiber, unsigned thread, bool begins) {
    fiber_ = fiber;
    ended_ = false;
    threadIdx.x = thread;
    if (_setjmp(scheduler_) == 0) {
      if (begins) setcontext(&fiber_->begin);
      _longjmp(fiber_->place, 1);
    }
    if (ended_) unused_.push_back(fiber_);
  }

  const std::function<void()>* kernel_ = nullptr;
  unsigned threads_ = 0, next_ = 0;  // the next thread to begin
  std::shared_ptr<Fiber> fiber_;
  std::vector<Waiting> waiting_;
  std::vector<std::shared_ptr<Fiber>> unused_;
  bool ended_ = false;
  std::jmp_buf scheduler_{};
};

Block block;

void Block::run_threads() {
  while (block.next_ < block.threads_) {
    const unsigned thread = threadIdx.x = block.next_++;
    (*block.kernel_)();
    if (block.next_ != thread + 1) break;  // it has waited, so that others have begun meanwhile
  }
  block.ended_ = true;
  _longjmp(block.scheduler_, 1);
}

}  // namespace

void __syncthreads() { block.wait(); }

void run_blocks(dim3 grid, unsigned threads, const std::function<void()>& kernel) {
  static std::mutex mutex;
  const std::scoped_lock lock(mutex);
  gridDim = grid;
  for (blockIdx.z = 0; blockIdx.z < grid.z; ++blockIdx.z)
    for (blockIdx.y = 0; blockIdx.y < grid.y; ++blockIdx.y)
      for (blockIdx.x = 0; blockIdx.x < grid.x; ++blockIdx.x) block.run(threads, kernel);
}

namespace partita {

namespace emulated_cuda {

void check_launch(cudaError_t) {}
void check_count(Index count, Index most) { require(count <= most, "a kernel has too many parts"); }

}  // namespace emulated_cuda

namespace test {

namespace {

EmulatedLauncher launcher() {
  // Little memory, so that sums come in few pieces and losses in chunks.
  static std::array<double, 4096> room{};
  static std::array<double, 40> scratch{};
  return {room.data(), sizeof room, std::as_writable_bytes(std::span(scratch))};
}

}  // namespace

std::unique_ptr<Backend> make_emulated_backend() {
  return std::make_unique<FunctorBackend<EmulatedLauncher>>(launcher());
}

void emulated_moves(std::span<const BoxMove> moves) { run_moves(launcher(), moves, {}); }

}  // namespace test
}  // namespace partita
