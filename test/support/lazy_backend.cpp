#include "test/support/lazy_backend.hpp"

#include "src/backend/gpu/functor_backend/attention.hpp"
#include "src/backend/gpu/functor_backend/convolution.hpp"
#include "src/backend/gpu/functor_backend/elementwise.hpp"
#include "src/backend/gpu/functor_backend/experts.hpp"
#include "src/backend/gpu/functor_backend/losses.hpp"
#include "src/backend/gpu/functor_backend/normalization.hpp"
#include "src/backend/gpu/functor_backend/pooling.hpp"
#include "src/backend/gpu/functor_backend/resampling.hpp"
#include "src/backend/gpu/functor_backend/sequences.hpp"
#include "src/backend/gpu/functor_backend/updates.hpp"
#include "test/support/host_launcher.hpp"

#include <functional>
#include <initializer_list>
#include <span>

namespace partita::test {
namespace {

/// Adds functors to a lazy device's streams. What they touch is declared beforehand. A verb that uses the scratch
/// memory counts as writing all of it.
class LazyLauncher {
 public:
  class Declared {
   public:
    explicit Declared(LazyDevice& its_device)
        : device(its_device), scratch(static_cast<std::byte*>(its_device.allocate(lazy_scratch_bytes))) {}
    ~Declared() { device.release(scratch); }
    Declared(const Declared&) = delete;
    Declared& operator=(const Declared&) = delete;

    LazyDevice& device;
    std::byte* scratch;
    std::string what{};
    std::vector<Access> accesses{};
  };

  explicit LazyLauncher(std::shared_ptr<Declared> declared) : declared_(std::move(declared)) {}

  std::span<std::byte> scratch() const { return {declared_->scratch, lazy_scratch_bytes}; }

  template <class F>
  void for_elements(const Stack& size, const F& f, Stream stream) const {
    enqueue(stream, [=] { HostLauncher().for_elements(size, f, {}); });
  }
  template <class F>
  void for_each(Index rows, Index columns, const F& f, Stream stream) const {
    enqueue(stream, [=] { HostLauncher().for_each(rows, columns, f, {}); });
  }
  template <class F>
  void for_ragged(const Lengths& lengths, const F& f, Stream stream) const {
    enqueue(stream, [=] { HostLauncher().for_ragged(lengths, f, {}); });
  }
  template <class A, std::size_t K, class Value, class Finish>
  void reduce(Index groups, Index length, const Value& value, const Finish& finish, Stream stream) const {
    enqueue(stream, [=] { HostLauncher().reduce<A, K>(groups, length, value, finish, {}); });
  }
  template <class A, std::size_t K, class Value, class Finish>
  void reduce_ragged(const Lengths& lengths, const Value& value, const Finish& finish, Stream stream) const {
    enqueue(stream, [=] { HostLauncher().reduce_ragged<A, K>(lengths, value, finish, {}); });
  }
  template <class A, std::size_t K, class Value, class Finish>
  void reduce_columns(const Stack& size, const Value& value, const Finish& finish, Stream stream) const {
    enqueue(stream, [=] { HostLauncher().reduce_columns<A, K>(size, value, finish, {}); });
  }
  template <class Value, class Finish>
  void largest(Index groups, Index length, const Value& value, const Finish& finish, Stream stream) const {
    enqueue(stream, [=] { HostLauncher().largest(groups, length, value, finish, {}); });
  }

 private:
  void enqueue(Stream stream, std::function<void()> run) const {
    declared_->device.enqueue(declared_->what, stream, declared_->accesses, std::move(run));
  }

  std::shared_ptr<Declared> declared_;
};

/// The kernels of a GPU, on a lazy device.
class LazyBackend final : public FunctorBackend<LazyLauncher> {
 public:
  using Kernels = FunctorBackend<LazyLauncher>;
  using Declared = LazyLauncher::Declared;
  explicit LazyBackend(LazyDevice& device) : LazyBackend(std::make_shared<Declared>(device)) {}
  Device& device() const override { return declared_->device; }
  Index workspace() const override { return static_cast<Index>(lazy_scratch_bytes); }
  bool fuses(const Activation&) const override { return true; }

