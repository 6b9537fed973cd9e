#include "src/backend/common/dispatch_method.hpp"
#include "src/backend/cpu/reference.hpp"

namespace partita {

namespace {

/// Calls f(T{}) with the type of the weights, f64 or f32.
template <class F>
void dispatch_master(DType dtype, F&& f) {
  dtype == DType::f64 ? f(double{}) : f(float{});
}

}  // namespace

void ReferenceBackend::update_norms(const Optimizer& optimizer, StepRate at, std::span<const WeightPiece> pieces,
                                    const Tensor& squares, Stream) {
  double* sums = squares.as<double>();
  for (const WeightPiece& piece : pieces) {
    Squares sum;
    dispatch_master(piece.dtype, [&](auto t) {
      const UpdateRule<decltype(t)> rule(optimizer, at);
      const auto arrays = arrays_of(piece, rule);
      dispatch_method(optimizer.method, [&](auto method) {
        for (Index i = 0; i < piece.count; ++i) {
          const Squares one = rule.template norms<method()>(arrays[i]);
          sum.w += one.w;
          sum.direction += one.direction;
        }
      });
    });
    *sums++ = sum.w;
    *sums++ = sum.direction;
  }
}

void ReferenceBackend::update(const Optimizer& optimizer, StepRate at, std::span<const WeightPiece> pieces,
                              const Tensor& squares, Stream) {
  for (std::size_t e = 0; e < pieces.size(); ++e) {
    const WeightPiece& piece = pieces[e];
    const double* sums = squares ? squares.as<double>() + 2 * e : nullptr;
    const double scale = sums != nullptr && piece.decays ? update_scale(optimizer, {sums[0], sums[1]}) : 1;
    dispatch_master(piece.dtype, [&](auto t) {
      using T = decltype(t);
      const UpdateRule<T> rule(optimizer, at);
      const auto arrays = arrays_of(piece, rule);
      dispatch_method(optimizer.method, [&](auto method) {
        for (Index i = 0; i < piece.count; ++i) rule.template apply<method()>(arrays[i], static_cast<T>(scale));
        for (Index i = 0; i < piece.count; ++i) arrays.round(i);
      });
    });
  }
}

}  // namespace partita
