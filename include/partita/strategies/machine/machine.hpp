#pragma once

#include "partita/base/collective_algorithm.hpp"
#include "partita/base/traffic.hpp"
#include "partita/base/types.hpp"
#include "partita/model/kernel_kind.hpp"
#include "partita/strategies/machine/pair_links.hpp"

#include <algorithm>
#include <compare>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace partita {

/// A number and its source: "measured: ...", "assumed: ...", or a document.
struct Constant {
  double value = 0;
  std::string source;
};

/// A function given by points (size, value) in ascending order of size. It is linear in the logarithms of both between
/// the points. Outside the points it has the nearest point's value, except that `seconds` grows in proportion to the
/// size above the last point.
struct Curve {
  std::vector<std::pair<double, double>> points;
  std::string source;

  /// The value for a rate, which stays constant outside the points.
  double at(double size) const;
  /// The value for a time, which grows with the size above the last point.
  double seconds(double size) const;
};

/// Types that kernels compute in. `tf32` is f32 with the mantissa of f16, for tensor cores.
enum class Precision : std::uint8_t { f64, f32, tf32, bf16, f16 };
/// Returns e.g. "tf32".
std::string_view name(Precision precision);

/// The share of the peak (0 to 1) that kernels reach.
struct Efficiency {
  Curve curve;  ///< by their operations
  /// The extent that a kernel needs to reach the curve: if m, n or k of its matrix product is smaller, the share falls
  /// in proportion. 0 if none is too small.
  Constant width{};
  std::map<Precision, Curve> of_type{};  ///< curves of types that have their own
};

/// A verb among a number of ranks, of which `inside` share a unit of the level below. Exchanges are between two ranks.
struct MeasuredVerb {
  Verb verb = Verb::none;
  int ranks = 2, inside = 1;
  auto operator<=>(const MeasuredVerb&) const = default;
};

/// One level of the network, counted from the inside out: between the ranks of a node, between nodes, between racks.
struct Level {
  std::string name;    ///< "node", "network", ...
  Constant ranks;      ///< ranks that one unit of this level holds, e.g. one node; 0 in the last level: any number
  Constant latency;    ///< seconds before the first byte of a message arrives
  Constant bandwidth;  ///< bytes per second through one link, in one direction
  Constant links;      ///< links of a unit of the level below to the other units; shared by the unit's ranks
  /// oversubscription above the links: 1 if all of them can be busy at once, 2 if half of them can
  Constant fan_out;
  Constant overlap;  ///< 0 to 1: the share of a transfer that proceeds while the rank computes
  /// Bytes per second and link at which the switches of the level add what ranks send (in-network reduction); 0 if they
  /// cannot.
  Constant reduction{};
  /// Measured seconds of verbs, as a function of bytes (counted as in Traffic).
  std::map<MeasuredVerb, Curve> verbs{};
  /// The links between each two ranks, of `bandwidth` each; only in the innermost level. Empty: each rank has `links`.
  PairLinks pairs{};
};

/// Ranks that share the bandwidth of one memory, e.g. the cores of a socket. Consecutive ranks fill a socket first.
struct Socket {
  Constant ranks{};             ///< that a socket holds; 0: no ranks share their memory
  Constant memory_bandwidth{};  ///< bytes per second of all its ranks together
};

/// The ways in which a machine's library runs collectives, besides LevelUse::flat, which every library has.
struct CollectiveWays {
  std::vector<LevelUse> ways{LevelUse::one_shot, LevelUse::all_links, LevelUse::by_levels, LevelUse::in_network};
  std::string source;  ///< "" if nothing was said: all of them
  bool has(LevelUse way) const {
    return way == LevelUse::flat || std::find(ways.begin(), ways.end(), way) != ways.end();
  }
};

/// A machine as the cost model sees it. A value; docs/machines-and-cost-model.md describes the file format.
struct Machine {
  std::string name;
  Constant memory;            ///< bytes available for a rank's tensors
  Constant memory_bandwidth;  ///< bytes per second that a rank reads or writes
  Constant arithmetic;        ///< maximum operations per second of a rank, if it is the same in all types; else 0
  Constant kernel;            ///< seconds to launch a kernel: the minimum time of a kernel
  /// What kernels reach of the peak. A kind that is missing has the efficiency of KernelKind::others.
  std::map<KernelKind, Efficiency> efficiency;
  std::vector<Level> levels;              ///< from the inside out; the last one contains all ranks
  std::map<Precision, Constant> peaks{};  ///< maximum operations per second by type; empty if `arithmetic` is given
  Precision f32_uses = Precision::f32;    ///< the type in which convolutions and products of f32 compute: f32 or tf32
  CollectiveWays collectives{};
  Socket socket{};

  /// Returns the bytes per second that each of `ranks` ranks reads or writes: its own `memory_bandwidth`, or its part
  /// of the fullest socket's.
  double bandwidth_of_each(int ranks) const {
    if (socket.ranks.value == 0) return memory_bandwidth.value;
    return std::min(memory_bandwidth.value,
                    socket.memory_bandwidth.value / std::min<double>(ranks, socket.ranks.value));
  }
  /// Returns the machine as each of `ranks` ranks sees it: with this bandwidth, and without sockets.
  Machine shared_by(int ranks) const;

  /// Reads a machine file. Throws Error with file, line and column if it cannot be read, or has unknown keys, missing
  /// constants (the message names the units) or absurd values.
  static Machine load(const std::string& path);
  static Machine parse(std::string_view text, const std::string& file);
  /// Returns a TOML text that `parse` reads back.
  std::string print() const;

  /// Returns the type in which kernels of a kind compute. Convolutions and products use tensor cores. Other kernels do
  /// not, and compute 16-bit numbers in f32.
  Precision precision(KernelKind kind, DType dtype) const;
  /// Returns the maximum operations per second of kernels of a kind. Throws Error if the machine does not give it.
  const Constant& peak(KernelKind kind, DType dtype) const;
  /// Returns the share of the peak that kernels of a kind reach by their operations; null if none is given.
  const Curve* share(KernelKind kind, DType dtype) const;
  /// Returns the efficiency of a kind, or of KernelKind::others if it has none; null if that is missing too.
  const Efficiency* find_efficiency(KernelKind kind) const;

  /// Returns the innermost level in which both ranks belong to one unit. Consecutive ranks fill a unit first.
  int level_of(int rank, int other) const;
};

/// The machine used if none is named: two cores of one node with shared memory. Its constants are assumed.
Machine default_machine();

}  // namespace partita
