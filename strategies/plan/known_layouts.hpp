#pragma once

#include "partita/model/operator.hpp"

#include <cstddef>
#include <unordered_map>
#include <vector>

namespace partita {

/// The layouts that operators chose, for plans of one model. The choice among products is slow, and stages of a plan,
/// or plans of a search, often ask for the same.
class KnownLayouts {
 public:
  /// Returns op.layouts(request). `like`: the number of the first layer of the model with an equal operator.
  OperatorLayouts of(const Operator& op, int like, const LayoutRequest& request);

 private:
  static constexpr int most = 1 << 12;  // of a few KiB each
  struct Known {
    int like;
    LayoutRequest request;
    OperatorLayouts layouts;
  };
  std::unordered_map<std::size_t, std::vector<Known>> known_;
  int count_ = 0;
};

}  // namespace partita
