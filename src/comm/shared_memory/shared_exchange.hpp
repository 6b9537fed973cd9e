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

/// Moves boxes between ranks of one node. The sender packs a box, piece by piece, into the next slots of a ring that it
/// shares with the receiver, and the receiver unpacks them. So each element is copied twice, and both ranks copy at the
/// same time. Messages of packed boxes copy each element four times.
class SharedExchange {
 public:
  /// Returns the bytes of shared memory that each rank provides.
  static Index bytes(int ranks);
  /// `segments[r]` is the memory that rank r provides, aligned to a cache line.
  /// @pre All ranks have constructed their SharedExchange before any of them starts an exchange.
  SharedExchange(int rank, std::vector<std::byte*> segments);

  /// Starts an exchange. Received boxes that are added are added in the order in which they are listed, and not before
  /// the rank waits for this exchange or a later one. So a sum does not depend on which message arrives first.
  std::shared_ptr<const SharedOperation> start(const BoxExchange& boxes);
  /// Moves at most one piece to and one piece from every rank, if there is one and the ring has room. Returns false if
  /// it moved nothing.
  bool advance();
  bool idle() const { return open_ == 0; }
  /// Returns the ranks to or from which an exchange has messages that are not complete.
  std::vector<int> missing(const SharedOperation& exchange) const;

 private:
  struct Operation final : SharedOperation {
    Index open = 0;  // messages that are not complete
    bool adds = false;
    Index number = 0;             // counts the operations in the order of their start
    Index listed = 0, added = 0;  // received messages: in total, and those that were unpacked completely
    std::shared_ptr<Index> awaited;
    bool done() const override { return open == 0; }
    void await() const override { *awaited = std::max(*awaited, number); }
    bool may_add(Index place) const { return added == place && *awaited >= number; }
  };
  /// A box cut into pieces that fit a slot, in memory order. Sender and receiver cut in the same way.
  class Pieces {
   public:
    Pieces(const Tensor& tensor, const Box& box, Index most);
    Index count() const { return count_; }
    Box operator[](Index i) const;

   private:
    Box box_;
    std::array<int, max_dims> order_;
    int cut_ = 0;  // the dimension order_[cut_] is cut; slower dimensions have extent 1 in a piece
    Index chunk_ = 1, count_ = 1;
  };
  struct Message {
    Tensor tensor;
    Pieces pieces;
    std::shared_ptr<Operation> operation;
    Index place = 0;  // position among the received messages of the operation
    Index next = 0;   // the next piece
  };
  struct Line;  // counters that fill a cache line
  static Index bytes_of_slot(int ranks);
  static constexpr Index depth = 16;  // slots per ring
  using Choice = StreamingChoice<depth>;

  void queue(std::vector<std::deque<Message>>& queues, const Tensor& tensor, const Transfer& transfer,
             const std::shared_ptr<Operation>& operation) const;
  bool write(std::size_t peer);
  void write_large(std::size_t peer, const Tensor& tensor, const Box& piece, std::byte* to);
  bool read(std::size_t peer);
  template <class Step>
  void read_large(std::size_t peer, Index bytes, Step&& step);
  /// Counts a piece of the first message as moved. Returns true if it was the last piece of the message.
  bool finish_piece(std::deque<Message>& queue);
  /// The counters of the ring between two ranks: `written` is the sender's, `taken` the receiver's.
  Line& written(std::size_t from, std::size_t to) const;
  Line& taken(std::size_t from, std::size_t to) const;
  std::byte* slot(std::size_t from, std::size_t to, Index piece) const;

  std::size_t rank_;
  std::vector<std::byte*> segments_;
  Index slot_bytes_;
  std::vector<std::deque<Message>> out_, in_;                    // by peer, in the order of their start
  std::vector<Index> sent_, received_;                           // by peer: number of pieces so far
  std::vector<Index> large_sent_, large_received_;               // by peer: number of large pieces so far
  std::vector<Choice> choices_;                                  // by peer: how the peer shall write for this rank
  std::vector<std::byte> packed_;                                // a packed piece, before it is streamed to a slot
  Index open_ = 0;                                               // messages that are not complete
  Index started_ = 0;                                            // operations so far
  std::shared_ptr<Index> awaited_ = std::make_shared<Index>(0);  // number of the last operation that is waited for
};

}  // namespace partita
