#pragma once

#include "partita/base/error.hpp"
#include "src/comm/backoff.hpp"
#include "src/comm/blocks.hpp"
#include "src/comm/job/watchdog.hpp"
#include "src/comm/levels/levels.hpp"
#include "src/comm/shared_memory/shared_memory.hpp"
#include "src/system/host.hpp"

#include <mpi.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace partita {

inline std::string error_text(int code) {
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  return {text.data(), static_cast<std::size_t>(length)};
}

inline void check(int code, std::string_view what) {
  if (code != MPI_SUCCESS) throw CommunicationError(fmt::format("{}: {}", what, error_text(code)));
}

inline bool finalized() {
  int flag = 0;
  MPI_Finalized(&flag);
  return flag != 0;
}

/// Returns false if an environment variable is "off".
bool wants(const char* variable);

/// Returns the nodes of PARTITA_NODES, by rank, as in "0,0,1,1"; `nodes` if it is not set. Throws Error if it has not
/// one number for each rank.
std::vector<int> pretended_nodes(std::vector<int> nodes);

/// What a communicator must know about nodes. Collective: every rank of `world` constructs it.
struct Nodes {
  bool oversubscribed = false;  ///< this node has more ranks than cores that they may use
  std::vector<int> of_rank;     ///< by rank of MPI_COMM_WORLD: a number that the ranks of a node have in common

  explicit Nodes(MPI_Comm world) {
    MPI_Comm node = MPI_COMM_NULL;
    check(MPI_Comm_split_type(world, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node), "MPI_Comm_split_type");
    int ranks = 0, all = 0, rank = 0;
    MPI_Comm_size(node, &ranks);
    MPI_Comm_size(MPI_COMM_WORLD, &all);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    std::vector<std::uint8_t> cores = allowed_core_bits();
    auto bytes = static_cast<int>(cores.size());
    check(MPI_Allreduce(MPI_IN_PLACE, &bytes, 1, MPI_INT, MPI_MAX, node), "MPI_Allreduce");
    cores.resize(static_cast<std::size_t>(bytes));
    check(MPI_Allreduce(MPI_IN_PLACE, cores.data(), bytes, MPI_UINT8_T, MPI_BOR, node), "MPI_Allreduce");
    of_rank.assign(static_cast<std::size_t>(all), -1);
    of_rank[rank] = rank;
    check(MPI_Bcast(&of_rank[rank], 1, MPI_INT, 0, node), "MPI_Bcast");  // the number of its first rank
    check(MPI_Allreduce(MPI_IN_PLACE, of_rank.data(), all, MPI_INT, MPI_MAX, world), "MPI_Allreduce");
    check(MPI_Comm_free(&node), "MPI_Comm_free");
    of_rank = pretended_nodes(std::move(of_rank));
    oversubscribed = ranks > std::max(count_bits(cores), 1);
  }
};

template <DType dtype, ReduceOp op>
void combine(void* in, void* inout, int* count, MPI_Datatype*) {
  combine(inout, in, *count, dtype, op);
}

/// What all communicators of a process share: the MPI handles of our types and reductions, and how to wait.
class MpiContext {
 public:
  explicit MpiContext(MPI_Comm world) : MpiContext(Nodes(world)) {}
  explicit MpiContext(Nodes nodes) : node_{nodes.oversubscribed}, nodes_(std::move(nodes.of_rank)) {
    check(MPI_Type_contiguous(2, MPI_BYTE, &two_bytes_), "MPI_Type_contiguous");
    check(MPI_Type_commit(&two_bytes_), "MPI_Type_commit");
    create(combine<DType::f64, ReduceOp::max>, f64_max_);
    create(combine<DType::f32, ReduceOp::max>, f32_max_);
    create(combine<DType::bf16, ReduceOp::sum>, bf16_sum_);
    create(combine<DType::bf16, ReduceOp::max>, bf16_max_);
    create(combine<DType::f16, ReduceOp::sum>, f16_sum_);
    create(combine<DType::f16, ReduceOp::max>, f16_max_);
  }
  ~MpiContext() {
    if (finalized()) return;
    MPI_Type_free(&two_bytes_);
    for (auto* op : {&f64_max_, &f32_max_, &bf16_sum_, &bf16_max_, &f16_sum_, &f16_max_}) MPI_Op_free(op);
  }
  MpiContext(const MpiContext&) = delete;
  MpiContext& operator=(const MpiContext&) = delete;

  MPI_Datatype type(DType dtype) const {
    switch (dtype) {
      case DType::f64: return MPI_DOUBLE;
      case DType::f32: return MPI_FLOAT;
      case DType::i32: return MPI_INT32_T;
      case DType::bf16:
      case DType::f16: return two_bytes_;
    }
    broken("unknown dtype");
  }

  /// Maxima of floating-point numbers are ours: MPI_MAX may drop a NaN.
  MPI_Op op(DType dtype, ReduceOp op) const {
    if (dtype == DType::bf16) return op == ReduceOp::sum ? bf16_sum_ : bf16_max_;
    if (dtype == DType::f16) return op == ReduceOp::sum ? f16_sum_ : f16_max_;
    if (op == ReduceOp::sum) return MPI_SUM;
    return dtype == DType::f64 ? f64_max_ : dtype == DType::f32 ? f32_max_ : MPI_MAX;
  }

