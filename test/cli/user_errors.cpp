// A program with a model, a layer and a data set of its own, each with the mistake that the environment variable
// MISTAKE names. user_errors.py runs it.
#include "partita/partita.hpp"

#include <cstdlib>
#include <stdexcept>

using namespace partita;

namespace {

bool is(std::string_view name) {
  const char* mistake = std::getenv("MISTAKE");
  return mistake != nullptr && name == mistake;
}

/// A layer that copies its input, unless it makes a mistake.
class Copy final : public CustomLayer {
 public:
  std::string_view kind() const override { return "copy"; }
  Shape output(std::span<const Shape> inputs) const override {
    const Shape& x = inputs[0];
    if (is("output without N")) return {{'C', x['C']}};
    if (is("output without dimensions")) return {};
    if (is("output of one sample")) return {{'N', 1}, {'C', x['C']}, {'H', x['H']}, {'W', x['W']}};
    if (is("output with more samples")) return {{'N', 3 * x['N']}, {'C', x['C']}};
    if (is("output with an unknown dimension")) return {{'N', x['N']}, {'C', x['C']}, {'q', 3}};
    if (is("empty output")) return {{'N', x['N']}, {'C', 0}};
    if (is("output throws")) throw std::runtime_error("no shape fits");
    return x;
  }
  OperatorLayouts layouts(const LayoutRequest& request) const override {
    const Layout &y = request.output, dx = y.dual();
    const Layout other({{'N', 1}, {'C', 3}}, y.grid());
    if (is("no layouts")) return {};
    if (is("no layout of x")) return {.y = y, .dx = {dx}};
    if (is("no layout of dx")) return {.x = {y}, .y = y};
    if (is("a layout of a weight that it lacks")) return {.x = {y}, .y = y, .dx = {dx}, .w = {y}};
    if (is("a layout of another shape")) return {.x = {other}, .y = y, .dx = {dx}};
    if (is("a layout on another grid")) return {.x = {Layout(y.shape(), Grid())}, .y = y, .dx = {dx}};
    if (is("layouts throws")) throw 7;
    return {.x = {y}, .y = y, .dx = {dx}};
  }
  void forward(const KernelCall&, std::span<const Tensor> x, const Tensor& y) const override {
    if (is("forward throws an int")) throw 7;
    if (is("forward throws nothing to read")) throw std::runtime_error("");
    copy_box(x[0], y, y.box(), {});
  }
  void backward_data(const KernelCall& call, const Tensor& dy, std::span<const Tensor> dx) const override {
    if (is("backward uses what nobody saved")) copy_box(saved(call, 1), dx[0], dy.box(), {});
    copy_box(dy, dx[0], dy.box(), {});
  }
};

/// Images of noise, unless it makes a mistake.
class Noise final : public Dataset {
 public:
  Shape sample() const override { return {{'C', 1}, {'H', 8}, {'W', 8}}; }
  Index size() const override {
    return is("size of -5") ? -5 : is("size of 0") ? 0 : is("size of 2^62") ? Index{1} << 62 : 32;
  }
  Index classes() const override { return is("no classes") ? 0 : is("classes of -3") ? -3 : 4; }
  Shape target() const override { return is("target without read_target") ? Shape{{'H', 8}, {'W', 8}} : Shape(); }
  void hold(std::span<const Index>, const Box&) override {
    if (is("hold throws")) throw std::logic_error("nothing can be held");
  }
  void read(Index sample, const Box&, std::span<double> out) const override {
    if (is("read throws")) throw std::out_of_range("there is no such sample");
    if (is("read throws no exception")) throw Box();
    if (is("read wants all memory")) static_cast<void>(std::vector<char>(std::size_t{1} << 62));
    std::fill(out.begin(), out.end(), static_cast<double>(sample % 4));
  }
  std::int32_t label(Index sample) const override {
    if (is("label of 77") && sample == 21) return 77;
    if (is("label of -1") && sample == 21) return -1;
    return is("no label") ? Dataset::label(sample) : static_cast<std::int32_t>(sample % 4);
  }
};

std::unique_ptr<Dataset> open_noise(const std::string&, bool) {
  if (is("data factory returns null")) return nullptr;
  if (is("data factory throws")) throw "no data";
  return std::make_unique<Noise>();
}

Model net() {
  if (is("model throws")) throw std::runtime_error("no model today");
  if (is("model throws an int")) throw 7;
  Model m("net");
  if (is("empty model")) return m;
  auto t = m.input("image", {.channels = 1, .spatial = {8, 8}});
  t = m.conv("conv", t, {.filters = 4, .kernel = 3, .padding = 1});
  t = m.layer("copy", is("null operator") ? nullptr : std::make_shared<Copy>(), {t});
  if (is("no loss")) return m;
  if (is("loss in the middle")) t = m.softmax_cross_entropy("early", t);
  if (!is("target without read_target")) t = m.linear("fc", t, {.features = 4});
  m.softmax_cross_entropy("loss", t);
  return m;
}

/// A program without verbs, of which one rank fails while the others wait for it.
[[noreturn]] void fail_alone(int argc, char** argv) {
  const MpiSession session(argc, argv);
  if (session.world()->rank() == 1) fail("rank 1 alone fails");
  double sum = 0;
  session.world()->all_reduce(&sum, 1, DType::f64, ReduceOp::sum, {}).wait();
  throw std::logic_error("rank 1 took part");
}

}  // namespace

int main(int argc, char** argv) {
  if (is("nobody catches it")) fail_alone(argc, argv);
  register_dataset("noise", open_noise);
  if (is("data set registered twice")) register_dataset("noise", open_noise);
  if (is("no data factory")) register_dataset("more noise", nullptr);
  if (is("no model function")) return partita::main(argc, argv, std::function<Model()>());
  return partita::main(argc, argv, net);
}
