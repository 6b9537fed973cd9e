#include "strategies/traces/chakra_trace.hpp"

#include "partita/base/error.hpp"
#include "strategies/traces/protobuf.hpp"
#include "strategies/traces/step_walk.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <utility>

namespace partita {

namespace {

// Numbers of fields and values in et_def.proto. ASTRA-sim's feeder reads each attribute in one type only.
enum NodeField { id = 1, node_name = 2, type = 3, data_deps = 5, duration_micros = 7, attributes = 10 };
enum AttributeField {
  attribute_name = 1,
  double_val = 3,
  int32_val = 7,
  int64_val = 9,
  uint64_val = 13,
  bool_val = 27
};
constexpr int string_val = 29;
enum NodeType { compute_node = 4, send_node = 5, receive_node = 6, collective_node = 7 };

/// Returns the value of CollectiveCommType.
int number_of(Verb verb) {
  switch (verb) {
    case Verb::all_reduce: return 0;
    case Verb::all_gather: return 2;
    case Verb::broadcast: return 5;
    case Verb::all_to_all: return 6;
    case Verb::reduce_scatter: return 7;
    case Verb::none:
    case Verb::exchange: break;
  }
  broken("an exchange is no collective");
}

std::uint64_t rounded(double value) { return static_cast<std::uint64_t>(std::llround(value)); }

template <class Value>
void add_attribute(ProtobufMessage& node, std::string_view name, int field, const Value& value) {
  ProtobufMessage attribute;
  attribute.add(attribute_name, name);
  attribute.add(field, value);
  node.add(attributes, std::string_view(attribute.bytes()));
}
void add_whole(ProtobufMessage& node, std::string_view name, int field, std::uint64_t value) {
  add_attribute(node, name, field, value);
}

/// Writes the trace of one rank. A node depends on those that the rank waited for since the node before it.
class ChakraRank final : public StepSink {
 public:
  ChakraRank(int rank, std::map<std::vector<int>, int>& groups) : rank_(rank), groups_(groups) {
    ProtobufMessage metadata;
    metadata.add(1, std::string_view("1.0.0"));
    text_ = metadata.with_length();
  }
  std::string end() && { return std::move(text_); }

  void compute(const StepLabel& label, const RankWork& work) override {
    ProtobufMessage node = begin(label, compute_node);
    const double before = std::floor(nanoseconds_ / 1e3), own = work.seconds * 1e9;
    nanoseconds_ += own;
    node.add(duration_micros, rounded(std::floor(nanoseconds_ / 1e3) - before));
    add_whole(node, "num_ops", int64_val, rounded(work.flops));
    add_whole(node, "tensor_size", uint64_val, rounded(work.bytes));
    add_attribute(node, "duration_ns", double_val, own);
    last_ = {finish(node)};
  }

  void exchange(const StepLabel& label, std::span<const SizedMessage> sent,
                std::span<const SizedMessage> received) override {
    std::vector<std::uint64_t> all;
    for (const SizedMessage& each : received) all.push_back(message(label, false, false, each));
    for (const SizedMessage& each : sent) all.push_back(message(label, true, false, each));
    if (!all.empty()) last_ = std::move(all);
  }

  void collective(const StepLabel& label, const PlannedTraffic& item, std::span<const int> ranks) override {
    const auto number = static_cast<int>(groups_.size()) + 1;
    const int group = groups_.try_emplace({ranks.begin(), ranks.end()}, number).first->second;
    for (Index call = 0; call < item.traffic.messages; ++call) {
      const Interval bytes =
          balanced_block({0, item.traffic.bytes}, static_cast<int>(item.traffic.messages), static_cast<int>(call));
      ProtobufMessage node = begin(label, collective_node);
      add_whole(node, "comm_type", int64_val, static_cast<std::uint64_t>(number_of(item.verb)));
      add_whole(node, "comm_size", int64_val, static_cast<std::uint64_t>(bytes.extent()));
      add_attribute(node, "pg_name", string_val, std::string_view(std::to_string(group)));
      last_ = {finish(node)};
    }
  }

  void start_transfer(const StepLabel& label, bool sends, const SizedMessage& each) override {
    transfers_.push_back(message(label, sends, true, each));
  }
  void wait_for_transfer(int transfer) override { last_.push_back(transfers_[static_cast<std::size_t>(transfer)]); }

 private:
  ProtobufMessage begin(const StepLabel& label, NodeType node_type) const {
    ProtobufMessage node;
    node.add(id, number_);
    node.add(node_name,
             std::string_view(fmt::format("{}{}{}", label.layer, label.layer.empty() ? "" : " ", label.what)));
    node.add(type, static_cast<std::uint64_t>(node_type));
    node.add(data_deps, std::span<const std::uint64_t>(last_));
    add_whole(node, "is_cpu_op", bool_val, 0);
    add_whole(node, "microbatch", int32_val, static_cast<std::uint64_t>(label.microbatch));
    return node;
  }
  std::uint64_t finish(const ProtobufMessage& node) {
    text_ += node.with_length();
    return number_++;
  }

  std::uint64_t message(const StepLabel& label, bool sends, bool between_stages, const SizedMessage& each) {
    ProtobufMessage node = begin(label, sends ? send_node : receive_node);
    const auto ranks = sends ? std::pair(rank_, each.peer) : std::pair(each.peer, rank_);
    // Both ends count alike: messages inside a stage, and those between stages, arrive in the order of their departure.
    const int tag = 2 * tags_[{ranks, between_stages}]++ + (between_stages ? 1 : 0);
    add_whole(node, "comm_size", int64_val, rounded(each.bytes));
    add_whole(node, "comm_src", int32_val, static_cast<std::uint64_t>(ranks.first));
    add_whole(node, "comm_dst", int32_val, static_cast<std::uint64_t>(ranks.second));
    add_whole(node, "comm_tag", int32_val, static_cast<std::uint64_t>(tag));
    return finish(node);
  }

  int rank_;
  std::map<std::vector<int>, int>& groups_;
  std::string text_;
  std::uint64_t number_ = 0;
  double nanoseconds_ = 0;           // of all computation so far
  std::vector<std::uint64_t> last_;  // what the next node depends on
  std::vector<std::uint64_t> transfers_;
  std::map<std::pair<std::pair<int, int>, bool>, int> tags_;  // messages so far
};

}  // namespace

std::string ChakraTraces::trace(int rank) {
  ChakraRank trace(rank, groups_);
  walk_step(plan_, machine_, times_, rank, trace);
  return std::move(trace).end();
}

}  // namespace partita
