#pragma once

#include "partita/base/traffic.hpp"

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace partita {

/// A number with where it comes from: "measured: ...", "assumed: ...", or a document.
struct Constant {
  double value = 0;
  std::string source;
};

/// Points (size, value), sizes ascending: linear in the logarithms of both between them, the nearest one's value beyond
/// (of `seconds`: in proportion to the size above the last one).
struct Curve {
  std::vector<std::pair<double, double>> points;
  std::string source;

  /// Of a rate, which stays what it is beyond the points.
  double at(double size) const;
  /// Of a time, which grows with the size above the last point.
  double seconds(double size) const;
};

/// One level of the network, from the inside out: between the ranks of a node, between nodes, between racks.
struct Level {
  std::string name;    ///< "node", "network", ...
  Constant ranks;      ///< that one unit of this level holds, e.g. those of a node; 0 is any number, in the last one
  Constant latency;    ///< seconds before the first byte of a message arrives
  Constant bandwidth;  ///< bytes a second through one link, one way
  Constant links;      ///< to the level's other units that a unit of the level below has; its ranks share them
  Constant fan_out;    ///< of the network above the links: 1 if all of them can be busy at once, 2 if half of them
  Constant overlap;    ///< 0 to 1: the share of a transfer that goes on while the rank computes
  /// Seconds of a verb among so many ranks of one unit, by bytes as Traffic counts them; where measured.
  std::map<std::pair<Verb, int>, Curve> verbs;
};

/// A machine as the cost model sees it. A value; see README, "Machines", for the file.
struct Machine {
  std::string name;
  Constant memory;            ///< bytes that a rank's tensors can take
  Constant memory_bandwidth;  ///< bytes a second that a rank reads or writes
  Constant arithmetic;        ///< operations a second that a rank can do at most, in f32
  Constant kernel;            ///< seconds that a kernel takes at least: its launch
  /// The share of `arithmetic` (0 to 1) that kernels reach, by their operations: "conv", "product"; "" for all others.
  std::map<std::string, Curve> efficiency;
  std::vector<Level> levels;  ///< from the inside out; the last one holds all ranks

  /// Reads a machine file. Throws Error with file, line and column for what cannot be read, unknown keys, missing constants
  /// (with their units) and absurd ones.
  static Machine load(const std::string& path);
  static Machine parse(std::string_view text, const std::string& file);
  /// As a TOML text that `parse` reads back.
  std::string print() const;

  /// The innermost level with both ranks in one unit. Ranks fill units first.
  int level_of(int rank, int other) const;
};

/// The machine that is taken where none is named: two cores of one node with shared memory, constants assumed.
Machine default_machine();

}  // namespace partita
