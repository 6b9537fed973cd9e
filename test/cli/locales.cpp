// A program that sets a locale, as programs with a graphical user interface do. locales.py runs it.
#include "partita/partita.hpp"

#include <clocale>
#include <cstdlib>
#include <locale>

using namespace partita;

namespace {

Model tiny() {
  Model m("tiny");
  Value t = m.input("x", {.channels = 1, .spatial = {8, 8}});
  t = m.conv("conv", t, {.filters = 4, .kernel = 3, .padding = 1});
  t = m.linear("fc", t, {.features = 3});
  m.softmax_cross_entropy("loss", t);
  return m;
}

}  // namespace

int main(int argc, char** argv) {
  std::setlocale(LC_ALL, "");
  if (std::getenv("CXX_LOCALE") != nullptr) std::locale::global(std::locale(""));
  return partita::main(argc, argv, tiny);
}
