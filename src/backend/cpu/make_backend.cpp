#include "partita/base/error.hpp"
#include "src/backend/cpu/reference.hpp"

#include <algorithm>

namespace partita {

namespace {

#if PARTITA_HAVE_ONEDNN
constexpr bool have_onednn = true;
#else
constexpr bool have_onednn = false;
#endif

}  // namespace

std::unique_ptr<Backend> make_reference_backend() { return std::make_unique<ReferenceBackend>(); }

std::unique_ptr<Backend> make_backend(std::string_view name, DType dtype, int threads) {
  const std::vector<std::string> names{"auto", "reference", "onednn"};
  if (std::find(names.begin(), names.end(), name) == names.end())
    fail("there is no backend '{}'; there are {}{}", name, quoted_list(names), did_you_mean(name, names));
  const bool fast = name == "onednn" || (name == "auto" && have_onednn && dtype == DType::f32);
  auto backend = fast ? make_onednn_backend(threads) : make_reference_backend();
  backend->check(dtype);
  return backend;
}

}  // namespace partita
