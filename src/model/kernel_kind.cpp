#include "partita/model/kernel_kind.hpp"

#include "partita/base/error.hpp"

namespace partita {

std::string_view name(KernelKind kind) {
  switch (kind) {
    case KernelKind::others: return "others";
    case KernelKind::conv: return "conv";
    case KernelKind::product: return "product";
  }
  broken("unknown kind of kernels");
}

}  // namespace partita