  void conv_forward(std::span<const Window> windows, const Tensor& x, const Tensor& w, const Tensor& bias,
                    const Tensor& y, Stream stream) override {
    const Touching touching(*declared_, "conv_forward", {x, w, bias}, {y});
    Kernels::conv_forward(windows, x, w, bias, y, stream);
  }
  void conv_backward_data(std::span<const Window> windows, const Tensor& dy, const Tensor& w, const Tensor& dx,
                          Stream stream) override {
    const Touching touching(*declared_, "conv_backward_data", {dy, w}, {dx});
    Kernels::conv_backward_data(windows, dy, w, dx, stream);
  }
  void conv_backward_filter(std::span<const Window> windows, const Tensor& x, const Tensor& dy, const Tensor& dw,
                            Write write, Stream stream) override {
    const Touching touching(*declared_, "conv_backward_filter", {x, dy}, {dw});
    Kernels::conv_backward_filter(windows, x, dy, dw, write, stream);
  }
  void gemm(DType dtype, bool transpose_a, bool transpose_b, Index m, Index n, Index k, double alpha, const void* a,
            Index lda, const void* b, Index ldb, double beta, void* c, Index ldc, Stream stream) override {
    Touching touching(*declared_, "gemm", {}, {});
    touching.add_rows(dtype, a, transpose_a ? k : m, transpose_a ? m : k, lda, false);
    touching.add_rows(dtype, b, transpose_b ? n : k, transpose_b ? k : n, ldb, false);
    touching.add_rows(dtype, c, m, n, ldc, true);
    Kernels::gemm(dtype, transpose_a, transpose_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc, stream);
  }
  void pool_forward(const Pooling& pooling, const Tensor& x, const Tensor& y, const Tensor& picked, const Box& part,
                    Stream stream) override {
    const Touching touching(*declared_, "pool_forward", {x}, {y, picked});
    Kernels::pool_forward(pooling, x, y, picked, part, stream);
  }
  void pool_backward(const Pooling& pooling, const Tensor& dy, const Tensor& picked, const Tensor& dx, const Box& part,
                     Stream stream) override {
    const Touching touching(*declared_, "pool_backward", {dy, picked}, {dx});
    Kernels::pool_backward(pooling, dy, picked, dx, part, stream);
  }
  void channel_sums(const Tensor& x, Index groups, const Tensor& sums, Stream stream) override {
    const Touching touching(*declared_, "channel_sums", {x}, {sums});
    Kernels::channel_sums(x, groups, sums, stream);
  }
  void channel_statistics(const Tensor& x, double epsilon, const RunningStatistics& running, const Tensor& statistics,
                          Stream stream) override {
    const Touching touching(*declared_, "channel_statistics", {x}, {statistics, running.mean, running.variance});
    Kernels::channel_statistics(x, epsilon, running, statistics, stream);
  }
  void channel_gradient_sums(const Tensor& x, const MaskedGradient& dy, const Tensor& statistics, const Tensor& sums,
                             Stream stream) override {
    const Touching touching(*declared_, "channel_gradient_sums", {x, dy.dy, dy.y, statistics}, {sums});
    Kernels::channel_gradient_sums(x, dy, statistics, sums, stream);
  }
  void group_channels(const Tensor& sums, const Tensor& scale, const Tensor& grouped, Stream stream) override {
    const Touching touching(*declared_, "group_channels", {sums, scale}, {grouped});
    Kernels::group_channels(sums, scale, grouped, stream);
  }
  void norm_weight_gradients(const NormWeightGradients& to, Stream stream) override {
    const Touching touching(*declared_, "norm_weight_gradients", {to.sums}, {to.dscale, to.dshift});
    Kernels::norm_weight_gradients(to, stream);
  }
  void norm_moments(const Tensor& x, const Tensor& sums, Index own, Index count, const Tensor& moments,
                    Stream stream) override {
    const Touching touching(*declared_, "norm_moments", {x, sums}, {moments});
    Kernels::norm_moments(x, sums, own, count, moments, stream);
  }
  void norm_statistics(const Tensor& moments, Index count, double epsilon, const RunningStatistics& running,
                       const Tensor& statistics, Stream stream) override {
    const Touching touching(*declared_, "norm_statistics", {moments}, {statistics, running.mean, running.variance});
    Kernels::norm_statistics(moments, count, epsilon, running, statistics, stream);
  }
  void given_statistics(const Tensor& mean, const Tensor& variance, double epsilon, const Tensor& statistics,
                        Stream stream) override {
    const Touching touching(*declared_, "given_statistics", {mean, variance}, {statistics});
    Kernels::given_statistics(mean, variance, epsilon, statistics, stream);
  }
  void norm_forward(const Tensor& x, const Tensor& statistics, const Tensor& scale, const Tensor& shift, bool relu,
                    const Tensor& y, Stream stream) override {
    const Touching touching(*declared_, "norm_forward", {x, statistics, scale, shift}, {y});
    Kernels::norm_forward(x, statistics, scale, shift, relu, y, stream);
  }
  void norm_backward(const Tensor& x, const MaskedGradient& dy, const Tensor& statistics, const Tensor& sums,
                     bool scaled, const Tensor& scale, Index count, const Tensor& dx,
                     const NormWeightGradients& weights, Stream stream) override {
    const Touching touching(*declared_, "norm_backward", {x, dy.dy, dy.y, statistics, sums, scale, weights.sums},
                            {dx, weights.dscale, weights.dshift});
    Kernels::norm_backward(x, dy, statistics, sums, scaled, scale, count, dx, weights, stream);
  }
  void spatial_sum(const Tensor& x, double scale, const Tensor& y, Stream stream) override {
    const Touching touching(*declared_, "spatial_sum", {x}, {y});
    Kernels::spatial_sum(x, scale, y, stream);
  }
  void spatial_spread(const Tensor& dy, double scale, const Tensor& dx, Stream stream) override {
    const Touching touching(*declared_, "spatial_spread", {dy}, {dx});
    Kernels::spatial_spread(dy, scale, dx, stream);
  }
  void resample_forward(std::span<const Resampling> dims, const Tensor& x, const Tensor& y, Stream stream) override {
    const Touching touching(*declared_, "resample_forward", {x}, {y});
    Kernels::resample_forward(dims, x, y, stream);
  }
  void resample_backward(std::span<const Resampling> dims, const Tensor& dy, const Tensor& dx, Stream stream) override {
    const Touching touching(*declared_, "resample_backward", {dy}, {dx});
    Kernels::resample_backward(dims, dy, dx, stream);
  }
  void space_to_depth(std::span<const Index> block, const Tensor& x, const Tensor& y, Stream stream) override {
    const Touching touching(*declared_, "space_to_depth", {x}, {y});
    Kernels::space_to_depth(block, x, y, stream);
  }
  void depth_to_space(std::span<const Index> block, const Tensor& dy, const Tensor& dx, Stream stream) override {
    const Touching touching(*declared_, "depth_to_space", {dy}, {dx});
    Kernels::depth_to_space(block, dy, dx, stream);
  }
  void attention_forward(const HeadShape& shape, const Heads& q, const Heads& k, const Heads& v, const Tensor& y,
                         const Tensor& lse, Write write, Stream stream) override {
    const Touching touching(*declared_, "attention_forward", {shape.segments, shape.dropout.step, q.x, k.x, v.x},
                            {y, lse});
    Kernels::attention_forward(shape, q, k, v, y, lse, write, stream);
  }
  void attention_merge(const Tensor& more_y, const Tensor& more_lse, const Tensor& y, const Tensor& lse,
                       Stream stream) override {
    const Touching touching(*declared_, "attention_merge", {more_y, more_lse, y, lse}, {y, lse});
    Kernels::attention_merge(more_y, more_lse, y, lse, stream);
  }
  void attention_backward(const HeadShape& shape, const Heads& q, const Heads& k, const Heads& v, const Tensor& y,
                          const Tensor& dy, const Tensor& lse, const Heads& dq, const Heads& dk, const Heads& dv,
                          Write write, Stream stream) override {
    const Touching touching(*declared_, "attention_backward",
                            {shape.segments, shape.dropout.step, q.x, k.x, v.x, y, dy, lse}, {dq.x, dk.x, dv.x});
    Kernels::attention_backward(shape, q, k, v, y, dy, lse, dq, dk, dv, write, stream);
  }
  void row_norm_forward(const RowNorm& norm, const Tensor& x, const Tensor& scale, const Tensor& shift, const Tensor& y,
                        Stream stream) override {
    const Touching touching(*declared_, "row_norm_forward", {x, scale, shift}, {y}, true);
    Kernels::row_norm_forward(norm, x, scale, shift, y, stream);
  }
  void row_norm_backward(const RowNorm& norm, const Tensor& x, const Tensor& dy, const Tensor& scale,
                         const Tensor& added, const Tensor& dx, const RowNormWeights& weights, Stream stream) override {
    const Touching touching(*declared_, "row_norm_backward", {x, dy, scale, added},
                            {dx, weights.dscale, weights.dshift}, true);
    Kernels::row_norm_backward(norm, x, dy, scale, added, dx, weights, stream);
  }
  void embed_forward(const Tensor& tokens, Index vocabulary, const Tensor& table, double scale, const Tensor& y,
                     Stream stream) override {
    const Touching touching(*declared_, "embed_forward", {tokens, table}, {y});
    Kernels::embed_forward(tokens, vocabulary, table, scale, y, stream);
  }
  void embed_backward(const Tensor& tokens, const Tensor& dy, double scale, const Tensor& dtable, Write write,
                      Stream stream) override {
    const Touching touching(*declared_, "embed_backward", {tokens, dy}, {dtable}, true);
    Kernels::embed_backward(tokens, dy, scale, dtable, write, stream);
  }
  void interact_forward(const Tensor& vectors, const Tensor& dense, const Tensor& y, Stream stream) override {
    const Touching touching(*declared_, "interact_forward", {vectors, dense}, {y});
    Kernels::interact_forward(vectors, dense, y, stream);
  }
  void interact_backward(const Tensor& vectors, const Tensor& dense, const Tensor& dy, const Tensor& dvectors,
                         const Tensor& ddense, Stream stream) override {
    const Touching touching(*declared_, "interact_backward", {vectors, dense, dy}, {dvectors, ddense});
    Kernels::interact_backward(vectors, dense, dy, dvectors, ddense, stream);
  }
  void softmax_heads(Index heads, bool causal, const Tensor& segments, const Tensor& x, Stream stream) override {
    const Touching touching(*declared_, "softmax_heads", {segments, x}, {x}, true);
    Kernels::softmax_heads(heads, causal, segments, x, stream);
  }
  void softmax_heads_backward(Index heads, double scale, const Tensor& y, const Tensor& dropped, const Tensor& dx,
                              Stream stream) override {
    const Touching touching(*declared_, "softmax_heads_backward", {y, dropped, dx}, {dx}, true);
    Kernels::softmax_heads_backward(heads, scale, y, dropped, dx, stream);
  }
  void gate_forward(const Activation& f, const Tensor& x, const Tensor& y, Stream stream) override {
    const Touching touching(*declared_, "gate_forward", {x}, {y});
    Kernels::gate_forward(f, x, y, stream);
  }
  void gate_backward(const Activation& f, const Tensor& x, const Tensor& dy, const Tensor& dx, Stream stream) override {
    const Touching touching(*declared_, "gate_backward", {x, dy}, {dx});
    Kernels::gate_backward(f, x, dy, dx, stream);
  }
  void rotate(const Rotation& rotation, const Tensor& x, const Tensor& y, Stream stream) override {
    const Touching touching(*declared_, "rotate", {x}, {y});
    Kernels::rotate(rotation, x, y, stream);
  }
  void route(const Routing& routing, const Tensor& scores, const Tensor& routes, const Tensor& gates,
             Stream stream) override {
    const Touching touching(*declared_, "route", {scores}, {routes, gates});
    Kernels::route(routing, scores, routes, gates, stream);
  }
  void dispatch_forward(const Routing& routing, const Tensor& routes, const Tensor& x, const Tensor& y,
                        Stream stream) override {
    const Touching touching(*declared_, "dispatch_forward", {routes, x}, {y});
    Kernels::dispatch_forward(routing, routes, x, y, stream);
  }
  void dispatch_backward(const Routing& routing, const Tensor& routes, const Tensor& dy, const Tensor& dx,
                         Stream stream) override {
    const Touching touching(*declared_, "dispatch_backward", {routes, dy}, {dx});
    Kernels::dispatch_backward(routing, routes, dy, dx, stream);
  }
  void combine_forward(const Routing& routing, const Tensor& routes, const Tensor& gates, const Tensor& x,
                       const Tensor& y, Stream stream) override {
    const Touching touching(*declared_, "combine_forward", {routes, gates, x}, {y});
    Kernels::combine_forward(routing, routes, gates, x, y, stream);
  }
  void combine_backward(const Routing& routing, const Tensor& routes, const Tensor& gates, const Tensor& scores,
                        const Tensor& x, const Tensor& dy, double balance, const Tensor& dx, const Tensor& dscores,
                        Stream stream) override {
    const Touching touching(*declared_, "combine_backward", {routes, gates, scores, x, dy}, {dx, dscores}, true);
    Kernels::combine_backward(routing, routes, gates, scores, x, dy, balance, dx, dscores, stream);
  }
  void bias_forward(const Tensor& bias, const Tensor& y, Stream stream) override {
    const Touching touching(*declared_, "bias_forward", {bias}, {y});
    Kernels::bias_forward(bias, y, stream);
  }
  void bias_backward(const Tensor& dy, const Tensor& db, Write write, Stream stream) override {
    const Touching touching(*declared_, "bias_backward", {dy}, {db});
    Kernels::bias_backward(dy, db, write, stream);
  }
  void sum(const Tensor& a, const Tensor& b, bool relu, const Tensor& y, Stream stream) override {
    const Touching touching(*declared_, "sum", {a, b}, {y});
    Kernels::sum(a, b, relu, y, stream);
  }
  void activation_forward(const Activation& f, const Tensor& x, const Tensor& y, Stream stream) override {
    const Touching touching(*declared_, "activation_forward", {x}, {y});
    Kernels::activation_forward(f, x, y, stream);
  }
  void activation_backward(const Activation& f, const Tensor& kept, const Tensor& dy, const Tensor& dx,
                           Stream stream) override {
    const Touching touching(*declared_, "activation_backward", {kept, dy}, {dx});
    Kernels::activation_backward(f, kept, dy, dx, stream);
  }
  void dropout(double rate, const Random& random, const Tensor& step, Index first, const Shape& whole, const Tensor& x,
               const Tensor& added, const Tensor& y, Stream stream) override {
    const Touching touching(*declared_, "dropout", {x, added, step}, {y});
    Kernels::dropout(rate, random, step, first, whole, x, added, y, stream);
  }
  void write_numbers(std::span<const double> values, const Tensor& x, Stream stream) override {
    const Touching touching(*declared_, "write_numbers", {}, {x});
    Kernels::write_numbers(values, x, stream);
  }
  void axpby(double a, const Tensor& x, double b, const Tensor& y, Stream stream) override {
    const Touching touching(*declared_, "axpby", {x}, {y});
    Kernels::axpby(a, x, b, y, stream);
  }
  void add_squares(const Tensor& x, const Tensor& sum, Stream stream) override {
    const Touching touching(*declared_, "add_squares", {x, sum}, {sum});
    Kernels::add_squares(x, sum, stream);
  }
  void cross_entropy_maxima(const Tensor& x, const Labels& labels, const Tensor& numbers, Stream stream) override {
    const Touching touching(*declared_, "cross_entropy_maxima", {x}, {numbers});
    Kernels::cross_entropy_maxima(x, labels, numbers, stream);
  }
  void cross_entropy_sums(const Tensor& x, const Labels& labels, const Tensor& numbers, Stream stream) override {
    const Touching touching(*declared_, "cross_entropy_sums", {x, labels.of, labels.weights, numbers}, {numbers});
    Kernels::cross_entropy_sums(x, labels, numbers, stream);
  }
  void cross_entropy_loss(const Labels& labels, const Tensor& numbers, double count, const Tensor& result,
                          Stream stream) override {
    const Touching touching(*declared_, "cross_entropy_loss", {labels.of, labels.weights, numbers, result}, {result});
    Kernels::cross_entropy_loss(labels, numbers, count, result, stream);
  }
  void cross_entropy_backward(const Tensor& x, const Labels& labels, const Tensor& numbers, double scale,
                              const Tensor& dx, Stream stream) override {
    const Touching touching(*declared_, "cross_entropy_backward", {x, labels.of, labels.weights, numbers}, {dx});
    Kernels::cross_entropy_backward(x, labels, numbers, scale, dx, stream);
  }
  void overlap_forward(const Tensor& x, const Labels& labels, const Tensor& sums, const Tensor& result,
                       Stream stream) override {
    const Touching touching(*declared_, "overlap_forward", {x, labels.of}, {sums, result}, true);
    Kernels::overlap_forward(x, labels, sums, result, stream);
  }
  void overlap_loss(const Tensor& sums, double count, double scale, const Tensor& result, Stream stream) override {
    const Touching touching(*declared_, "overlap_loss", {}, {sums, result});
    Kernels::overlap_loss(sums, count, scale, result, stream);
  }
  void overlap_backward(const Tensor& x, const Labels& labels, const Tensor& derivatives, const Tensor& dx,
                        Stream stream) override {
    const Touching touching(*declared_, "overlap_backward", {x, labels.of, derivatives}, {dx}, true);
    Kernels::overlap_backward(x, labels, derivatives, dx, stream);
  }
  void difference_forward(bool absolute, const Tensor& x, const Tensor& target, double count, const Tensor& result,
                          Stream stream) override {
    const Touching touching(*declared_, "difference_forward", {x, target}, {result});
    Kernels::difference_forward(absolute, x, target, count, result, stream);
  }
  void difference_backward(bool absolute, const Tensor& x, const Tensor& target, double scale, const Tensor& dx,
                           Stream stream) override {
    const Touching touching(*declared_, "difference_backward", {x, target}, {dx});
    Kernels::difference_backward(absolute, x, target, scale, dx, stream);
  }
  void update_norms(const Optimizer& optimizer, StepRate at, std::span<const WeightPiece> pieces, const Tensor& squares,
                    Stream stream) override {
    Touching touching(*declared_, "update_norms", {}, {squares});
    touching.add_pieces(pieces);
    Kernels::update_norms(optimizer, at, pieces, squares, stream);
  }
  void update(const Optimizer& optimizer, StepRate at, std::span<const WeightPiece> pieces, const Tensor& squares,
              Stream stream) override {
    Touching touching(*declared_, "update", {squares}, {});
    touching.add_pieces(pieces);
    Kernels::update(optimizer, at, pieces, squares, stream);
  }

