// A program with a small model of its own, which the environment variable TRIAL names, for cases that no built-in model
// shows. With SETTINGS=C or SETTINGS=C++ it takes over the language settings of the user, as toolkits for windows do.
#include "partita/partita.hpp"

#include <clocale>
#include <cstdlib>
#include <locale>

using namespace partita;

namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

/// A convolution whose stride and dilation are both above 1, forward or transposed.
Model dilated(bool transposed) {
  Model m("dilated");
  auto t = m.input("image", {.channels = 1, .spatial = {32, 32}});
  t = m.conv("c1", t, {.filters = 4, .kernel = 3, .padding = 1});
  if (transposed)
    t = m.conv_transpose("c2", t, {.filters = 4, .kernel = 3, .stride = 2, .padding = 1, .dilation = 2});
  else
    t = m.conv("c2", t, {.filters = 4, .kernel = 3, .stride = 2, .padding = 2, .dilation = 2});
  t = m.linear("fc", t, {.features = 3});
  m.softmax_cross_entropy("loss", t);
  return m;
}

/// y is 0 at the first step, so the loss is the mean of the targets.
Model regression() {
  Model m("regression");
  m.mean_absolute_error("loss", m.linear("fc", m.input("x", {.channels = 4, .spatial = {}}), {.features = 1}));
  return m;
}

Model tiny() {
  Model m("tiny");
  auto t = m.input("x", {.channels = 1, .spatial = {8, 8}});
  t = m.conv("conv", t, {.filters = 4, .kernel = 3, .padding = 1});
  t = m.linear("fc", t, {.features = 3});
  m.softmax_cross_entropy("loss", t);
  return m;
}

Model chosen() {
  const std::string name = variable("TRIAL");
  return name == "regression" ? regression() : name == "tiny" ? tiny() : dilated(name == "transposed");
}

}  // namespace

int main(int argc, char** argv) {
  if (!variable("SETTINGS").empty()) std::setlocale(LC_ALL, "");
  if (variable("SETTINGS") == "C++") std::locale::global(std::locale(""));
  return partita::main(argc, argv, chosen);
}
