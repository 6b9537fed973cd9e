#include "bench/support/measure.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <stdexcept>
#include <thread>
#include <utility>

namespace partita::bench {

namespace {

/// A barrier that does not spin. A blocking barrier would occupy cores that ranks share and distort the measurement.
void meet(MPI_Comm comm) {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Ibarrier(comm, &request);
  for (int done = 0, looks = 0; done == 0; ++looks) {
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    if (looks > 100) std::this_thread::sleep_for(std::chrono::microseconds(1));
  }
}

/// The maximum over ranks of the seconds and of the lost seconds.
Timing slowest(MPI_Comm comm, Timing timing) {
  meet(comm);
  MPI_Allreduce(MPI_IN_PLACE, &timing, 2, MPI_DOUBLE, MPI_MAX, comm);
  return timing;
}

double slowest(MPI_Comm comm, double seconds) { return slowest(comm, Timing{seconds, 0}).seconds; }

double quantile(std::vector<double> values, double at) {
  std::sort(values.begin(), values.end());
  return values[std::lround(at * static_cast<double>(values.size() - 1))];
}

/// The number of calls in a row that take 2 ms or more, so that the errors of the clock and the barrier are small.
int repeats(MPI_Comm comm, const std::function<void()>& run) {
  constexpr double enough = 2e-3;
  const double once = time_once(comm, run, 1).seconds;
  return std::clamp(static_cast<int>(enough / std::max(once, 1e-9)), 1, 1000);
}

}  // namespace

void pin(int rank) {
  cpu_set_t allowed, one;
  CPU_ZERO(&allowed);
  CPU_ZERO(&one);
  sched_getaffinity(0, sizeof allowed, &allowed);
  int left = rank % std::max(CPU_COUNT(&allowed), 1);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &allowed) && left-- == 0) CPU_SET(cpu, &one);
  sched_setaffinity(0, sizeof one, &one);
}

Timing time_once(MPI_Comm comm, const std::function<void()>& run, int repeat) {
  meet(comm);
  const Stopwatch watch;
  for (int i = 0; i < repeat; ++i) run();
  const Timing all = slowest(comm, watch.time());
  return {all.seconds / repeat, all.lost / repeat};
}

namespace {

constexpr double longest = 300;  // most seconds to wait for a state

/// The least seconds of a few sums of 64 KiB, on the slowest rank.
double time_sum(MPI_Comm comm) {
  std::vector<float> numbers(1 << 14);
  double least = 1e9;
  for (int i = 0; i < 20; ++i) {
    meet(comm);
    const double start = now();
    MPI_Allreduce(MPI_IN_PLACE, numbers.data(), static_cast<int>(numbers.size()), MPI_FLOAT, MPI_SUM, comm);
    least = std::min(least, now() - start);
  }
  return slowest(comm, least);
}

/// True if there are several ranks and each has a core of its own.
bool on_cores_of_their_own(MPI_Comm comm) {
  int ranks = 1;
  MPI_Comm_size(comm, &ranks);
  std::vector<int> cores(static_cast<std::size_t>(ranks));
  const int own = sched_getcpu();
  MPI_Allgather(&own, 1, MPI_INT, cores.data(), 1, MPI_INT, comm);
  std::sort(cores.begin(), cores.end());
  return ranks > 1 && std::adjacent_find(cores.begin(), cores.end()) == cores.end();
}

/// True if two times of a sum belong to the same state. On our machines a sum takes 20 to 31 us if the cores share a
/// cache, else 48 to 64 us.
bool same_state(double sum, double other) {
  constexpr double apart = 1.5;
  return sum == other || (apart * sum > other && sum < apart * other);
}

/// The measurements in one state.
struct Rounds {
  double sum = 0;                                 // seconds of a sum of 64 KiB, which identifies the state
  std::vector<std::vector<Timing>> timings = {};  // of each function, ours first: the timings of all rounds
  double spent = 0;                               // seconds

