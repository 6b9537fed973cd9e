#pragma once

#include <compare>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace partita {

/// Seconds that a rank computes for one layer and one microbatch, without sending and waiting.
struct LayerTimes {
  double forward = 0;
  double backward = 0;  ///< both gradients in a combined pass
  double backward_data = 0, backward_filter = 0;
};

/// The step in which local work is timed: how many microbatches its stage runs one after the other, and the maximum
/// number in flight at once. Both affect what a layer finds in the caches, and whether gradients are overwritten or
/// added to.
struct Loop {
  int microbatches = 1, in_flight = 1;
  auto operator<=>(const Loop&) const = default;
};

/// Measured times of local work. The key is the backend, the work in words and the loop: the same block of a
/// layer takes the same time under any strategy whose stages hold as many microbatches. A value, stored as a text file.
class KernelTimes {
 public:
  KernelTimes() = default;
  /// `where` names the processor and the threads per rank.
  explicit KernelTimes(std::string where, std::string backend = "")
      : where_(std::move(where)), backend_(std::move(backend)) {}

  /// Reads what print() wrote. Throws Error with file and line for anything else.
  static KernelTimes parse(std::string_view text, const std::string& file);
  std::string print() const;

  const std::string& where() const { return where_; }
  /// Selects the backend for `find` and `set`. Times of other backends stay, and are printed as well.
  void use(const std::string& backend) { backend_ = backend; }
  const std::string& backend() const { return backend_; }
  bool empty() const { return layers_.empty(); }
  using All = std::map<std::pair<std::string, Loop>, LayerTimes>;
  /// The times of all backends, by "BACKEND WORK", or "WORK" for a backend without a name.
  const All& all() const { return layers_; }
  bool has(const std::string& work, Loop loop) const { return layers_.contains({key(work), loop}); }
  /// Returns the times from the nearest loop: the nearest number of microbatches in flight, then the nearest number of
  /// microbatches.
  std::optional<LayerTimes> find(const std::string& work, Loop loop) const;
  /// Returns that nearest loop.
  std::optional<Loop> nearest(const std::string& work, Loop loop) const;
  void set(const std::string& work, Loop loop, const LayerTimes& times) { layers_[{key(work), loop}] = times; }
  /// Multiplies all times by a factor.
  void scale(double factor);
  /// Adds those times of `other` that are missing here.
  void merge(const KernelTimes& other) { layers_.insert(other.layers_.begin(), other.layers_.end()); }

 private:
  All::const_iterator look(const std::string& work, Loop loop) const;
  std::string key(const std::string& work) const { return backend_.empty() ? work : backend_ + " " + work; }

  std::string where_, backend_;
  All layers_;
};

}  // namespace partita
