#include "partita/comm/mpi.hpp"

#include "partita/base/speaker.hpp"
#include "src/comm/mpi_context.hpp"
#include "src/comm/watchdog.hpp"
#include "src/comm/witness.hpp"

#include <fcntl.h>
#include <unistd.h>

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

/// The maximum number of elements of one MPI call. MPI counts in int, so larger messages travel in pieces.
constexpr Index max_piece = Index{1} << 30;

/// Calls piece(offset, count) for each piece of `total` elements.
template <class Piece>
void for_pieces(Index total, Piece&& piece) {
  for (Index at = 0; at < total; at += max_piece) piece(at, static_cast<int>(std::min(max_piece, total - at)));
}

/// Counts and offsets of consecutive blocks as MPI wants them. Throws Error, which begins with `verb`, if they exceed
/// int.
struct Blocks {
  std::vector<int> counts, offsets;

  Blocks(std::span<const Index> blocks, std::string_view verb) {
    Index total = 0;
    for (const Index count : blocks) {
      if (total + count > INT_MAX)
        fail("{} has more than {} elements, the limit of MPI's int counts; shard the tensor further", verb, INT_MAX);
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

  /// Returns a slot for the next MPI request.
  MPI_Request* next() { return &requests_.emplace_back(MPI_REQUEST_NULL); }
  /// Keeps arrays of counts until the communication is complete, as MPI requires.
  const Blocks& keep(Blocks blocks) { return *blocks_.emplace_back(std::make_unique<Blocks>(std::move(blocks))); }

 private:
  std::shared_ptr<const Context> context_;
  std::vector<MPI_Request> requests_;
  std::vector<std::unique_ptr<Blocks>> blocks_;
};

class SharedRequest : public Request::State {
 public:
  SharedRequest(std::shared_ptr<const Context> context, std::shared_ptr<SharedMemory> shared,
                std::shared_ptr<const SharedOperation> operation)
      : context_(std::move(context)), shared_(std::move(shared)), operation_(std::move(operation)) {}

  void wait() override {
    operation_->await();
    context_->wait(*shared_, *operation_);
  }
  void progress() override { context_->progress(); }

 private:
  std::shared_ptr<const Context> context_;
  std::shared_ptr<SharedMemory> shared_;
  std::shared_ptr<const SharedOperation> operation_;
};

/// Keeps MPI from printing a line of its own after ours when a job is aborted: it only repeats the status.
void mute_standard_error() {
  const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (nowhere >= 0) dup2(nowhere, STDERR_FILENO);
}

class MpiCommunicator : public Communicator {
 public:
  /// Takes ownership of `comm`.
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
  bool asynchronous() const override { return !context_->one_node(); }

  Request exchange(std::span<const Send> sends, std::span<const Recv> recvs, Stream) override {
    constexpr int tag = 1;
    auto request = std::make_unique<MpiRequest>(context_);
    for (const auto& [peer, data] : recvs) {
      require(peer != rank_, "a rank must not send a message to itself");
      for_pieces(static_cast<Index>(data.size()), [&, to = data.data(), from = peer](Index at, int count) {
        check(MPI_Irecv(to + at, count, MPI_BYTE, from, tag, comm_, request->next()), "MPI_Irecv");
      });
    }
    for (const auto& [peer, data] : sends) {
      require(peer != rank_, "a rank must not send a message to itself");
      for_pieces(static_cast<Index>(data.size()), [&, from = data.data(), to = peer](Index at, int count) {
        check(MPI_Isend(from + at, count, MPI_BYTE, to, tag, comm_, request->next()), "MPI_Isend");
      });
    }
    return Request(std::move(request));
  }

  Request exchange_boxes(const BoxExchange& boxes, Stream stream) override {
    if (!shared_) return Communicator::exchange_boxes(boxes, stream);
    return Request(std::make_unique<SharedRequest>(context_, shared_, shared_->exchange(boxes)));
  }

  Request all_reduce(void* data, Index count, DType dtype, ReduceOp op, Stream) override {
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
    if (shared_)
      return Request(
          std::make_unique<SharedRequest>(context_, shared_, shared_->all_gather(local, all, counts, dtype)));
    auto request = std::make_unique<MpiRequest>(context_);
    const auto& blocks = request->keep(Blocks(counts, "an all_gather"));
    const auto type = context_->type(dtype);
    check(MPI_Iallgatherv(local, blocks.counts[static_cast<std::size_t>(rank_)], type, all, blocks.counts.data(),
                          blocks.offsets.data(), type, comm_, request->next()),
          "MPI_Iallgatherv");
    return Request(std::move(request));
  }

  Request reduce_scatter(const void* all, void* local, std::span<const Index> counts, DType dtype, Stream) override {
    if (shared_)
      return Request(
          std::make_unique<SharedRequest>(context_, shared_, shared_->reduce_scatter(all, local, counts, dtype)));
    auto request = std::make_unique<MpiRequest>(context_);
    const auto& blocks = request->keep(Blocks(counts, "a reduce_scatter"));
    check(MPI_Ireduce_scatter(all, local, blocks.counts.data(), context_->type(dtype),
                              context_->op(dtype, ReduceOp::sum), comm_, request->next()),
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
    const Waits::Scope waiting(context_->waits());
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

const MpiSession* open_session = nullptr;
std::terminate_handler handler_without_session = nullptr;

/// Ends the whole job if nobody catches an exception while a session is open: the other ranks would wait for this one.
void abort_session() {
  if (open_session != nullptr && std::current_exception()) {
    try {
      throw;
    } catch (const Error& error) {
      open_session->abort(error.what(), 2);
    } catch (...) {
      open_session->abort(message_of_exception(), EXIT_FAILURE);
    }
  }
  handler_without_session();
}

}  // namespace

MpiSession::MpiSession(int& argc, char**& argv) {
  int initialized = 0;
  MPI_Initialized(&initialized);
  if (initialized == 0) {
    witness_ = std::make_unique<Witness>();
    int level = MPI_THREAD_SINGLE;
    check(MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level), "MPI_Init_thread");
    ours_ = true;
    if (level < MPI_THREAD_FUNNELED)
      abort("this MPI library does not support threads in its processes (MPI_THREAD_FUNNELED)", 2);
  }
  // MPI reports failures that belong to no communicator, e.g. of waiting for several requests, to these two.
  for (const MPI_Comm comm : {MPI_COMM_WORLD, MPI_COMM_SELF})
    check(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  MPI_Comm world = MPI_COMM_NULL;
  check(MPI_Comm_dup(MPI_COMM_WORLD, &world), "MPI_Comm_dup");
  context_ = std::make_shared<Context>(world);
  world_ = std::make_shared<MpiCommunicator>(world, context_);
  if (witness_) witness_->introduce(world_->rank());
  open_session = this;
  handler_without_session = std::set_terminate(abort_session);
}

MpiSession::~MpiSession() {
  // MPI_Finalize waits for all ranks. A rank that has failed would wait in it for peers that wait for this rank.
  if (std::uncaught_exceptions() > 0) abort("an exception left the MPI session", EXIT_FAILURE);
  std::set_terminate(handler_without_session);
  open_session = nullptr;
  if (!ours_ || finalized()) return;
  try {
    finalize();
  } catch (const CommunicationError& error) {
    abort(error.what(), EXIT_FAILURE);
  }
}

void MpiSession::limit_waiting(int seconds) {
  watchdog_.reset();
  if (seconds == 0) return;
  watchdog_ = std::make_unique<Watchdog>(context_->waits(), std::chrono::seconds(seconds), [this, seconds] {
    std::fflush(stdout);
    if (!witness_ || !witness_->waited(seconds))
      fmt::print(stderr, "partita: a rank {}; the job ends\n", fmt::format(waited_too_long, seconds));
    std::_Exit(EXIT_FAILURE);
  });
}

/// Calls MPI_Finalize. If it hangs, ends the process, since all ranks have done their work by then. UCX's TCP transport
/// is known to hang there: with MPICH 4.0.2 in half of all runs over two hosts (openucx/ucx issue 8738).
void MpiSession::finalize() {
  std::int32_t here = 0;
  world_->all_reduce(&here, 1, DType::i32, ReduceOp::sum, {}).wait();
  const int rank = world_->rank();
  // Seconds. Rank 0 prints its message before the other ranks exit, since the launcher may then end the job.
  const int patience = rank == 0 ? 10 : 12;
  watchdog_.reset();
  witness_.reset();
  Waits waits;
  const Watchdog watchdog(waits, std::chrono::seconds(patience), [this, rank, patience] {
    if (rank == 0)
      fmt::print(stderr,
                 "partita: all ranks have finished, but MPI_Finalize has not returned for {} s; exiting without it "
                 "(a known problem of UCX over TCP: openucx/ucx issue 8738)\n",
                 patience);
    std::fflush(nullptr);
    std::_Exit(status_);
  });
  const Waits::Scope waiting(waits);
  world_.reset();
  context_.reset();
  MPI_Finalize();
}

void MpiSession::abort(const std::string& message, int status) const {
  if (witness_) witness_->dismiss_all();
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const auto line = fmt::format("rank {}: {}\n", rank, message);
  std::fflush(stdout);
  if (speaks_for_job()) std::fputs(line.c_str(), stderr);  // other ranks may fail alike
  std::fflush(stderr);
  // When a job is aborted, launchers drop output that they have not forwarded yet. Also, the witness of this rank needs
  // time to silence the other witnesses.
  std::this_thread::sleep_for(std::chrono::milliseconds(250));
  mute_standard_error();
  MPI_Abort(MPI_COMM_WORLD, status);
  std::_Exit(status);
}

std::string mpi_version() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0, major = 0, minor = 0;
  MPI_Get_library_version(text.data(), &length);
  MPI_Get_version(&major, &minor);
  // MPICH writes a table with tabs, Open MPI a list with commas. Both begin with the name and version.
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
