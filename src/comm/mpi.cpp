#include "partita/comm/mpi.hpp"

#include "backoff.hpp"
#include "shared_memory.hpp"
#include "witness.hpp"

#include "partita/base/error.hpp"
#include "partita/comm/textbook.hpp"

#include <mpi.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <thread>

namespace partita {

namespace {

std::string error_text(int code) {
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  return {text.data(), static_cast<std::size_t>(length)};
}

void check(int code, std::string_view what) {
  if (code != MPI_SUCCESS) throw CommunicationError(fmt::format("{}: {}", what, error_text(code)));
}

bool finalized() {
  int flag = 0;
  MPI_Finalized(&flag);
  return flag != 0;
}

/// What a communicator must know of the machine. Collective over `world`.
struct Node {
  bool oversubscribed = false;  ///< the ranks on this node outnumber the cores that they may use
  bool whole_world = false;     ///< all ranks are on it

  explicit Node(MPI_Comm world) {
    MPI_Comm node = MPI_COMM_NULL;
    check(MPI_Comm_split_type(world, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node), "MPI_Comm_split_type");
    int ranks = 0, all = 0;
    MPI_Comm_size(node, &ranks);
    MPI_Comm_size(world, &all);
    cpu_set_t mine;
    CPU_ZERO(&mine);
    sched_getaffinity(0, sizeof mine, &mine);
    std::vector<cpu_set_t> masks(static_cast<std::size_t>(ranks));
    check(MPI_Allgather(&mine, sizeof mine, MPI_BYTE, masks.data(), sizeof mine, MPI_BYTE, node), "MPI_Allgather");
    check(MPI_Comm_free(&node), "MPI_Comm_free");
    for (const auto& mask : masks) CPU_OR(&mine, &mine, &mask);
    oversubscribed = ranks > CPU_COUNT(&mine);
    whole_world = ranks == all;
  }
};

template <DType dtype, Op op>
void combine(void* in, void* inout, int* count, MPI_Datatype*) {
  textbook::combine(inout, in, *count, dtype, op);
}

/// What all communicators of a process share: MPI's names for our types and sums, and how to wait.
class Context {
 public:
  explicit Context(MPI_Comm world) : Context(Node(world)) {}
  explicit Context(const Node& node) : yields_(node.oversubscribed), one_node_(node.whole_world) {
    check(MPI_Type_contiguous(2, MPI_BYTE, &two_bytes_), "MPI_Type_contiguous");
    check(MPI_Type_commit(&two_bytes_), "MPI_Type_commit");
    create(combine<DType::bf16, Op::sum>, bf16_sum_);
    create(combine<DType::bf16, Op::max>, bf16_max_);
    create(combine<DType::f16, Op::sum>, f16_sum_);
    create(combine<DType::f16, Op::max>, f16_max_);
  }
  ~Context() {
    if (finalized()) return;
    MPI_Type_free(&two_bytes_);
    for (auto* op : {&bf16_sum_, &bf16_max_, &f16_sum_, &f16_max_}) MPI_Op_free(op);
  }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

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

  MPI_Op op(DType dtype, Op op) const {
    if (dtype == DType::bf16) return op == Op::sum ? bf16_sum_ : bf16_max_;
    if (dtype == DType::f16) return op == Op::sum ? f16_sum_ : f16_max_;
    return op == Op::sum ? MPI_SUM : MPI_MAX;
  }

  /// The one place that waits, for requests of MPI or for what goes through shared memory; both go on meanwhile.
  void wait(std::vector<MPI_Request>& requests) const {
    std::vector<MPI_Status> statuses(requests.size());
    const auto count = static_cast<int>(requests.size());
    int code = MPI_SUCCESS, done = 0;
    if (!yields_ && !busy()) {
      code = MPI_Waitall(count, requests.data(), statuses.data());
    } else {
      for (Backoff backoff(yields_); done == 0 && code == MPI_SUCCESS; backoff.pause()) {
        progress();
        code = MPI_Testall(count, requests.data(), &done, statuses.data());
      }
    }
    if (code == MPI_ERR_IN_STATUS)
      for (const auto& status : statuses)
        if (status.MPI_ERROR != MPI_ERR_PENDING) check(status.MPI_ERROR, "communication");
    check(code, "communication");
  }

