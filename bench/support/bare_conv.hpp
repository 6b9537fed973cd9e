#pragma once

// One convolution with bare oneDNN, on operands in a given form.

#include "partita/backend/conv_problem.hpp"

#include <oneapi/dnnl/dnnl.hpp>

#include <unordered_map>

namespace partita::bench {

/// A square convolution of x[N C S S] with w[F C K K]. The padding keeps the size if the stride is 1.
struct ConvShape {
  long channels, filters, kernel, stride, size;
  long pad() const { return kernel / 2; }
  long out() const { return (size + 2 * pad() - kernel) / stride + 1; }
};

/// The form of the activations. oneDNN chooses the form of the weights.
enum class Form { blocked, channels_last };

class BareConv {
 public:
  /// With `plain_weights`, each run also reorders the weights from F H W C, or their gradient to F H W C.
  BareConv(const ConvShape& shape, long batch, ConvPass pass, Form form, bool plain_weights = false);
  void run();

 private:
  void add(int argument, const dnnl::memory::desc& desc);
  void reorder_weights(const ConvShape& shape, ConvPass pass);

  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  dnnl::primitive primitive_;
  std::unordered_map<int, dnnl::memory> args_;
  dnnl::primitive reorder_;
  std::unordered_map<int, dnnl::memory> reorder_args_;
  bool reorders_first_ = true;
};

}  // namespace partita::bench
