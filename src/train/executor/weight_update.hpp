#pragma once

#include "partita/comm/counting.hpp"
#include "src/train/executor/layer_runner.hpp"

#include <vector>

namespace partita {

class Inspector;

/// Sums the gradients of a step's buckets and updates their weights:
///
///     replicated    dw = all_reduce(dw over axes);            w = update(w, dw)
///     sharded       dw[share] = reduce_scatter(dw over axes); w[share] = update(w[share], dw[share]);
///                   w = all_gather(w[share])
///
/// If a plan has two replicas, dw and running statistics are then added over both replicas.
/// A bucket's sum starts when backward has computed its last gradient. It runs while backward continues.
class WeightUpdate {
 public:
  WeightUpdate(const RunContext& context, Stream stream);

  /// Starts the sums of the buckets that `layer` completes.
  void start(int layer);
  /// Starts all sums of a group whose replica ran no microbatch, with zero gradients.
  void start_with_zeros(int group);
  /// Advances all sums without waiting.
  void progress();
  /// Waits for all sums that were started, without releasing their buffers, so that the memory of a step does not
  /// depend on whether sums overlap with backward.
  void wait();
  /// Waits for all sums.
  void finish();
  /// Adds the gradients and running statistics of a group's two replicas.
  void add_replicas(int group);
  /// Adds the gradients of both copies of a table. `layer` is the one with this rank's copy, or with the first of them.
  void add_copies(int layer);
  /// Sets a layer's running statistics to zero.
  void clear_statistics(int layer);
  /// Multiplies the gradients by 1/scale, in the master dtype, before they are summed. `scale` is a power of two.
  void unscale(double scale) { unscale_ = 1 / scale; }
  /// After the sums: adds the squares of this rank's part of them to the f64 number `squares`. Of equal sums, each rank
  /// takes another part, so that all ranks of all stages together add each square once.
  void add_squares(const Tensor& squares) const;
  /// Multiplies all sums.
  void scale(double factor) const;
  /// Shows the sums to an inspector.
  void show_sums(Inspector& inspector) const;
  /// The sums, and the statistics that were kept: what the updates read besides parameters.
  const std::vector<Tensor>& sums() const { return sums_; }
  const std::vector<Tensor>& statistics() const { return statistics_; }
  /// Goes on from sums and statistics that a graph has computed.
  void resume(std::vector<Tensor> sums, std::vector<Tensor> statistics) {
    sums_ = std::move(sums);
    statistics_ = std::move(statistics);
  }
  /// Ends a step without an update.
  void drop();
  /// Keeps the running statistics, for a step that may be skipped.
  void keep_statistics();
  /// Gives the running statistics the values that they had when they were kept.
  void restore_statistics();
  /// Frees what keep_statistics() kept.
  void drop_statistics() { statistics_.clear(); }
  /// Updates every weight of a group of layers.
  void step(int group, StepRate at);

 private:
  void start_bucket(std::size_t b);
  void apply_bucket(std::size_t b, StepRate at);
  void gather(std::size_t b);
  void label(const Bucket& bucket, const char* role);
  template <class Visit>
  void each_statistic(int layer, Visit&& visit);
  template <class Visit>
  void each_statistic(Visit&& visit);
  template <class Ends>
  void move_statistics(Ends&& ends);
  int group_of(const Bucket& bucket) const { return plan_.layers[bucket.last()].group; }
  std::vector<WeightPiece> pieces(std::size_t b) const;
  Tensor norms(std::size_t b, StepRate at, std::span<const WeightPiece> pieces);

  const Plan& plan_;
  Backend& backend_;
  const ProcessGrid& grid_;
  Communicator* replica_pair_;  // this rank and the one with the other replica
  std::span<const std::shared_ptr<Communicator>> copy_pairs_;
  Parameters& parameters_;
  TrafficCounter& counter_;
  Stream stream_;
  std::vector<Tensor> sums_;  // by bucket: summed gradients for the update, this rank's share in the master dtype
  std::vector<Tensor> kept_;  // buffers of the collectives in traveling_
  std::vector<Request> traveling_;
  double unscale_ = 1;
  std::vector<Tensor> statistics_;  // all of them in one tensor, as keep_statistics() found them
};

}  // namespace partita