  void wait(SharedMemory& shared, const SharedMemory::Operation& operation) const {
    constexpr int patience = 10, often = 16;
    for (int looks = 1;; ++looks) {
      progress();
      if (operation.done()) return;
      if (yields_ && looks < patience) sched_yield();
      if (yields_ && looks >= patience) shared.sleep();
      if (operation.done()) return;
      if (!yields_ && looks % often != 0) continue;
      int there = 0;  // peers may wait for a message of ours first: MPI moves it only when called
      check(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &there, MPI_STATUS_IGNORE), "MPI_Iprobe");
    }
  }

  /// Goes on without waiting.
  void progress(std::vector<MPI_Request>& requests) const {
    int done = 0;
    check(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE), "communication");
    progress();
  }
  void progress() const {
    for (auto* shared : shared_) shared->progress();
  }

  /// True if all ranks of the world share memory.
  bool one_node() const { return one_node_; }
  /// Shared memory takes part in `progress` while it is there.
  void add(SharedMemory& shared) { shared_.push_back(&shared); }
  void remove(SharedMemory& shared) { std::erase(shared_, &shared); }

 private:
  bool busy() const {
    return std::any_of(shared_.begin(), shared_.end(), [](const SharedMemory* shared) { return !shared->idle(); });
  }

  static void create(MPI_User_function* function, MPI_Op& op) {
    check(MPI_Op_create(function, /*commute=*/1, &op), "MPI_Op_create");
  }

  bool yields_, one_node_;
  std::vector<SharedMemory*> shared_;
  MPI_Datatype two_bytes_ = MPI_DATATYPE_NULL;
  MPI_Op bf16_sum_ = MPI_OP_NULL, bf16_max_ = MPI_OP_NULL, f16_sum_ = MPI_OP_NULL, f16_max_ = MPI_OP_NULL;
};

/// MPI counts in int; larger messages travel in pieces.
constexpr Index max_piece = Index{1} << 30;

/// Calls piece(offset, count) for the pieces of `total`.
template <class Piece>
void for_pieces(Index total, Piece&& piece) {
  for (Index at = 0; at < total; at += max_piece) piece(at, static_cast<int>(std::min(max_piece, total - at)));
}

/// Blocks one after the other, in MPI's terms; `verb` for the message if they are too large for it.
struct Blocks {
  std::vector<int> counts, offsets;

  Blocks(std::span<const Index> blocks, std::string_view verb) {
    Index total = 0;
    for (const Index count : blocks) {
      if (total + count > INT_MAX)
        fail("{} of more than {} elements: MPI's int counts cannot say that; shard the tensor further", verb, INT_MAX);
      counts.push_back(static_cast<int>(count));
      offsets.push_back(static_cast<int>(total));
      total += count;
    }
  }
};

class MpiRequest : public Request::State {
 public:
  explicit MpiRequest(std::shared_ptr<const Context> context) : context_(std::move(context)) {}

  void wait() override { context_->wait(requests_); }
  void progress() override { context_->progress(requests_); }

  /// A place for the next MPI request.
  MPI_Request* next() { return &requests_.emplace_back(MPI_REQUEST_NULL); }
  /// Keeps arrays of counts until the communication is done, as MPI demands.
  const Blocks& keep(Blocks blocks) { return *blocks_.emplace_back(std::make_unique<Blocks>(std::move(blocks))); }

 private:
  std::shared_ptr<const Context> context_;
  std::vector<MPI_Request> requests_;
  std::vector<std::unique_ptr<Blocks>> blocks_;
};

class SharedRequest : public Request::State {
 public:
  SharedRequest(std::shared_ptr<const Context> context, std::shared_ptr<SharedMemory> shared,
                std::shared_ptr<SharedMemory::Operation> operation)
      : context_(std::move(context)), shared_(std::move(shared)), operation_(std::move(operation)) {}

