#pragma once

// oneDNN with nothing around it: one convolution, its operands in the form that is asked for.

#include "partita/backend/conv_problem.hpp"

#include <oneapi/dnnl/dnnl.hpp>

#include <unordered_map>

namespace partita::bench {

/// A square convolution of x[N C S S] with w[F C K K]; padding keeps the size where the stride is 1.
struct ConvShape {
  long channels, filters, kernel, stride, size;
  long pad() const { return kernel / 2; }
  long out() const { return (size + 2 * pad() - kernel) / stride + 1; }
};

/// Of activations; weights are in the form that oneDNN chooses for it.
enum class Form { blocked, channels_last };

class BareConv {
 public:
  /// With plain weights each run also reorders them from F H W C, or their gradient to it.
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
