#pragma once

#include "partita/model/operator.hpp"
#include "partita/train/kernels/kernel.hpp"

#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace partita {

/// A layer of the user's own, as one class. The functions of Operator say what the layer is and how it lies on a grid;
/// those of Kernel compute one rank's part of it. Model::layer() takes a pointer to it:
///
///     class Sine final : public CustomLayer { ... };
///     t = model.layer("sine", std::make_shared<Sine>(), {t});
///
/// One object serves all ranks, microbatches and steps of a process, so it has no state that changes: what forward
/// leaves for backward goes through save() and saved(), or through state().
///
/// A layer with windows names its halos in OperatorLayouts::x_halo and, if it has one, dy_halo. Its forward calls
/// with_halo(), and its backward_data calls dy_with_halo() or, without a dy_halo, return_halo(). halo_overlap() says
/// which of these halos travel while it computes. What it allocates for its borders, held_ahead() counts.
class CustomLayer : public Operator, public Kernel {
 public:
  /// Returns true if the layer computes on tensors in the memory of a device: by functions of call.rank.backend, by
  /// functions of tensors that take a stream, or by kernels of its own on call.rank.stream. A trainer on a device
  /// refuses layers that return false, as all do that access elements. Steps that repeat themselves may be launched as
  /// graphs, without a call of the layer: so the CPU does not wait in it, and what changes from step to step is read
  /// from tensors (call.step), not passed to kernels as numbers.
  virtual bool runs_on_devices() const { return false; }
  /// False, since the layer may have saved its output without telling keeps().
  bool output_may_be_overwritten() const final { return false; }
  /// Starts the exchange of dy's halo, if the layer has one and dx is needed. The exchange goes on during
  /// backward_filter if halo_overlap().dy is true, and ends here if not.
  void start_backward(const KernelCall& call, const Tensor& dy) const override;

 protected:
  /// Keeps tensors until the backward of the same microbatch. Operator::keeps() tells the memory model about them. A
  /// second call replaces the tensors of the first.
  static void save(const KernelCall& call, std::vector<Tensor> tensors);
  /// Returns the i-th tensor that save() kept.
  static const Tensor& saved(const KernelCall& call, std::size_t i = 0);
  /// Returns the layer's further state of this microbatch, of the type S; the first call creates it. It is independent
  /// of save(). Throws Error if the state has another type.
  template <class S>
  static S& state(const KernelCall& call) {
    const std::unique_ptr<Saved>& kept = further_state(call, [] { return std::make_unique<Holder<S>>(); });
    if (auto* holder = dynamic_cast<Holder<S>*>(kept.get())) return holder->value;
    fail_state(call);
  }

  /// Computes the outputs `y` from `x` and its halo: calls compute(from, part), which computes the outputs in the box
  /// `part` of y from the tensor `from`. If halo_overlap().x is true, the interior is computed while the halo travels.
  /// Returns x with its halo, for save().
  /// @pre layouts() named an x_halo, with these windows.
  static Tensor with_halo(const KernelCall& call, std::span<const Window> windows, const Tensor& x, const Tensor& y,
                          const std::function<void(const Tensor& from, const Box& part)>& compute);
  /// Waits for the halo of dy and returns dy with it.
  /// @pre layouts() named a dy_halo.
  static const Tensor& dy_with_halo(const KernelCall& call);
  /// Computes dx of a layer that has no dy_halo: calls compute(part, to), which adds to the tensor `to` what the
  /// gradients in the box `part` of dy contribute. What belongs to other ranks is sent back to them and added there. If
  /// halo_overlap().dx is true, it travels while the interior is computed.
  /// @pre layouts() named an x_halo, with these windows.
  static void return_halo(const KernelCall& call, std::span<const Window> windows, const Tensor& dy, const Tensor& dx,
                          const std::function<void(const Box& part, const Tensor& to)>& compute);

 private:
  template <class S>
  struct Holder final : Saved {
    S value{};
  };
  static const std::unique_ptr<Saved>& further_state(const KernelCall& call,
                                                     const std::function<std::unique_ptr<Saved>()>& make);
  [[noreturn]] static void fail_state(const KernelCall& call);
};

}  // namespace partita