 private:
  explicit LazyBackend(const std::shared_ptr<Declared>& declared)
      : Kernels(LazyLauncher(declared)), declared_(declared) {}

  /// Declares what the functors of a verb touch.
  class Touching {
   public:
    using Tensors = std::initializer_list<std::reference_wrapper<const Tensor>>;
    Touching(Declared& declared, const char* what, Tensors reads, Tensors writes, bool scratch = false)
        : declared_(declared) {
      declared_.what = what;
      if (scratch) add(declared_.scratch, lazy_scratch_bytes, true);
      for (const Tensor& each : reads) add(each.data(), each.bytes(), false);
      for (const Tensor& each : writes) add(each.data(), each.bytes(), true);
    }
    ~Touching() { declared_.accesses.clear(); }
    Touching(const Touching&) = delete;
    Touching& operator=(const Touching&) = delete;

    void add_rows(DType dtype, const void* first, Index rows, Index columns, Index step, bool writes) {
      for (Index row = 0; row < rows; ++row)
        add(static_cast<const std::byte*>(first) + row * step * size_of(dtype), columns * size_of(dtype), writes);
    }
    void add_pieces(std::span<const WeightPiece> pieces) {
      for (const WeightPiece& piece : pieces) {
        const Index bytes = piece.count * size_of(piece.dtype);
        add(piece.dw, bytes, false);
        for (const std::byte* each : {piece.w, piece.state[0], piece.state[1]}) add(each, bytes, true);
        add(piece.rounded, piece.count * size_of(piece.rounded_type), true);
      }
    }

   private:
    void add(const void* data, Index bytes, bool writes) {
      if (data == nullptr) return;
      declared_.accesses.push_back(range(data, static_cast<std::size_t>(bytes), writes));
    }
    Declared& declared_;
  };

  std::shared_ptr<Declared> declared_;
};

}  // namespace

std::unique_ptr<Backend> make_lazy_backend(LazyDevice& device) { return std::make_unique<LazyBackend>(device); }

Processor lazy_processor(Communicator& threads, LazyDevice& device) {
  const auto ranks = [&] { return make_device_threads(threads, device, std::chrono::seconds(60), lazy_room); };
  return {device, ranks(), ranks(), make_lazy_backend(device)};
}

Processor staged_processor(Communicator& threads, LazyDevice& device) {
  constexpr Index piece = 200;  // bytes, so few that messages travel in pieces
  return {device, make_staged(threads, device, piece), make_staged(threads, device, piece), make_lazy_backend(device)};
}

}  // namespace partita::test
