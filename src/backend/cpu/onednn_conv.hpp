#pragma once

#include "partita/backend/backend.hpp"

#include <memory>

namespace partita {

/// A oneDNN convolution, made for one problem, on dense arrays in channels-last format.
class OneDnnConv {
 public:
  virtual ~OneDnnConv() = default;
  /// The arguments are, forward: (x, w, bias or null, y); backward_data: (dy, w, null, dx); backward_filter:
  /// (x, dy, null, dw). Only backward_filter can add to its result. `room` is scratch memory of room() elements. May be
  /// called on any thread.
  virtual void run(const float* first, const float* second, const float* bias, float* result, float* room,
                   Write write = Write::over) = 0;
  /// The number of elements of scratch memory that `run` needs.
  virtual Index room() const = 0;
};

/// Computes directly on channels-last activations. oneDNN chooses the format of the weights.
std::unique_ptr<OneDnnConv> make_nhwc_conv(const ConvProblem& problem);
/// Converts all operands to the blocked format of oneDNN's choice (channels padded to whole blocks), and the result
/// back.
std::unique_ptr<OneDnnConv> make_blocked_conv(const ConvProblem& problem);
/// As make_blocked_conv, with Winograd's algorithm, which needs a quarter of the multiplications: it computes 4x4
/// outputs of a 3x3 window with 36 products (6x6) instead of 144. Source: Lavin and Gray, Fast Algorithms for
/// Convolutional Neural Networks, CVPR 2016, F(4x4, 3x3).
std::unique_ptr<OneDnnConv> make_winograd_conv(const ConvProblem& problem);
/// Returns false if oneDNN has only its slow generic kernel for channels-last activations.
bool has_fast_nhwc(const ConvProblem& problem);
/// Returns true if oneDNN has a Winograd kernel for the problem that needs at most 1 GiB of scratch memory, which no
/// memory limit counts. Such kernels exist for 2-D 3x3 windows with stride 1, dilation 1 and one group, on processors
/// with AVX-512.
bool has_winograd(const ConvProblem& problem);

}  // namespace partita
