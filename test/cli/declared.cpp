// A program that declares its model and its strategy in C++; declared.py runs its verbs. The environment variable
// MISTAKE names a mistake that it makes.
#include "partita/partita.hpp"

#include <cstdlib>

using namespace partita;

namespace {

bool is(std::string_view name) {
  const char* mistake = std::getenv("MISTAKE");
  return mistake != nullptr && name == mistake;
}

Model net() {
  Model m("declared-net");
  auto t = m.input("image", {.channels = 1, .spatial = {10, 10}});
  t = m.conv("conv", t, {.filters = 4, .kernel = 3, .padding = 1});
  t = m.relu("relu", t);
  t = m.linear("fc", t, {.features = 3});
  m.softmax_cross_entropy("loss", t);
  return m;
}

Strategy rows_and_samples() {
  Strategy s(is("grid") ? "data=2 y=" : "data=2 y=2");
  s.layer(is("rule") ? "nonv" : "conv", {.output = "N@data H@y"}).layer("fc", {.output = "N@data"});
  return s;
}

}  // namespace

int main(int argc, char** argv) {
  if (is("no function")) return partita::main(argc, argv, net, {});
  return partita::main(argc, argv, net, rows_and_samples);
}
