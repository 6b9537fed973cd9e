// oneDNN's kernels stay in the scratch memory that they ask for.
#include "src/backend/cpu/onednn_conv.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>

namespace partita::onednn_room_test {
namespace {

/// Floats, and behind them memory that nobody may access. The floats begin at a multiple of 64 bytes, as a backend's
/// do; the few bytes that this leaves behind them hold a mark.
class Guarded {
 public:
  explicit Guarded(Index floats) : floats_(floats) {
    constexpr std::size_t line = 64;
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t bytes = (static_cast<std::size_t>(floats) * sizeof(float) + line - 1) / line * line;
    bytes_ = (bytes + page - 1) / page * page + page;
    pages_ = static_cast<std::byte*>(mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    std::byte* const end = pages_ + bytes_ - page;
    mprotect(end, page, PROT_NONE);
    data = reinterpret_cast<float*>(end - bytes);
    end_ = reinterpret_cast<float*>(end);
    std::fill(data + floats, end_, mark);
  }
  ~Guarded() { munmap(pages_, bytes_); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  bool intact() const {
    return std::all_of(data + floats_, end_, [](float value) { return value == mark; });
  }
  float* data;

 private:
  static constexpr float mark = 12345;
  Index floats_;
  std::byte* pages_;
  std::size_t bytes_;
  float* end_;
};

// oneDNN 2.6.3 writes behind its scratchpad for some of these problems (its issue 6035) if they have as many inputs as
// outputs times stride. So it is given only the inputs that are read.
TEST(OneDnnRoom, WeightGradientsStayInIt) {
  const std::array windows{Window{1, 2, 1, 0, 0}, Window{1, 2, 1, 0, 0}};
  for (Index channels = 1; channels <= 17; ++channels)
    for (const Index filters : {Index(1), Index(8), channels, 2 * channels}) {
      const Box x(Shape{{'N', 2}, {'C', channels}, {'H', 8}, {'W', 8}}),
          w(Shape{{'F', filters}, {'C', channels}, {'H', 1}, {'W', 1}}),
          y(Shape{{'N', 2}, {'C', filters}, {'H', 4}, {'W', 4}});
      const ConvProblem problem(ConvPass::backward_filter, windows, x, w, y, false);
      SCOPED_TRACE(problem.print());
      ASSERT_EQ(problem.sides[1].in, 8);
      for (const auto make : {make_nhwc_conv, make_blocked_conv}) {
        const auto conv = make(problem);
        const Guarded room(conv->room());
        const Tensor inputs(DType::f32, "NCHW", x), dy(DType::f32, "NCHW", y), dw(DType::f32, "FCHW", w);
        conv->run(inputs.as<float>(), dy.as<float>(), nullptr, dw.as<float>(), room.data);
        EXPECT_TRUE(room.intact());
      }
    }
}

}  // namespace
}  // namespace partita::onednn_room_test
