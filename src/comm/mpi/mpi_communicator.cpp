#include "src/comm/mpi/mpi_communicator.hpp"

#include "src/comm/mpi/mpi_limits.hpp"
#include "src/comm/shared_memory/between_processes.hpp"
#include "src/comm/shared_memory/shared_request.hpp"
#include "src/comm/sum_of_counts.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <numeric>

namespace partita {

namespace {

/// Calls piece(offset, count) for each piece of `total` elements.
template <class Piece>
void for_pieces(Index total, Piece&& piece) {
  for (Index at = 0; at < total; at += most_mpi_elements)
    piece(at, static_cast<int>(std::min(most_mpi_elements, total - at)));
}

/// Calls block(rank, first element, number of elements) for each rank's block.
template <class Block>
void for_blocks(std::span<const Index> counts, Block&& block) {
  Index first = 0;
  for (std::size_t r = 0; r < counts.size(); first += counts[r++]) block(static_cast<int>(r), first, counts[r]);
}

/// Counts and offsets of consecutive blocks as MPI wants them.
/// @pre They are at most most_mpi_elements together.
struct MpiBlocks {
  std::vector<int> counts, offsets;

  explicit MpiBlocks(std::span<const Index> blocks) {
    Index total = 0;
    for (const Index count : blocks) {
      counts.push_back(static_cast<int>(count));
      offsets.push_back(static_cast<int>(total));
      total += count;
    }
  }
};

/// The numbers in the world of a communicator's ranks.
struct WorldRanks {
  std::vector<int> all, others;  // `others`: without this rank

  WorldRanks(MPI_Comm comm, int rank, int size) {
    MPI_Group world = MPI_GROUP_NULL, mine = MPI_GROUP_NULL;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Comm_group(comm, &mine);
    std::vector<int> here(static_cast<std::size_t>(size));
    std::iota(here.begin(), here.end(), 0);
    all.resize(here.size());
    MPI_Group_translate_ranks(mine, size, here.data(), world, all.data());
    MPI_Group_free(&world);
    MPI_Group_free(&mine);
    for (int r = 0; r < size; ++r)
      if (r != rank) others.push_back(all[r]);
  }
};

class MpiRequest : public Request::State {
 public:
  MpiRequest(std::shared_ptr<const MpiContext> context, std::shared_ptr<const WorldRanks> ranks)
      : context_(std::move(context)), ranks_(std::move(ranks)) {}

  void wait(Stream) override {
    context_->wait(requests_, [this] { return missing(); });
  }
  bool progress() override { return context_->progress(requests_); }

  /// Returns a slot for the next MPI request, to or from `peer`; -1: from all ranks.
  MPI_Request* next(int peer = -1) {
    peers_.push_back(peer);
    return &requests_.emplace_back(MPI_REQUEST_NULL);
  }
  /// Keeps arrays of counts until the communication is complete, as MPI requires.
  const MpiBlocks& keep(MpiBlocks blocks) {
    return *blocks_.emplace_back(std::make_unique<MpiBlocks>(std::move(blocks)));
  }

 private:
  std::vector<int> missing() const {
    std::vector<int> missing;
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      int done = 0;
      MPI_Request_get_status(requests_[i], &done, MPI_STATUS_IGNORE);
      if (done == 0 && peers_[i] >= 0) missing.push_back(ranks_->all[peers_[i]]);
      if (done == 0 && peers_[i] < 0) missing.insert(missing.end(), ranks_->others.begin(), ranks_->others.end());
    }
    return missing;
  }

