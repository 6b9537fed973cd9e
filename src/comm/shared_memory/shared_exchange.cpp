#include "src/comm/shared_memory/shared_exchange.hpp"

#include <algorithm>
#include <new>

namespace partita {

struct alignas(64) SharedExchange::Line {
  std::atomic<Index> pieces{0};
  // Set by the reader of a ring: whether the writer shall bypass the caches.
  std::atomic<bool> streams{false};
  // Set by the writer of a ring: the seconds of the last pieces on which the reader's choice depends.
  std::array<std::atomic<float>, Choice::timed> seconds{};
  static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<float>::is_always_lock_free);
};

namespace {

constexpr Index line = 64;  // bytes of a cache line

/// From this number of bytes on it matters whether the stores of a piece bypass the caches.
constexpr Index large = Index{2} << 10;

Index bytes_of(const Tensor& tensor, const Box& piece) { return piece.volume() * size_of(tensor.dtype()); }

}  // namespace

/// The rings of a rank take about 1 MiB, so that a whole halo fits and the sender need not wait for the receiver.
Index SharedExchange::bytes_of_slot(int ranks) {
  constexpr Index all = Index{1} << 20, least = Index{4} << 10;
  return std::max(all / depth / std::max(ranks - 1, 1), least) / line * line;
}

// A segment holds, for each peer, one line with the number of pieces that its owner has written for the peer and one
// with the number that its owner has read from the peer. A ring for each peer follows.
Index SharedExchange::bytes(int ranks) { return ranks * (2 * line + depth * bytes_of_slot(ranks)); }

SharedExchange::SharedExchange(int rank, std::vector<std::byte*> segments)
    : rank_(static_cast<std::size_t>(rank)),
      segments_(std::move(segments)),
      slot_bytes_(bytes_of_slot(static_cast<int>(segments_.size()))),
      out_(segments_.size()),
      in_(segments_.size()),
      sent_(segments_.size()),
      received_(segments_.size()),
      large_sent_(segments_.size(), Choice::first),
      large_received_(segments_.size(), Choice::first),
      packed_(static_cast<std::size_t>(slot_bytes_)) {
  static_assert(sizeof(Line) == line);
  for (std::size_t i = 0; i < 2 * segments_.size(); ++i) new (segments_[rank_] + static_cast<Index>(i) * line) Line;
  for (std::size_t peer = 0; peer < segments_.size(); ++peer) choices_.emplace_back(taken(peer, rank_).streams);
}

SharedExchange::Line& SharedExchange::written(std::size_t from, std::size_t to) const {
  return *reinterpret_cast<Line*>(segments_[from] + static_cast<Index>(2 * to) * line);
}
SharedExchange::Line& SharedExchange::taken(std::size_t from, std::size_t to) const {
  return *reinterpret_cast<Line*>(segments_[to] + static_cast<Index>(2 * from + 1) * line);
}
std::byte* SharedExchange::slot(std::size_t from, std::size_t to, Index piece) const {
  const auto ranks = static_cast<Index>(segments_.size());
  return segments_[from] + 2 * ranks * line + (static_cast<Index>(to) * depth + piece % depth) * slot_bytes_;
}

SharedExchange::Pieces::Pieces(const Tensor& tensor, const Box& box, Index most) : box_(box), order_(tensor.order()) {
  Index inner = 1;
  for (cut_ = box.dims() - 1; cut_ > 0; --cut_) {
    const Index extent = box.extent(order_[cut_]);
    if (inner * extent > most) break;
    inner *= extent;
  }
  const Index extent = box.extent(order_[cut_]);
  chunk_ = std::clamp(most / inner, Index{1}, extent);
  count_ = (extent + chunk_ - 1) / chunk_;
  for (int i = 0; i < cut_; ++i) count_ *= box.extent(order_[i]);
}

Box SharedExchange::Pieces::operator[](Index i) const {
  Box piece = box_;
  const int d = order_[cut_];
  const Index chunks = (box_.extent(d) + chunk_ - 1) / chunk_;
  const Index lo = box_[d].lo + i % chunks * chunk_;
  piece[d] = {lo, std::min(lo + chunk_, box_[d].hi)};
  i /= chunks;
  for (int at = cut_ - 1; at >= 0; --at) {
    const int outer = order_[at];
    const Index place = box_[outer].lo + i % box_.extent(outer);
    piece[outer] = {place, place + 1};
    i /= box_.extent(outer);
  }
  return piece;
}