  bool enough(double budget) const {
    constexpr std::size_t least = 5, most = 200;
    const std::size_t rounds = timings.front().size();
    return rounds >= most || (rounds >= least && spent > budget);
  }
  Comparison medians() const {
    std::vector<double> theirs;
    for (std::size_t i = 1; i < timings.size(); ++i) theirs.push_back(quantile(undisturbed_seconds(timings[i]), 0.5));
    const auto best = std::min_element(theirs.begin(), theirs.end());
    const auto ours = undisturbed_seconds(timings.front());
    const double median = quantile(ours, 0.5);
    return {.seconds = median,
            .spread = (quantile(ours, 0.75) - quantile(ours, 0.25)) / median,
            .ratio = *best / median,
            .sum = sum,
            .best = static_cast<std::size_t>(best - theirs.begin())};
  }
};

}  // namespace

Comparison compare(MPI_Comm comm, const std::function<void()>& ours, const std::vector<std::function<void()>>& theirs,
                   double budget) {
  std::vector<std::function<void()>> runs{ours};
  runs.insert(runs.end(), theirs.begin(), theirs.end());
  std::vector<int> repeat;
  for (const auto& run : runs) repeat.push_back(repeats(comm, run));
  const bool several_states = on_cores_of_their_own(comm);
  const double start = now();
  std::vector<Rounds> states;
  double before = several_states ? time_sum(comm) : 0;
  while (slowest(comm, now() - start) < 10 * budget + longest) {
    std::vector<Timing> times;
    for (std::size_t i = 0; i < runs.size(); ++i) times.push_back(time_once(comm, runs[i], repeat[i]));
    const double after = several_states ? time_sum(comm) : 0;
    if (!same_state(std::exchange(before, after), after)) continue;
    auto state = std::find_if(states.begin(), states.end(), [&](const Rounds& s) { return same_state(s.sum, after); });
    if (state == states.end())
      state = states.insert(state, {.sum = after, .timings = std::vector<std::vector<Timing>>(runs.size())});
    for (std::size_t i = 0; i < runs.size(); ++i) {
      state->timings[i].push_back(times[i]);
      state->spent += times[i].seconds * repeat[i];
    }
    if (state->enough(budget)) return state->medians();
  }
  throw std::runtime_error("the host moved the cores so often that no state lasted long enough for the measurement");
}

SteadyCores::SteadyCores(MPI_Comm comm, double seconds) : comm_(comm) {
  std::vector<double> sums;
  for (const double start = now(); sums.empty() || slowest(comm_, now() - start) < seconds;) {
    sums.push_back(time_sum(comm_));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  usual_ = quantile(sums, 0.5);
}

bool SteadyCores::steady() const { return same_state(time_sum(comm_), usual_); }

void SteadyCores::run(const std::function<void()>& what) {
  const double start = now();
  const auto check_time = [&] {
    if (slowest(comm_, now() - start) > longest)
      throw CoresMoved("for five minutes the cores did not return to the state that was usual at the start");
  };
  for (;; ++thrown_) {
    for (; !steady(); check_time()) {
    }
    what();
    if (steady()) return;
    check_time();
  }
}

void print(MPI_Comm comm, const std::string& subject, const std::string& what, const Comparison& comparison,
           const std::string& against) {
  int rank = 0, ranks = 1;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &ranks);
  if (rank != 0) return;
  const std::string sum = comparison.sum == 0 ? "" : fmt::format(R"(, "sum_us": {:.0f})", 1e6 * comparison.sum);
  fmt::print(
      R"({{"subject": "{}", "case": "{}", "ranks": {}, "seconds": {:.3e}, "spread": {:.3f}, "ratio": {:.3f}, "against": "{}"{}}})"
      "\n",
      subject, what, ranks, comparison.seconds, comparison.spread, comparison.ratio, against, sum);
  std::fflush(stdout);
}

std::string size_name(long bytes) {
  if (bytes >= 1L << 20) return fmt::format("{}MiB", bytes >> 20);
  if (bytes >= 1L << 10) return fmt::format("{}KiB", bytes >> 10);
  return fmt::format("{}B", bytes);
}

}  // namespace partita::bench
