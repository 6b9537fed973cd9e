// A program whose own layer fails on one rank alone, in the middle of training: what lone_error.py runs.
#include "partita/partita.hpp"

#include <cstdlib>

using namespace partita;

namespace {

/// Hands its input on.
class Fragile final : public Operator {
 public:
  std::string_view kind() const override { return "fragile"; }
  Shape output(std::span<const Shape> inputs) const override { return inputs[0]; }
  OperatorLayouts layouts(const LayoutRequest& request) const override {
    return {.x = {request.output}, .y = request.output, .dx = {request.output.dual()}};
  }
};

/// In step 3, rank FAIL_RANK throws what FAIL_HOW says.
class FragileKernel final : public Kernel {
 public:
  explicit FragileKernel(int rank) : fails_(rank == std::atoi(std::getenv("FAIL_RANK"))) {}
  void forward(const KernelCall& call, std::span<const Tensor> x, const Tensor& y) const override {
    if (fails_ && call.step == 3) {
      const std::string how = std::getenv("FAIL_HOW");
      if (how == "error") fail("layer '{}': it broke", call.layer.name);
      if (how == "memory") throw std::bad_alloc();
      throw std::runtime_error("something else");
    }
    copy_box(x[0], y, y.box());
  }
  void backward_data(const KernelCall&, const Tensor& dy, std::span<const Tensor> dx) const override {
    copy_box(dy, dx[0], dy.box());
  }

 private:
  bool fails_;
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

int main(int argc, char** argv) {
  register_kernel("fragile", [](const LayerPlan&, int rank) { return std::make_unique<FragileKernel>(rank); });
  return partita::main(argc, argv, fragile_model);
}
