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
  BareConv(const ConvShape& shape, long batch, ConvPass pass, Form form);
  void run();

 private:
  void add(int argument, const dnnl::memory::desc& desc);

  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  dnnl::primitive primitive_;
  std::unordered_map<int, dnnl::memory> args_;
};

}  // namespace partita::bench
