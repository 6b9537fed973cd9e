#include "src/comm/levels/levels.hpp"

#include "src/comm/blocks.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace partita {

namespace {

/// Divides `count` elements into `parts` blocks that differ by one element at most.
std::vector<Index> even_counts(Index count, int parts) {
  std::vector<Index> counts;
  for (int i = 0; i < parts; ++i) counts.push_back(count * (i + 1) / parts - count * i / parts);
  return counts;
}

/// Sets a flag in its scope.
class Mark {
 public:
  explicit Mark(bool& flag) : flag_(flag) { flag = true; }
  ~Mark() { flag_ = false; }
  Mark(const Mark&) = delete;
  Mark& operator=(const Mark&) = delete;

 private:
  bool& flag_;
};

std::vector<Index> in_order(std::span<const int> order, std::span<const Index> counts) {
  std::vector<Index> ordered;
  for (const int rank : order) ordered.push_back(counts[rank]);
  return ordered;
}

std::vector<std::byte> room(Index elements, DType dtype) {
  return std::vector<std::byte>(static_cast<std::size_t>(elements * size_of(dtype)));
}

}  // namespace

class Levels::Waiting final : public Request::State {
 public:
  Waiting(std::shared_ptr<Levels> levels, std::shared_ptr<Operation> operation)
      : levels_(std::move(levels)), operation_(std::move(operation)) {}
  void wait(Stream) override { levels_->wait(*operation_); }
  bool progress() override {
    levels_->progress();
    return operation_->done;
  }

 private:
  std::shared_ptr<Levels> levels_;
  std::shared_ptr<Operation> operation_;
};

Levels::Levels(Placement placement, int rank, Parts parts)
    : placement_(std::move(placement)),
      node_(placement_.node(rank)),
      place_(placement_.place(rank)),
      parts_(std::move(parts)) {}

Request Levels::all_reduce(void* data, Index count, DType dtype, ReduceOp op) {
  auto made = std::make_shared<Operation>();
  Communicator &inside = *parts_.first, &along = *parts_.rail, &back = *parts_.last;
  if (op != ReduceOp::sum || count * size_of(dtype) <= small_bytes) {
    made->steps = {{first, [=, &inside] { return inside.all_reduce(data, count, dtype, op, {}); }},
                   {rail, [=, &along] { return along.all_reduce(data, count, dtype, op, {}); }}};
    return start(std::move(made));
  }
  const auto counts = even_counts(count, placement_.on_each());
  const Index own = counts[place_];
  made->share = room(own, dtype);
  std::byte* share = made->share.data();
  made->steps = {{first, [=, &inside] { return inside.reduce_scatter(data, share, counts, dtype, {}); }},
                 {rail, [=, &along] { return along.all_reduce(share, own, dtype, op, {}); }},
                 {last, [=, &back] { return back.all_gather(share, data, counts, dtype, {}); }}};
  return start(std::move(made));
}

Request Levels::reduce_scatter(const void* all, void* local, std::span<const Index> counts, DType dtype) {
  const auto made = packing(counts, dtype);
  const auto of_places = counts_of_places(counts), of_rail = counts_of_rail(place_, counts);
  const auto order = packed_order();
  const auto from = blocks_of(all, counts, dtype);
  const auto to = blocks_of(made->packed.data(), in_order(order, counts), dtype);
  for (std::size_t i = 0; i < order.size(); ++i) copy_bytes(from[order[i]], to[static_cast<int>(i)]);
  std::byte *share = made->share.data(), *packed = made->packed.data();
  Communicator &inside = *parts_.first, &along = *parts_.rail;
  made->steps = {{first, [=, &inside] { return inside.reduce_scatter(packed, share, of_places, dtype, {}); }},
                 {rail, [=, &along] { return along.reduce_scatter(share, local, of_rail, dtype, {}); }}};
  return start(made);
}

