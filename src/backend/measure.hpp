#pragma once

#include "partita/backend/backend.hpp"
#include "src/system/clock.hpp"

#include <functional>

namespace partita {

/// Runs a function and returns how long it took.
using RunTimer = std::function<Timing(const std::function<void()>& run)>;
/// Times a function with a Stopwatch.
Timing time_by_clock(const std::function<void()>& run);
/// Returns what times the kernels that a function starts on a stream: on a device from the moment when the stream
/// begins to that when it has ended, which is the time of the kernels unless the CPU starts them more slowly than they
/// run; on the CPU time_by_clock.
/// @pre `device` outlives the timer.
RunTimer time_by_stream(Device& device, Stream stream);

/// Returns the problems in groups, each problem once. Where the backend may compute a problem in two halves, the halves
/// are problems too, in groups before it. If the groups are measured in order, `two_halves` runs the fastest algorithms
/// of the halves when it is measured.
std::vector<std::vector<ConvProblem>> halves_first(const Backend& backend, std::span<const ConvProblem> problems);

/// Measures `problem` with each of the backend's algorithms, on a stream and on random arrays of its own, and returns
/// the fastest. It prefers the backend's default unless another algorithm is faster by more than the measurement error.
/// On return the backend uses the algorithm returned. No `timer` stands for time_by_stream().
/// @pre backend.algorithms(problem) is not empty.
std::string_view measure_fastest(Backend& backend, Stream stream, const ConvProblem& problem,
                                 const RunTimer& timer = {});

/// Returns the median seconds of `problem` with one of the backend's algorithms, measured in the same way.
double time_algorithm(Backend& backend, Stream stream, const ConvProblem& problem, std::string_view algorithm,
                      const RunTimer& timer = {});

}  // namespace partita
