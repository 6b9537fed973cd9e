#pragma once

#include <compare>
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

/// In what step local work is timed: the microbatches that its stage runs one after the other, and the most of them that it
/// holds at once. Both decide what a layer finds in the caches, and whether gradients are written or added.
struct Loop {
  int microbatches = 1, in_flight = 1;
  auto operator<=>(const Loop&) const = default;
};

/// Measured times of local work, by the backend that computes it, by what is computed, and in what loop: the same block of a
/// layer costs the same under any strategy whose stages keep as many microbatches. A value, kept in a text file.
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
  using All = std::map<std::pair<std::string, Loop>, LayerTimes>;
  /// Of all backends: "BACKEND WORK", or "WORK" of one without a name.
  const All& all() const { return layers_; }
  bool has(const std::string& work, Loop loop) const { return layers_.contains({key(work), loop}); }
  /// Those of the nearest loop: of those that hold most nearly as many microbatches, that which runs most nearly as many.
  std::optional<LayerTimes> find(const std::string& work, Loop loop) const;
  /// That loop.
  std::optional<Loop> nearest(const std::string& work, Loop loop) const;
  void set(const std::string& work, Loop loop, const LayerTimes& times) { layers_[{key(work), loop}] = times; }
  /// Those of `other` where this has none.
  void merge(const KernelTimes& other) { layers_.insert(other.layers_.begin(), other.layers_.end()); }

 private:
  All::const_iterator look(const std::string& work, Loop loop) const;
  std::string key(const std::string& work) const { return backend_.empty() ? work : backend_ + " " + work; }

  std::string where_, backend_;
  All layers_;
};

}  // namespace partita
