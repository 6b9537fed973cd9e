#pragma once

#include "src/comm/shared_memory/shared_operation.hpp"
#include "src/comm/shared_memory/streaming.hpp"

#include "partita/comm/communicator.hpp"

#include <algorithm>
#include <atomic>
#include <deque>
#include <memory>
#include <vector>

namespace partita {

/// Boxes from rank to rank of one node: the sender packs a box, piece by piece, into the next slots of a ring that it
/// shares with the receiver, who unpacks them; so each element is copied twice, by two ranks at a time, where messages of
/// packed boxes copy four times.
class SharedExchange {
 public:
  /// Bytes that each of `ranks` shares.
  static Index bytes(int ranks);
  /// `segments[r]` are rank r's, aligned to a line of the cache. Whoever makes it lets all ranks do so before the first
  /// exchange.
  SharedExchange(int rank, std::vector<std::byte*> segments);

  /// Boxes that are added are so in the order in which they are listed, and not before this exchange or a later one is waited
  /// for: a sum does not depend on who comes first.
  std::shared_ptr<const SharedOperation> start(const BoxExchange& boxes);
  /// Moves one piece to and one from every rank, where there is one and room for it; false if there was none.
  bool advance();
  bool idle() const { return open_ == 0; }

 private:
  struct Operation final : SharedOperation {
    Index open = 0;  // messages
    bool adds = false;
    Index number = 0;             // in the order of their start
    Index listed = 0, added = 0;  // messages to be added, and those that were
    std::shared_ptr<Index> awaited;
    bool done() const override { return open == 0; }
    void await() const override { *awaited = std::max(*awaited, number); }
    bool may_add(Index place) const { return added == place && *awaited >= number; }
  };
  /// A box cut into pieces that fit a slot, in the order of memory and alike at both ends.
  class Pieces {
   public:
    Pieces(const Tensor& tensor, const Box& box, Index most);
    Index count() const { return count_; }
    Box operator[](Index i) const;

   private:
    Box box_;
    std::array<int, max_dims> order_;
    int cut_ = 0;  // position in the order of the dimension that is cut; those before have extent 1 in a piece
    Index chunk_ = 1, count_ = 1;
  };
  struct Message {
    Tensor tensor;
    Pieces pieces;
    std::shared_ptr<Operation> operation;
    Index place = 0;  // among those that the operation adds
    Index next = 0;   // piece
  };
  struct Line;  // of the cache
  static Index bytes_of_slot(int ranks);
  static constexpr Index depth = 16;  // slots of a ring
  using Choice = StreamingChoice<depth>;

  void queue(std::vector<std::deque<Message>>& queues, const Tensor& tensor, const Transfer& transfer,
             const std::shared_ptr<Operation>& operation) const;
  bool write(std::size_t peer);
  void write_large(std::size_t peer, const Tensor& tensor, const Box& piece, std::byte* to);
  bool read(std::size_t peer);
  template <class Step>
  void read_large(std::size_t peer, Index bytes, Step&& step);
  /// True if it was the message's last.
  bool finish_piece(std::deque<Message>& queue);
  Line& written(std::size_t from, std::size_t to) const;
  Line& taken(std::size_t from, std::size_t to) const;
  std::byte* slot(std::size_t from, std::size_t to, Index piece) const;

  std::size_t rank_;
  std::vector<std::byte*> segments_;
  Index slot_bytes_;
  std::vector<std::deque<Message>> out_, in_;                    // by peer, in the order of their start
  std::vector<Index> sent_, received_;                           // pieces so far, by peer
  std::vector<Index> large_sent_, large_received_;               // of these those that may go past the caches
  std::vector<Choice> choices_;                                  // by peer: how he shall write for this rank
  std::vector<std::byte> packed_;                                // a piece, before it goes past the caches
  Index open_ = 0;                                               // messages
  Index started_ = 0;                                            // operations
  std::shared_ptr<Index> awaited_ = std::make_shared<Index>(0);  // the last of those that somebody waits for
};

}  // namespace partita
