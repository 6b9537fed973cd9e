// A program outside of Partita's source tree, with its own model, its own kind of layer and its own data set.
//   mpiexec -n 4 build/spirals train --data spirals --epochs 60 --batch 60 --optimizer adam --rate 0.01
#include <partita/partita.hpp>

#include <cmath>

using namespace partita;

namespace {

/// A spiral with three arms. A sample is a point in the plane; its class is the arm.
class Spirals final : public Dataset {
 public:
  explicit Spirals(bool training) : turn_(training ? 0 : 0.5) {}
  Shape sample() const override { return {{'C', 2}, {'H', 1}, {'W', 1}}; }
  Index size() const override { return 600; }
  Index classes() const override { return 3; }
  void hold(std::span<const Index>, const Box&) override {}  // nothing to read from a file
  void read(Index sample, const Box& box, std::span<double> out) const override {
    const double along = (static_cast<double>(sample / 3) + turn_) / 200;
    const double angle = 4 * along + 2 * std::numbers::pi / 3 * static_cast<double>(sample % 3);
    const double place[] = {2 * along * std::cos(angle), 2 * along * std::sin(angle)};
    for (Index c = box[0].lo; c < box[0].hi; ++c) out[c - box[0].lo] = place[c];
  }
  std::int32_t label(Index sample) const override { return static_cast<std::int32_t>(sample % 3); }

 private:
  double turn_;
};

/// y[L] = sin(x[L]) in any layout L; dx = dy cos(x).
class Sine final : public CustomLayer {
 public:
  std::string_view kind() const override { return "sine"; }
  Shape output(std::span<const Shape> inputs) const override { return inputs[0]; }
  OperatorLayouts layouts(const LayoutRequest& request) const override {
    return {.x = {request.output}, .y = request.output, .dx = {request.output.dual()}};
  }
  void forward(const KernelCall& call, std::span<const Tensor> x, const Tensor& y) const override {
    save(call, {x[0]});
    for (Index i = 0; i < y.volume(); ++i) y.set(i, std::sin(x[0].get(i)));
  }
  void backward_data(const KernelCall& call, const Tensor& dy, std::span<const Tensor> dx) const override {
    const Tensor& x = saved(call);
    for (Index i = 0; i < dy.volume(); ++i) dx[0].set(i, dy.get(i) * std::cos(x.get(i)));
  }
};

Model spiral_net() {
  Model m("spiral-net");
  auto t = m.input("place", {.channels = 2, .spatial = {1, 1}});
  t = m.linear("fc1", t, {.features = 32});
  t = m.layer("sine", std::make_shared<Sine>(), {t});
  t = m.linear("fc2", t, {.features = 3});
  m.softmax_cross_entropy("loss", t);
  return m;
}

}  // namespace

int main(int argc, char** argv) {
  register_dataset("spirals", [](const std::string&, bool training) { return std::make_unique<Spirals>(training); });
  return partita::main(argc, argv, spiral_net);
}
