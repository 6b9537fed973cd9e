#pragma once

#include "partita/backend/backend.hpp"

#include <memory>

namespace partita {

/// A convolution of oneDNN, made for one problem, on dense arrays channels last.
class OneDnnConv {
 public:
  virtual ~OneDnnConv() = default;
  /// forward: (x, w, bias or null, y); backward_data: (dy, w, -, dx); backward_filter: (x, dy, -, dw). Only the last can
  /// add. `room` is for what is made on the way, on any thread.
  virtual void run(const float* first, const float* second, const float* bias, float* result, float* room,
                   Write write = Write::over) = 0;
  /// Elements of `room`.
  virtual Index room() const = 0;
};

/// Computes on channels last as they lie, the weights in a form of oneDNN's choice.
std::unique_ptr<OneDnnConv> make_nhwc_conv(const ConvProblem& problem);
/// Brings all operands into the blocked form of oneDNN's choice (channels padded to whole blocks), and the result back.
std::unique_ptr<OneDnnConv> make_blocked_conv(const ConvProblem& problem);
/// The same, with a quarter of the multiplications: 4x4 outputs of a 3x3 window are made of 6x6 products instead of 144 (Lavin
/// and Gray, Fast Algorithms for Convolutional Neural Networks, CVPR 2016, F(4x4, 3x3)).
std::unique_ptr<OneDnnConv> make_winograd_conv(const ConvProblem& problem);
/// False if oneDNN has only its slow generic kernel for channels last.
bool has_fast_nhwc(const ConvProblem& problem);
/// True if oneDNN has a kernel for it, in 1 GiB of room or less, which no memory limit counts: 2-D, 3x3, with stride and dilation 1
/// and one group, on processors with AVX-512.
bool has_winograd(const ConvProblem& problem);

}  // namespace partita
