#pragma once

#include "partita/strategies/plan.hpp"

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace partita {

/// Seconds that a rank computes for one layer and one microbatch, without what it sends and waits for.
struct LayerTimes {
  double forward = 0;
  double backward = 0;  ///< both gradients in one pass
  double backward_data = 0, backward_filter = 0;
};

/// Measured times of local work, by the backend that computes it and by what is computed: the same block of a layer costs the
/// same under any strategy. A value, kept in a text file.
class KernelTimes {
 public:
  KernelTimes() = default;
  /// `where` names the processor and the threads of a rank.
  explicit KernelTimes(std::string where, std::string backend = "")
      : where_(std::move(where)), backend_(std::move(backend)) {}

  /// Reads what `print` wrote. Throws Error with file and line for anything else.
  static KernelTimes parse(std::string_view text, const std::string& file);
  std::string print() const;

  const std::string& where() const { return where_; }
  /// From here on `find` and `set` are of this backend; what is there of others stays, and is printed too.
  void use(const std::string& backend) { backend_ = backend; }
  const std::string& backend() const { return backend_; }
  bool empty() const { return layers_.empty(); }
  /// Of all backends: "BACKEND WORK", or "WORK" of one without a name.
  const std::map<std::string, LayerTimes>& all() const { return layers_; }
  std::optional<LayerTimes> find(const std::string& work) const;
  void set(const std::string& work, const LayerTimes& times) { layers_[key(work)] = times; }
  /// Those of `other` where this has none.
  void merge(const KernelTimes& other) { layers_.insert(other.layers_.begin(), other.layers_.end()); }

 private:
  std::string key(const std::string& work) const { return backend_.empty() ? work : backend_ + " " + work; }

  std::string where_, backend_;
  std::map<std::string, LayerTimes> layers_;
};

/// What a rank of a layer's grid computes, as a text: kind and parameters, the extents of its blocks, what it converts locally.
/// Ranks and layers with equal texts do equal work.
std::string local_work(const LayerPlan& layer, int rank, const Workload& workload);
/// The same of an update of so many elements.
std::string update_work(Index elements, const Workload& workload);

}  // namespace partita