  std::shared_ptr<const MpiContext> context_;
  std::shared_ptr<const WorldRanks> ranks_;
  std::vector<int> peers_;  // of requests_
  std::vector<MPI_Request> requests_;
  std::vector<std::unique_ptr<MpiBlocks>> blocks_;
};

class MpiCommunicator : public Communicator {
 public:
  /// Takes ownership of `comm`. `sharing`: what its ranks do if they get the memory for it.
  MpiCommunicator(MPI_Comm comm, std::shared_ptr<MpiContext> context, const Sharing& sharing)
      : comm_(comm), context_(std::move(context)) {
    check(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    MPI_Comm_rank(comm_, &rank_);
    MPI_Comm_size(comm_, &size_);
    ranks_ = std::make_shared<const WorldRanks>(comm_, rank_, size_);
    if (sharing.memory && size_ > 1) share_memory();
    if (sharing.levels && context_->by_levels()) make_levels();
  }
  ~MpiCommunicator() override {
    leave_to_mpi();
    if (!finalized()) MPI_Comm_free(&comm_);
  }
  MpiCommunicator(const MpiCommunicator&) = delete;
  MpiCommunicator& operator=(const MpiCommunicator&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  bool asynchronous() const override { return !context_->one_node(); }
  bool packs() const override { return !shared_; }
  Index shared_bytes() const override {
    return shared_ ? SharedMemory::bytes(size_) : levels_ ? levels_->shared_bytes() : 0;
  }
  Index shared_bytes_of(const std::vector<std::vector<int>>& groups) const override {
    if (!context_->shares()) return 0;
    const auto [memory, levels] = sharing(in_world(groups), context_->nodes());
    const auto size = static_cast<int>(groups.front().size());
    if (memory && size > 1) return SharedMemory::bytes(size);
    if (!levels || !context_->by_levels()) return 0;
    return 2 * SharedMemory::bytes(placement(in_world({groups.front()}).front()).on_each());
  }

  Request exchange(std::span<const Send> sends, std::span<const Recv> recvs, Stream) override {
    constexpr int tag = 1;
    auto request = std::make_unique<MpiRequest>(context_, ranks_);
    for (const auto& [peer, data] : recvs) {
      require(peer != rank_, "a rank must not send a message to itself");
      for_pieces(static_cast<Index>(data.size()), [&, to = data.data(), from = peer](Index at, int count) {
        check(MPI_Irecv(to + at, count, MPI_BYTE, from, tag, comm_, request->next(from)), "MPI_Irecv");
      });
    }
    for (const auto& [peer, data] : sends) {
      require(peer != rank_, "a rank must not send a message to itself");
      for_pieces(static_cast<Index>(data.size()), [&, from = data.data(), to = peer](Index at, int count) {
        check(MPI_Isend(from + at, count, MPI_BYTE, to, tag, comm_, request->next(to)), "MPI_Isend");
      });
    }
    return Request(std::move(request));
  }

  Request exchange_boxes(const BoxExchange& boxes, Stream stream) override {
    if (!shared_) return Communicator::exchange_boxes(boxes, stream);
    return shared_request(shared_->exchange(boxes));
  }

  Request all_reduce(void* data, Index count, DType dtype, ReduceOp op, Stream) override {
    if (shared_) return shared_request(shared_->all_reduce(data, count, dtype, op));
    if (levels_) return levels_->all_reduce(data, count, dtype, op);
    auto request = std::make_unique<MpiRequest>(context_, ranks_);
    for_pieces(count, [&](Index at, int n) {
      void* piece = static_cast<std::byte*>(data) + at * size_of(dtype);
      check(MPI_Iallreduce(MPI_IN_PLACE, piece, n, context_->type(dtype), context_->op(dtype, op), comm_,
                           request->next()),
            "MPI_Iallreduce");
    });
    return Request(std::move(request));
  }

  Request all_gather(const void* local, void* all, std::span<const Index> counts, DType dtype, Stream) override {
    if (shared_) return shared_request(shared_->all_gather(local, all, counts, dtype));
    if (levels_) return levels_->all_gather(local, all, counts, dtype);
    if (sum(counts) > most_mpi_elements) return all_gather_in_pieces(local, all, counts, dtype);
    auto request = std::make_unique<MpiRequest>(context_, ranks_);
    const auto& blocks = request->keep(MpiBlocks(counts));
    const auto type = context_->type(dtype);
    check(MPI_Iallgatherv(local, blocks.counts[rank_], type, all, blocks.counts.data(), blocks.offsets.data(), type,
                          comm_, request->next()),
          "MPI_Iallgatherv");
    return Request(std::move(request));
  }

  Request reduce_scatter(const void* all, void* local, std::span<const Index> counts, DType dtype, Stream) override {
    if (shared_) return shared_request(shared_->reduce_scatter(all, local, counts, dtype));
    if (levels_) return levels_->reduce_scatter(all, local, counts, dtype);
    if (sum(counts) > most_mpi_elements) return reduce_scatter_in_pieces(all, local, counts, dtype);
    auto request = std::make_unique<MpiRequest>(context_, ranks_);
    const auto& blocks = request->keep(MpiBlocks(counts));
    check(MPI_Ireduce_scatter(all, local, blocks.counts.data(), context_->type(dtype),
                              context_->op(dtype, ReduceOp::sum), comm_, request->next()),
          "MPI_Ireduce_scatter");
    return Request(std::move(request));
  }

  Request broadcast(void* data, Index count, DType dtype, int root, Stream) override {
    if (levels_) return levels_->broadcast(data, count, dtype, root);
    auto request = std::make_unique<MpiRequest>(context_, ranks_);
    for_pieces(count, [&](Index at, int n) {
      void* piece = static_cast<std::byte*>(data) + at * size_of(dtype);
      check(MPI_Ibcast(piece, n, context_->type(dtype), root, comm_, request->next()), "MPI_Ibcast");
    });
    return Request(std::move(request));
  }

  /// Blocks are messages, because a rank does not know whether the blocks of another rank are too many for one call.
  Request all_to_all(const void* send, std::span<const Index> send_counts, void* recv,
                     std::span<const Index> recv_counts, DType dtype, Stream stream) override {
    std::vector<Send> sends;
    std::vector<Recv> recvs;
    const auto bytes = [&](Index elements) { return static_cast<std::size_t>(elements * size_of(dtype)); };
    std::span<const std::byte> own;
    for_blocks(send_counts, [&](int peer, Index first, Index count) {
      const std::span block(static_cast<const std::byte*>(send) + bytes(first), bytes(count));
      peer == rank_ ? static_cast<void>(own = block) : sends.push_back({peer, block});
    });
    for_blocks(recv_counts, [&](int peer, Index first, Index count) {
      const std::span block(static_cast<std::byte*>(recv) + bytes(first), bytes(count));
      peer == rank_ ? static_cast<void>(std::copy(own.begin(), own.end(), block.begin()))
                    : recvs.push_back({peer, block});
    });
    return exchange(sends, recvs, stream);
  }

  std::shared_ptr<Communicator> split(int color, int key) override {
    const Waits::Scope waiting(context_->waits());
    const std::array mine{color, key, context_->shares() ? 1 : 0};
    std::vector<std::array<int, 3>> all(static_cast<std::size_t>(size_));
    std::vector<MPI_Request> request(1, MPI_REQUEST_NULL);  // a rank may first wait for a sum that this one advances
    check(MPI_Iallgather(mine.data(), 3, MPI_INT, all.data(), 3, MPI_INT, comm_, request.data()), "MPI_Iallgather");
    context_->wait(request, [this] { return ranks_->others; });
    std::vector<int> order(all.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return all[a][1] < all[b][1]; });
    std::map<int, std::vector<int>> by_color;
    for (const int rank : order) by_color[all[rank][0]].push_back(rank);
    std::vector<std::vector<int>> groups{by_color.extract(color).mapped()};
    for (auto& [of_group, ranks] : by_color) groups.push_back(std::move(ranks));
    Sharing wanted = sharing(in_world(groups), context_->nodes());
    wanted.memory = wanted.memory && std::all_of(all.begin(), all.end(), [](const auto& rank) { return rank[2] == 1; });
    auto made = std::make_shared<MpiCommunicator>(part(color, key), context_, wanted);
    // Groups that may sum the same must do it alike.
    if (count(made->has(wanted)) < size_) made->leave_to_mpi();
    return made;
  }

 private:
  /// True if the ranks have got what they wanted to share.
  bool has(const Sharing& wanted) const {
    return (!wanted.memory || size_ == 1 || shared_) && (!wanted.levels || !context_->by_levels() || levels_);
  }

  /// Counts the ranks for which `mine` is true. Collective.
  int count(bool mine) const {
    int ranks = mine ? 1 : 0;
    check(MPI_Allreduce(MPI_IN_PLACE, &ranks, 1, MPI_INT, MPI_SUM, comm_), "MPI_Allreduce");
    return ranks;
  }

  /// Gives up shared memory and levels, since groups that may sum the same have neither.
  void leave_to_mpi() {
    if (shared_) context_->remove(*shared_);
    if (levels_) context_->remove(*levels_);
    shared_.reset();
    levels_.reset();
  }

  MPI_Comm part(int color, int key) const {
    MPI_Comm made = MPI_COMM_NULL;
    check(MPI_Comm_split(comm_, color, key, &made), "MPI_Comm_split");
    return made;
  }

  /// Returns groups of ranks of this communicator as numbers of MPI_COMM_WORLD.
  std::vector<std::vector<int>> in_world(std::vector<std::vector<int>> groups) const {
    for (auto& group : groups)
      for (int& rank : group) rank = ranks_->all[rank];
    return groups;
  }

  /// Returns the placement of ranks of MPI_COMM_WORLD.
  Placement placement(const std::vector<int>& ranks) const {
    std::vector<int> nodes;
    for (const int rank : ranks) nodes.push_back(context_->nodes()[rank]);
    return Placement(nodes);
  }

  void share_memory() {
    auto [memory, failed] = share_between_processes(comm_, context_->shares());
    if (failed) context_->stop_sharing(size_, rank_ == 0);
    shared_ = std::move(memory);
    if (shared_) context_->add(*shared_);
  }

  void make_levels() {
    const Placement here = placement(ranks_->all);
    const int node = here.node(rank_), place = here.place(rank_);
    const auto inside = [&] {
      return std::make_shared<MpiCommunicator>(part(node, place), context_, Sharing{.memory = true, .levels = false});
    };
    auto first = inside(), last = inside();
    if (const int sharing = count(first->shared_ && last->shared_); sharing != 0 && sharing != size_)
      return;  // some nodes would sum in another order
    auto rail = std::make_shared<MpiCommunicator>(part(place, node), context_, Sharing());
    levels_ = std::make_shared<Levels>(here, rank_, Levels::Parts{std::move(first), std::move(rail), std::move(last)});
    context_->add(*levels_);
  }

  Request shared_request(std::shared_ptr<const SharedOperation> operation) const {
    const std::shared_ptr<const std::vector<int>> members(ranks_, &ranks_->all);
    return Request(std::make_unique<SharedRequest<const MpiContext>>(context_, members, shared_, std::move(operation)));
  }

  MPI_Comm comm_;

  // Collectives of more elements than MPI counts: one broadcast or reduction for each piece of each block. All
  // ranks cut in the same way, because they have the same counts.

  Request all_gather_in_pieces(const void* local, void* all, std::span<const Index> counts, DType dtype) {
    auto request = std::make_unique<MpiRequest>(context_, ranks_);
    for_blocks(counts, [&](int root, Index first, Index count) {
      std::byte* block = static_cast<std::byte*>(all) + first * size_of(dtype);
      if (root == rank_ && count > 0) std::memcpy(block, local, static_cast<std::size_t>(count * size_of(dtype)));
      for_pieces(count, [&](Index at, int n) {
        check(MPI_Ibcast(block + at * size_of(dtype), n, context_->type(dtype), root, comm_, request->next()),
              "MPI_Ibcast");
      });
    });
    return Request(std::move(request));
  }

  Request reduce_scatter_in_pieces(const void* all, void* local, std::span<const Index> counts, DType dtype) {
    auto request = std::make_unique<MpiRequest>(context_, ranks_);
    for_blocks(counts, [&](int root, Index first, Index count) {
      for_pieces(count, [&](Index at, int n) {
        const std::byte* from = static_cast<const std::byte*>(all) + (first + at) * size_of(dtype);
        std::byte* to = root == rank_ ? static_cast<std::byte*>(local) + at * size_of(dtype) : nullptr;
        check(MPI_Ireduce(from, to, n, context_->type(dtype), context_->op(dtype, ReduceOp::sum), root, comm_,
                          request->next()),
              "MPI_Ireduce");
      });
    });
    return Request(std::move(request));
  }

  std::shared_ptr<MpiContext> context_;
  std::shared_ptr<const WorldRanks> ranks_;
  std::shared_ptr<SharedMemory> shared_;
  std::shared_ptr<Levels> levels_;
  int rank_ = 0, size_ = 1;
};

}  // namespace

std::shared_ptr<Communicator> make_mpi_communicator(MPI_Comm comm, std::shared_ptr<MpiContext> context) {
  int rank = 0, size = 0;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  const std::vector<std::vector<int>> groups{WorldRanks(comm, rank, size).all};
  const Sharing shared = sharing(groups, context->nodes());
  return std::make_shared<MpiCommunicator>(comm, std::move(context), shared);
}

}  // namespace partita
