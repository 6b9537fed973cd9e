#include "partita/base/activation.hpp"

#include "partita/base/error.hpp"

namespace partita {

std::string_view name(Activation::Kind kind) {
  switch (kind) {
    case Activation::Kind::relu: return "relu";
    case Activation::Kind::leaky_relu: return "leaky_relu";
    case Activation::Kind::elu: return "elu";
    case Activation::Kind::sigmoid: return "sigmoid";
    case Activation::Kind::tanh: return "tanh";
    case Activation::Kind::gelu: return "gelu";
    case Activation::Kind::silu: return "silu";
  }
  broken("unknown activation");
}

}  // namespace partita