std::shared_ptr<const SharedOperation> SharedExchange::start(const BoxExchange& boxes) {
  auto operation = std::make_shared<Operation>();
  operation->adds = boxes.add;
  operation->number = ++started_;
  operation->awaited = awaited_;
  for (const auto& send : boxes.sends) queue(out_, boxes.from, send, operation);
  for (const auto& recv : boxes.recvs) queue(in_, boxes.to, recv, operation);
  open_ += operation->open;
  return operation;
}

void SharedExchange::queue(std::vector<std::deque<Message>>& queues, const Tensor& tensor, const Transfer& transfer,
                           const std::shared_ptr<Operation>& operation) const {
  const auto& [peer, box] = transfer;
  require(static_cast<std::size_t>(peer) != rank_, "a rank must not send a message to itself");
  if (box.empty()) return;
  const Index most = slot_bytes_ / size_of(tensor.dtype());
  const Index place = &queues == &in_ ? operation->listed++ : 0;
  queues[peer].push_back({tensor, Pieces(tensor, box, most), operation, place});
  ++operation->open;
}

bool SharedExchange::advance() {
  bool moved = false;
  for (std::size_t peer = 0; peer < segments_.size(); ++peer) {
    if (!out_[peer].empty() && write(peer)) moved = true;
    if (!in_[peer].empty() && read(peer)) moved = true;
  }
  return moved;
}

std::vector<int> SharedExchange::missing(const SharedOperation& exchange) const {
  const auto waits = [&](const std::deque<Message>& queue) {
    return std::any_of(queue.begin(), queue.end(),
                       [&](const Message& message) { return message.operation.get() == &exchange; });
  };
  std::vector<int> peers;
  for (std::size_t peer = 0; peer < segments_.size(); ++peer)
    if (waits(in_[peer]) || waits(out_[peer])) peers.push_back(static_cast<int>(peer));
  return peers;
}

bool SharedExchange::write(std::size_t peer) {
  const Line& back = taken(rank_, peer);
  if (sent_[peer] - back.pieces.load() == depth) return false;
  const Message& message = out_[peer].front();
  const Box piece = message.pieces[message.next];
  std::byte* to = slot(rank_, peer, sent_[peer]);
  if (bytes_of(message.tensor, piece) < large)
    pack(message.tensor, piece, to, {});
  else
    write_large(peer, message.tensor, piece, to);
  written(rank_, peer).pieces.store(++sent_[peer]);
  finish_piece(out_[peer]);
  return true;
}

void SharedExchange::write_large(std::size_t peer, const Tensor& tensor, const Box& piece, std::byte* to) {
  const Index number = large_sent_[peer]++;
  const auto step = [&] {
    if (!Choice::streams(taken(rank_, peer).streams, number)) return pack(tensor, piece, to, {});
    const auto run = run_of(tensor, piece);
    if (run.empty()) pack(tensor, piece, packed_.data(), {});
    stream_copy(to, run.empty() ? packed_.data() : run.data(), bytes_of(tensor, piece));
  };
  if (!Choice::needs(number)) return step();
  written(rank_, peer).seconds[Choice::index(number)] = static_cast<float>(seconds_of(step));
}

bool SharedExchange::read(std::size_t peer) {
  if (written(peer, rank_).pieces.load() == received_[peer]) return false;
  const Message& message = in_[peer].front();
  const Operation& operation = *message.operation;
  if (operation.adds && !operation.may_add(message.place)) return false;
  const auto put = operation.adds ? unpack_add : unpack;
  const Box piece = message.pieces[message.next];
  const std::byte* from = slot(peer, rank_, received_[peer]);
  const auto step = [&] { put(from, piece, message.tensor, {}); };
  if (bytes_of(message.tensor, piece) < large)
    step();
  else
    read_large(peer, bytes_of(message.tensor, piece), step);
  taken(peer, rank_).pieces.store(++received_[peer]);
  const std::shared_ptr<Operation> whole = message.operation;
  if (finish_piece(in_[peer])) ++whole->added;
  return true;
}

template <class Step>
void SharedExchange::read_large(std::size_t peer, Index bytes, Step&& step) {
  const Index number = large_received_[peer]++;
  if (!Choice::needs(number)) return step();
  const auto& writers = written(peer, rank_).seconds[Choice::index(number)];
  choices_[peer].add(number, seconds_of(step) + static_cast<double>(writers.load()));
  choices_[peer].finish(number, bytes);
}

bool SharedExchange::finish_piece(std::deque<Message>& queue) {
  Message& message = queue.front();
  if (++message.next < message.pieces.count()) return false;
  --message.operation->open;
  --open_;
  queue.pop_front();
  return true;
}

}  // namespace partita