  void wait() override { context_->wait(*shared_, *operation_); }
  void progress() override { context_->progress(); }

 private:
  std::shared_ptr<const Context> context_;
  std::shared_ptr<SharedMemory> shared_;
  std::shared_ptr<SharedMemory::Operation> operation_;
};

class MpiCommunicator : public Communicator {
 public:
  /// Takes over `comm`.
  MpiCommunicator(MPI_Comm comm, std::shared_ptr<Context> context) : comm_(comm), context_(std::move(context)) {
    check(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    MPI_Comm_rank(comm_, &rank_);
    MPI_Comm_size(comm_, &size_);
    shared_ = SharedMemory::make(comm_, context_->one_node());
    if (shared_) context_->add(*shared_);
  }
  ~MpiCommunicator() override {
    if (shared_) context_->remove(*shared_);
    shared_.reset();
    if (!finalized()) MPI_Comm_free(&comm_);
  }
  MpiCommunicator(const MpiCommunicator&) = delete;
  MpiCommunicator& operator=(const MpiCommunicator&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  Request exchange(std::span<const Send> sends, std::span<const Recv> recvs, Stream) override {
    constexpr int tag = 1;
    auto request = std::make_unique<MpiRequest>(context_);
    for (const auto& [peer, data] : recvs) {
      require(peer != rank_, "no message to oneself");
      for_pieces(static_cast<Index>(data.size()), [&, to = data.data(), from = peer](Index at, int count) {
        check(MPI_Irecv(to + at, count, MPI_BYTE, from, tag, comm_, request->next()), "MPI_Irecv");
      });
    }
    for (const auto& [peer, data] : sends) {
      require(peer != rank_, "no message to oneself");
      for_pieces(static_cast<Index>(data.size()), [&, from = data.data(), to = peer](Index at, int count) {
        check(MPI_Isend(from + at, count, MPI_BYTE, to, tag, comm_, request->next()), "MPI_Isend");
      });
    }
    return Request(std::move(request));
  }

  Request all_reduce(void* data, Index count, DType dtype, Op op, Stream) override {
    if (shared_)
      return Request(std::make_unique<SharedRequest>(context_, shared_, shared_->all_reduce(data, count, dtype, op)));
    auto request = std::make_unique<MpiRequest>(context_);
    for_pieces(count, [&](Index at, int n) {
      void* piece = static_cast<std::byte*>(data) + at * size_of(dtype);
      check(MPI_Iallreduce(MPI_IN_PLACE, piece, n, context_->type(dtype), context_->op(dtype, op), comm_,
                           request->next()),
            "MPI_Iallreduce");
    });
    return Request(std::move(request));
  }

  Request all_gather(const void* local, void* all, std::span<const Index> counts, DType dtype, Stream) override {
    auto request = std::make_unique<MpiRequest>(context_);
    const auto& blocks = request->keep(Blocks(counts, "an all_gather"));
    const auto type = context_->type(dtype);
    check(MPI_Iallgatherv(local, blocks.counts[static_cast<std::size_t>(rank_)], type, all, blocks.counts.data(),
                          blocks.offsets.data(), type, comm_, request->next()),
          "MPI_Iallgatherv");
    return Request(std::move(request));
  }

  Request reduce_scatter(const void* all, void* local, std::span<const Index> counts, DType dtype, Stream) override {
    auto request = std::make_unique<MpiRequest>(context_);
    const auto& blocks = request->keep(Blocks(counts, "a reduce_scatter"));
    check(MPI_Ireduce_scatter(all, local, blocks.counts.data(), context_->type(dtype), context_->op(dtype, Op::sum),
                              comm_, request->next()),
          "MPI_Ireduce_scatter");
    return Request(std::move(request));
  }

  Request broadcast(void* data, Index count, DType dtype, int root, Stream) override {
    auto request = std::make_unique<MpiRequest>(context_);
    for_pieces(count, [&](Index at, int n) {
      void* piece = static_cast<std::byte*>(data) + at * size_of(dtype);
      check(MPI_Ibcast(piece, n, context_->type(dtype), root, comm_, request->next()), "MPI_Ibcast");
    });
    return Request(std::move(request));
  }

  Request all_to_all(const void* send, std::span<const Index> send_counts, void* recv,
                     std::span<const Index> recv_counts, DType dtype, Stream) override {
    auto request = std::make_unique<MpiRequest>(context_);
    const auto& out = request->keep(Blocks(send_counts, "an all_to_all"));
    const auto& in = request->keep(Blocks(recv_counts, "an all_to_all"));
    const auto type = context_->type(dtype);
    check(MPI_Ialltoallv(send, out.counts.data(), out.offsets.data(), type, recv, in.counts.data(), in.offsets.data(),
                         type, comm_, request->next()),
          "MPI_Ialltoallv");
    return Request(std::move(request));
  }

  std::shared_ptr<Communicator> split(int color, int key) override {
    MPI_Comm part = MPI_COMM_NULL;
    check(MPI_Comm_split(comm_, color, key, &part), "MPI_Comm_split");
    return std::make_shared<MpiCommunicator>(part, context_);
  }

 private:
  MPI_Comm comm_;
  std::shared_ptr<Context> context_;
  std::shared_ptr<SharedMemory> shared_;
  int rank_ = 0, size_ = 1;
};

}  // namespace

MpiSession::MpiSession(int& argc, char**& argv) {
  int initialized = 0;
  MPI_Initialized(&initialized);
  if (initialized == 0) {
    witness_ = std::make_unique<Witness>();
    int level = MPI_THREAD_SINGLE;
    check(MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level), "MPI_Init_thread");
    ours_ = true;
    if (level < MPI_THREAD_FUNNELED) abort("this MPI allows no threads in its processes (MPI_THREAD_FUNNELED)", 2);
  }
  // Failures that belong to no communicator, as of waiting for several requests, go to these.
  for (const MPI_Comm comm : {MPI_COMM_WORLD, MPI_COMM_SELF})
    check(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  MPI_Comm world = MPI_COMM_NULL;
  check(MPI_Comm_dup(MPI_COMM_WORLD, &world), "MPI_Comm_dup");
  world_ = std::make_shared<MpiCommunicator>(world, std::make_shared<Context>(world));
  if (witness_) witness_->introduce(world_->rank());
}

MpiSession::~MpiSession() {
  // MPI_Finalize waits for all ranks; one that fails would wait for peers that wait for it.
  if (std::uncaught_exceptions() > 0) abort("an exception left the MPI session", EXIT_FAILURE);
  world_.reset();
  witness_.reset();
  if (ours_ && !finalized()) MPI_Finalize();
}

void MpiSession::abort(const std::string& message, int status) const {
  if (witness_) witness_->dismiss_all();
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const auto line = fmt::format("rank {}: {}\n", rank, message);
  std::fflush(stdout);
  std::fputs(line.c_str(), stderr);
  std::fflush(stderr);
  // Launchers drop what they have not forwarded yet when a job is aborted; and the witness takes its place.
  std::this_thread::sleep_for(std::chrono::milliseconds(250));
  MPI_Abort(MPI_COMM_WORLD, status);
  std::_Exit(status);
}

std::string mpi_version() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0, major = 0, minor = 0;
  MPI_Get_library_version(text.data(), &length);
  MPI_Get_version(&major, &minor);
  // MPICH writes a table with tabs, Open MPI a list with commas; the name and version come first.
  std::string library;
  for (const char c : std::string_view(text.data(), static_cast<std::size_t>(length))) {
    if (c == '\n' || c == ',') break;
    if (c != '\t' && c != ' ')
      library += c;
    else if (!library.empty() && library.back() != ' ')
      library += ' ';
  }
  return fmt::format("{} (MPI {}.{})", library, major, minor);
}

}  // namespace partita