Request Levels::all_gather(const void* local, void* all, std::span<const Index> counts, DType dtype) {
  const auto made = packing(counts, dtype);
  const auto of_places = counts_of_places(counts), of_rail = counts_of_rail(place_, counts);
  std::byte *share = made->share.data(), *packed = made->packed.data();
  Communicator &along = *parts_.rail, &back = *parts_.last;
  made->steps = {{rail, [=, &along] { return along.all_gather(local, share, of_rail, dtype, {}); }},
                 {last, [=, &back] { return back.all_gather(share, packed, of_places, dtype, {}); }}};
  made->end = [order = packed_order(), to = blocks_of(all, counts, dtype),
               from = blocks_of(packed, in_order(packed_order(), counts), dtype)] {
    for (std::size_t i = 0; i < order.size(); ++i) copy_bytes(from[static_cast<int>(i)], to[order[i]]);
  };
  return start(made);
}

Request Levels::broadcast(void* data, Index count, DType dtype, int root) {
  auto made = std::make_shared<Operation>();
  const int of_rail = placement_.node(root), of_node = placement_.place(root);
  Communicator &along = *parts_.rail, &back = *parts_.last;
  if (of_node == place_)
    made->steps.push_back({rail, [=, &along] { return along.broadcast(data, count, dtype, of_rail, {}); }});
  made->steps.push_back({last, [=, &back] { return back.broadcast(data, count, dtype, of_node, {}); }});
  return start(std::move(made));
}

Request Levels::start(std::shared_ptr<Operation> operation) {
  under_way_.push_back(operation);
  progress();
  return Request(std::make_unique<Waiting>(shared_from_this(), std::move(operation)));
}

/// True if each of the operations before has started all of its steps that run in the part of the next step, or before.
bool Levels::may_start(std::size_t number) const {
  const Operation& own = *under_way_[number];
  return std::all_of(under_way_.begin(), under_way_.begin() + static_cast<std::ptrdiff_t>(number),
                     [&](const auto& before) {
                       return before->started == before->steps.size() ||
                              before->steps[before->started].part > own.steps[own.started].part;
                     });
}

/// Starts the next step of an operation if the last one has ended. Returns false if there is nothing to do now.
bool Levels::advance(std::size_t number) {
  Operation& own = *under_way_[number];
  if (own.done || own.waits || !own.request.progress()) return false;
  own.request.wait();
  if (own.started == own.steps.size()) {
    if (own.end) own.end();
    return own.done = true;
  }
  if (!may_start(number)) return false;
  own.request = own.steps[own.started++].start();
  return true;
}

void Levels::progress() {
  if (advancing_) return;  // a step of this rank asks for progress
  const Mark mark(advancing_);
  for (std::size_t i = 0; i < under_way_.size(); ++i)
    while (advance(i)) continue;
  while (!under_way_.empty() && under_way_.front()->done) under_way_.pop_front();
}

void Levels::wait(const Operation& operation) {
  for (progress(); !operation.done; progress()) {
    // An operation that waits for no other one: it has a step under way.
    const auto front = under_way_.front();
    const Mark mark(front->waits);
    front->request.wait();
  }
}

/// An operation with room for packed blocks, and for those of the own rail.
std::shared_ptr<Levels::Operation> Levels::packing(std::span<const Index> counts, DType dtype) const {
  auto made = std::make_shared<Operation>();
  made->share = room(counts_of_places(counts)[place_], dtype);
  made->packed = room(std::accumulate(counts.begin(), counts.end(), Index{0}), dtype);
  return made;
}

/// The counts of the ranks at one place of all nodes.
std::vector<Index> Levels::counts_of_rail(int place, std::span<const Index> counts) const {
  std::vector<Index> of_rail;
  for (int node = 0; node < placement_.nodes(); ++node) of_rail.push_back(counts[placement_.rank(node, place)]);
  return of_rail;
}

/// The counts of all rails, by place.
std::vector<Index> Levels::counts_of_places(std::span<const Index> counts) const {
  std::vector<Index> of_places;
  for (int place = 0; place < placement_.on_each(); ++place) {
    const auto of_rail = counts_of_rail(place, counts);
    of_places.push_back(std::accumulate(of_rail.begin(), of_rail.end(), Index{0}));
  }
  return of_places;
}

/// The ranks in the order of places and then of nodes, in which blocks are packed.
std::vector<int> Levels::packed_order() const {
  std::vector<int> order;
  for (int place = 0; place < placement_.on_each(); ++place)
    for (int node = 0; node < placement_.nodes(); ++node) order.push_back(placement_.rank(node, place));
  return order;
}

}  // namespace partita