  /// Returns the ranks of the world for which a rank still waits.
  using Missing = std::function<std::vector<int>()>;

  /// Waits for MPI requests. All waiting goes through this function and the next one. MPI and shared memory both make
  /// progress meanwhile.
  void wait(std::vector<MPI_Request>& requests, const Missing& missing) const {
    const Waits::Scope waiting(waits_);
    std::vector<MPI_Status> statuses(requests.size());
    const auto count = static_cast<int>(requests.size());
    int code = MPI_SUCCESS, done = 0;
    // Not MPI_Waitall, even if nothing else is under way: in Open MPI 4.1.4 it may never return if a request failed.
    for (Backoff backoff(node_.oversubscribed); done == 0 && code == MPI_SUCCESS; backoff.pause()) {
      if (waits_.asked()) say_waiting(missing());
      progress();
      code = MPI_Testall(count, requests.data(), &done, statuses.data());
    }
    if (code == MPI_ERR_IN_STATUS)
      for (const auto& status : statuses)
        if (status.MPI_ERROR != MPI_ERR_PENDING) check(status.MPI_ERROR, "communication");
    check(code, "communication");
  }

  /// Waits for an operation in shared memory.
  void wait(SharedMemory& shared, const SharedOperation& operation, const Missing& missing) const {
    const Waits::Scope waiting(waits_);
    constexpr int often = 16;
    Checks of_message(often);
    NodeWait node_wait(node_);
    const auto sleep = [&] { shared.sleep(operation); };
    while (true) {
      if (waits_.asked()) say_waiting(missing());
      progress();
      if (operation.done()) return;
      node_wait.pause(sleep);
      if (operation.done()) return;
      if (!node_.oversubscribed && !of_message.many()) continue;
      of_message = Checks(often);
      node_wait.pause_longer(sleep);
      int there = 0;  // peers may first need a message of this rank, which MPI moves only while it is called
      check(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &there, MPI_STATUS_IGNORE), "MPI_Iprobe");
    }
  }

  /// Makes progress without waiting.
  /// Returns true if the requests are complete.
  bool progress(std::vector<MPI_Request>& requests) const {
    int done = 0;
    check(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE), "communication");
    progress();
    return done != 0;
  }
  void progress() const {
    if (progressing_) return;  // a step of levels asks for progress
    progressing_ = true;
    try {
      for (auto* shared : shared_) shared->progress();
      for (auto* levels : levels_) levels->progress();
    } catch (...) {
      progressing_ = false;
      throw;
    }
    progressing_ = false;
  }

  /// Returns false if this rank shall not share memory with others.
  bool shares() const { return shares_; }
  /// Stops this rank from sharing memory in later communicators, because memory for `ranks` ranks could not be
  /// reserved. One rank of the job says so, once; `speaks` is true on one rank of those that found out.
  void stop_sharing(int ranks, bool speaks);

  Waits& waits() const { return waits_; }
  /// Sets what the rank says about itself when it has waited for long.
  void set_waiting(int rank, int seconds) { rank_ = rank, seconds_ = seconds; }
  /// The nodes of the ranks of MPI_COMM_WORLD (Nodes::of_rank).
  const std::vector<int>& nodes() const { return nodes_; }
  /// Returns true if all ranks of the world are on one node.
  bool one_node() const { return one_node_; }
  /// Returns false if collectives between nodes shall be MPI's flat ones.
  bool by_levels() const { return by_levels_; }
  /// Between `add` and `remove`, `progress` advances them.
  void add(SharedMemory& shared) { shared_.push_back(&shared); }
  void remove(SharedMemory& shared) { std::erase(shared_, &shared); }
  void add(Levels& levels) { levels_.push_back(&levels); }
  void remove(Levels& levels) { std::erase(levels_, &levels); }

 private:
  static void create(MPI_User_function* function, MPI_Op& op) {
    check(MPI_Op_create(function, /*commute=*/1, &op), "MPI_Op_create");
  }

  mutable Waits waits_;
  /// Says for whom the rank has waited so long, and in which layer.
  void say_waiting(const std::vector<int>& missing) const;

  int rank_ = 0, seconds_ = 0;  // for say_waiting
  mutable NodeWait::Memory node_;
  std::vector<int> nodes_;
  bool one_node_ = std::count(nodes_.begin(), nodes_.end(), nodes_.front()) == std::ssize(nodes_);
  bool shares_ = wants("PARTITA_SHARED_MEMORY"), by_levels_ = wants("PARTITA_LEVELS");
  std::vector<SharedMemory*> shared_;
  std::vector<Levels*> levels_;
  mutable bool progressing_ = false;
  MPI_Datatype two_bytes_ = MPI_DATATYPE_NULL;
  MPI_Op f64_max_ = MPI_OP_NULL, f32_max_ = MPI_OP_NULL;
  MPI_Op bf16_sum_ = MPI_OP_NULL, bf16_max_ = MPI_OP_NULL, f16_sum_ = MPI_OP_NULL, f16_max_ = MPI_OP_NULL;
};

}  // namespace partita
