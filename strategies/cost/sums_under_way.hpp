#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace partita {

/// The gradient sums that a rank starts while it computes. They travel one after the other, in the order in which they
/// start. While a sum travels, the rank computes for the share of the time that the sum's overlap gives:
///
///     seconds of computing and sums together = computing + sums - hidden
class SumsUnderWay {
 public:
  /// Starts a sum. It takes `seconds`, of which the share `overlap` can pass while the rank computes.
  void start(double seconds, double overlap) {
    if (seconds > 0) sums_.push_back({seconds, overlap});
    all_ += seconds;
  }
  /// The rank computes for so many seconds, while the sums that have started travel.
  void compute(double seconds) {
    while (seconds > 0 && first_ < sums_.size()) {
      Sum& sum = sums_[first_];
      const double computed = std::min(seconds, sum.left * sum.overlap);
      hidden_ += computed;
      seconds -= computed;
      if (seconds > 0)
        ++first_;  // the sum has ended
      else
        sum.left -= computed / sum.overlap;
    }
  }
  /// Seconds of all sums that pass while the rank computes.
  double hidden() const { return hidden_; }
  /// Seconds of all sums that it waits for.
  double exposed() const { return all_ - hidden_; }

 private:
  struct Sum {
    double left = 0, overlap = 0;
  };
  std::vector<Sum> sums_;
  std::size_t first_ = 0;  // the sum that travels
  double all_ = 0, hidden_ = 0;
};

}  // namespace partita
