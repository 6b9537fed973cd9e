#include "strategies/cost/build_terms.hpp"

#include "partita/strategies/plan/traffic.hpp"
#include "strategies/cost/local_work.hpp"
#include "strategies/cost/representatives.hpp"
#include "strategies/cost/symmetry.hpp"
#include "strategies/plan/layer_ops.hpp"
#include "strategies/plan/op_traffic.hpp"

#include <algorithm>
#include <iterator>
#include <unordered_map>

namespace partita {

CostTermBuilder::CostTermBuilder(const Plan& plan, const Machine& machine, const KernelTimes& times, bool split,
                                 const Grid* whole, Examined examined)
    : plan_(plan),
      machine_(machine),
      actions_(microbatch_actions(plan.workload.training, split)),
      whole_(whole),
      examined_(whole == nullptr ? examined : Examined::first_and_inner),
      spans_(plan, machine),
      kernels_(plan, times, actions_) {
  terms_.options.reserve(plan.layers.size());
  terms_.dtype = plan.workload.dtype;
  terms_.ranks = whole == nullptr ? plan.ranks() : whole->first_rank() + whole->size();
}

namespace {

/// Returns the computation of the operation `op` that hides a transfer of a layer that travels at that time; nothing if
/// none does.
std::optional<Computation> hides_behind(const LayerPlan& layer, const PlannedTraffic& item, const StepOp& op) {
  using Kind = StepOp::Kind;
  const HaloOverlap overlap = layer.op->halo_overlap();
  switch (item.purpose) {
    case Purpose::halo_x:
      if (!overlap.x || op.kind != Kind::forward) return std::nullopt;
      return op.recompute ? Computation::recomputed_forward : Computation::forward;
    case Purpose::halo_dy:
      if (!overlap.dy || op.kind != Kind::backward_filter) return std::nullopt;
      return Computation::backward_filter;
    case Purpose::halo_dx:
      if (!overlap.dx || op.kind != Kind::backward_data) return std::nullopt;
      return Computation::backward_data;
    case Purpose::ring:
    case Purpose::ring_sums:
      if (op.kind == Kind::backward_data) return Computation::backward_data;
      return op.recompute ? Computation::recomputed_forward : Computation::forward;
    case Purpose::gather:  // the layer before computes meanwhile, which is taken to compute as long as this one
      if (op.recompute) return Computation::recomputed_forward;
      return item.pass == Pass::forward         ? Computation::forward
             : item.pass == Pass::backward_data ? Computation::backward_data
                                                : Computation::backward_filter;
    case Purpose::scatter:
      return op.kind == Kind::backward_data ? std::optional(Computation::backward_data) : std::nullopt;
    default: return std::nullopt;
  }
}

/// Returns the number of a pass that an item of traffic counts toward.
double PassCost::*part_of(Purpose purpose) {
  switch (purpose) {
    case Purpose::halo_x:
    case Purpose::halo_dy:
    case Purpose::halo_dx: return &PassCost::halo;
    case Purpose::ring:
    case Purpose::ring_sums:
    case Purpose::product: return &PassCost::product;
    case Purpose::input:
    case Purpose::output:
    case Purpose::stages: return &PassCost::redistribution;
    default: return &PassCost::collective;
  }
}

/// Sets how much of a ring's movement hides. With the last block nothing travels but its gradient, which nothing hides.
void set_shares(LayerMovement& movement, const PlannedTraffic& item) {
  const double hops = item.turns;
  if (item.purpose == Purpose::ring) movement.meanwhile = hops / (hops + 1);
  if (item.purpose != Purpose::ring_sums) return;
  movement.travels = (hops - 1) / hops;
  movement.meanwhile = (hops - 1) / (hops + 1);
}

/// Returns the pass of a microbatch toward which an item counts. The sums that complete an output before it goes to
/// another stage count toward forward.
Pass microbatch_pass(Pass pass) { return pass == Pass::stages ? Pass::forward : pass; }

/// True if all uses of links of `a` are those of `b`, or fewer messages of the same size. Fewer bytes per message do
/// not suffice, since measured times need not grow with the bytes.
bool within(const CollectiveOption& a, const CollectiveOption& b, const CostTerms& terms, bool fewer) {
  const auto use = [&](int index) { return terms.uses[index]; };
  if (a.end - a.first != b.end - b.first) return false;
  for (int i = 0; i < a.end - a.first; ++i) {
    const LinkUse mine = use(a.first + i), other = use(b.first + i);
    if (mine == other) continue;
    if (!fewer || mine.link != other.link || mine.rounds > other.rounds ||
        mine.bytes * other.rounds != other.bytes * mine.rounds || mine.of_unit > other.of_unit)
      return false;
  }
  return true;
}

/// True if `a` takes no longer than `b` on any machine: it is the same, or an exchange with fewer messages of the same
/// size on the same links.
bool within(const LayerMovement& a, const LayerMovement& b, const CostTerms& terms) {
  const Movement &mine = a.movement, &other = b.movement;
  if (mine.route != other.route || a.pass != b.pass || a.part != b.part || a.hidden_by != b.hidden_by ||
      a.input != b.input || a.travels != b.travels || a.meanwhile != b.meanwhile)
    return false;
  const auto options = [&](const Movement& of) {
    return std::span(terms.options)
        .subspan(static_cast<std::size_t>(of.first), static_cast<std::size_t>(of.end - of.first));
  };
  const auto each = options(mine), others = options(other);
  if (terms.routes[mine.route].verb == Verb::exchange)  // options are directions
    return std::all_of(each.begin(), each.end(), [&](const auto& x) {
      return std::any_of(others.begin(), others.end(), [&](const auto& y) { return within(x, y, terms, true); });
    });
  if (mine.messages != other.messages || mine.bytes != other.bytes) return false;
  return mine.first == other.first ||
         std::equal(each.begin(), each.end(), others.begin(), others.end(),
                    [&](const auto& x, const auto& y) { return within(x, y, terms, false); });
}

/// True if rank `a` takes no longer than rank `b` on any machine: their kernels are equal, and each movement of `a` is
/// within a different movement of `b`, in the same order.
bool within(const RankTerms& a, const RankTerms& b, const CostTerms& terms) {
  if (!(a.kernel == b.kernel)) return false;
  auto at = b.movements.begin();
  for (const LayerMovement& each : a.movements) {
    at = std::find_if(at, b.movements.end(), [&](const LayerMovement& other) { return within(each, other, terms); });
    if (at == b.movements.end()) return false;
    ++at;
  }
  return true;
}

/// One entry per set of equivalent ranks. Ranks that do the same work share the entry of the first of them.
template <class T>
class EquivalentRanks {
 public:
  /// Returns the entry of the set whose first rank is `first`, and whether it was just created. The next call
  /// invalidates the pointer.
  std::pair<T*, bool> entry(int first) {
    for (auto& [rank, entry] : entries_)
      if (rank == first) return {&entry, false};
    entries_.emplace_back(first, T{});
    return {&entries_.back().second, true};
  }

 private:
  std::vector<std::pair<int, T>> entries_;
};

}  // namespace

std::vector<Movement> GradReduceTerms::*list_of(const StepOp& op) {
  switch (op.kind) {
    case StepOp::Kind::sum_gradients: return &GradReduceTerms::sums;
    case StepOp::Kind::add_replicas:
    case StepOp::Kind::add_copies: return &GradReduceTerms::replicas;
    case StepOp::Kind::share_loss: return &GradReduceTerms::loss;
    default: return &GradReduceTerms::after;
  }
}

int CostTermBuilder::number(const Route& route) {
  const auto at = std::find(terms_.routes.begin(), terms_.routes.end(), route) - terms_.routes.begin();
  if (at == std::ssize(terms_.routes)) terms_.routes.push_back(route);
  return static_cast<int>(at);
}

namespace {

/// The messages of an exchange in one direction that cross one level. If pairs of ranks have links of their own, these
/// are busy at the same time, so that the pair that takes longest counts.
struct LevelMessages {
  Link link;
  Traffic traffic;
  double of_unit = 0;  // LinkUse::of_unit

  void add(const Level& level, const Link& to, const Traffic& more) {
    const Index messages = traffic.messages + more.messages;
    if (level.pairs.empty()) {
      link.sharing = std::max(link.sharing, to.sharing);
      traffic.bytes += more.bytes;
    } else if (more.bytes * link.width >= traffic.bytes * to.width) {
      *this = {to, more};
    }
    traffic.messages = messages;
  }
};

/// Returns the messages that a rank sends, or those that it receives, by level. If `of_unit` is empty, the messages of
/// a level share its links with as many ranks as the farthest of them demands.
std::vector<LevelMessages> messages_by_level(const Machine& machine, const PlannedTraffic& item, int world_rank,
                                             Direction direction, const BytesOfUnit& of_unit) {
  std::vector<LevelMessages> all;
  int farthest = 0;
  const auto of_level = [&](int level) {
    return std::find_if(all.begin(), all.end(), [&](const auto& each) { return each.link.level == level; });
  };
  for (const PeerTraffic& peer : item.peers) {
    const Traffic& traffic = peer.*direction;
    if (traffic.messages == 0) continue;
    Link link = links_of(machine, world_rank, world_rank + peer.peer);
    if (of_unit) link.sharing = 1;
    farthest = std::max(farthest, link.level);
    const auto found = of_level(link.level);
    found == all.end() ? all.push_back({link, traffic}) : found->add(machine.levels[link.level], link, traffic);
  }
  for (int level = 1; of_unit && level <= farthest; ++level) {  // messages also pass the units further inside
    const double bytes = of_unit(level, direction);
    const auto found = of_level(level);
    found == all.end() ? all.push_back({{level}, {}, bytes}) : static_cast<void>(found->of_unit = bytes);
  }
  return all;
}

}  // namespace

/// The options of an exchange are its directions, each with all its messages: a rank sends and receives at the same
/// time.
Movement CostTermBuilder::exchange(const PlannedTraffic& item, int world_rank, const BytesOfUnit& of_unit) {
  const auto first = static_cast<int>(terms_.options.size());
  int farthest = 0;
  const auto add = [&](const std::vector<LinkUse>& uses) {
    CollectiveOption option;
    option.turns = item.turns;
    option.first = static_cast<int>(terms_.uses.size());
    terms_.uses.insert(terms_.uses.end(), uses.begin(), uses.end());
    option.end = static_cast<int>(terms_.uses.size());
    terms_.options.push_back(option);
  };
  const auto uses_of = [&](Direction direction) {
    std::vector<LinkUse> uses;
    for (const auto& [link, traffic, shared] : messages_by_level(machine_, item, world_rank, direction, of_unit)) {
      farthest = std::max(farthest, link.level);
      uses.push_back(
          {terms_.number(link), static_cast<double>(traffic.messages), static_cast<double>(traffic.bytes), shared});
    }
    return uses;
  };
  const auto sent = uses_of(&PeerTraffic::sent), received = uses_of(&PeerTraffic::received);
  if (!sent.empty()) add(sent);
  if (received != sent && !received.empty()) add(received);
  const auto end = static_cast<int>(terms_.options.size());
  return {number({Verb::exchange, farthest, 2, 1}), static_cast<double>(item.traffic.messages),
          static_cast<double>(item.traffic.bytes), first, end};
}

Movement CostTermBuilder::collective(const PlannedTraffic& item, const Grid& grid, int rank) {
  const auto messages = static_cast<double>(item.traffic.messages), bytes = static_cast<double>(item.traffic.bytes);
  Collective key{item.verb, bytes / messages, {}, nullptr, 0};
  Route route;
  if (spans_.is_uneven(item, grid)) {
    key.counted = &spans_.counted(item, grid);
    const std::vector<int>& ranks = key.counted->ranks_with(grid.first_rank() + rank);
    key.first = ranks.front();
    route = key.counted->route(key.first);
  } else {
    key.spans = spans_.even(item, grid, rank);
    route = {item.verb, key.spans.back().level, key.spans.back().ranks, key.spans.back().inside};
  }
  const auto [known, added] = options_.try_emplace(std::move(key));
  auto& [first, end] = known->second;
  if (added) {
    first = static_cast<int>(terms_.options.size());
    known->first.counted != nullptr ? known->first.counted->add_options(known->first.first, bytes / messages, terms_)
                                    : add_options(item.verb, known->first.spans, bytes / messages, terms_);
    end = static_cast<int>(terms_.options.size());
  }
  return {number(route), messages, bytes, first, end};
}

// A rank has the same number in the whole grid, since only the extent of the first axis, the major one, differs.
Movement CostTermBuilder::movement(const PlannedTraffic& item, const Grid& here, int rank) {
  return movement(item, here, rank, {});
}

Movement CostTermBuilder::movement(const PlannedTraffic& item, const Grid& here, int rank, const BytesOfUnit& of_unit) {
  const Grid& grid = whole_ == nullptr ? here : *whole_;
  if (item.verb == Verb::exchange) return exchange(item, grid.first_rank() + rank, of_unit);
  return collective(item, grid, rank);
}

KernelTerm CostTermBuilder::kernel(int layer, int rank) const {
  LayerKernels kernels = kernels_.of(plan_.layers[layer]);
  return kernels_.on_rank(kernels, rank);
}

/// Adds the messages of a microbatch inside the layer's stage, each with the computation that hides it.
void CostTermBuilder::add_traffic(LayerWork& work, const LayerPlan& layer, int index, int replica, int rank) {
  OpTraffic traffic(plan_, layer, index, replica, plan_.grid_of(index, replica).first_rank() + rank);
  traffic.keep_received();
  constexpr std::size_t none = static_cast<std::size_t>(-1);
  std::size_t started = none;  // the first item that travels since start_backward, until backward_data waits for it
  const auto add = [&](const StepOp& op) {
    if (op.kind == StepOp::Kind::start_backward) started = traffic.list().size();
    if (op.kind == StepOp::Kind::backward_data) {
      started = none;
      for (std::size_t i = 0; i < work.hidden_by.size(); ++i)
        if (traffic.list()[i].purpose == Purpose::scatter)
          work.hidden_by[i] = hides_behind(layer, traffic.list()[i], op);
    }
    if (op.kind == StepOp::Kind::backward_filter)
      for (std::size_t i = started; i < work.hidden_by.size(); ++i)
        work.hidden_by[i] = hides_behind(layer, traffic.list()[i], op);
    if (is_silent(layer, op)) return;
    op.kind == StepOp::Kind::send_output ? traffic.add_sums(op) : traffic.add(op);
    for (std::size_t i = work.hidden_by.size(); i < traffic.list().size(); ++i)
      work.hidden_by.push_back(hides_behind(layer, traffic.list()[i], op));
  };
  each_microbatch_op(layer, index, actions_, [&](const StepOp& op) {
    if (pass_of(op) && op.kind != StepOp::Kind::send_gradient) add(op);  // another stage sends that; see transfer()
  });
  work.items = std::move(traffic).take();
}

/// The work of a layer on the ranks of its grid. Ranks that do the same share it.
class CostTermBuilder::WorkOfRanks {
 public:
  WorkOfRanks(CostTermBuilder& builder, const LayerPlan& layer, int index, int replica)
      : builder_(builder),
        layer_(layer),
        index_(index),
        replica_(replica),
        grid_(builder.plan_.grid_of(index, replica)),
        even_(symmetric_axes(layer)),
        each_counts_(builder.whole_ == nullptr && (irregular_axes(layer) != 0 || grid_.size() <= most_counted)),
        kernels_(builder.kernels_.of(layer)) {}

  const Grid& grid() const { return grid_; }
  /// Returns the work of a rank, and whether no rank before had the same.
  std::pair<const LayerWork*, bool> of(int rank) {
    const auto [found, fresh] = known_.try_emplace(representative_rank(grid_, rank, even_));
    if (fresh) builder_.add_traffic(found->second, layer_, index_, replica_, found->first);
    return {&found->second, fresh};
  }
  const KernelTerm& kernel(int rank) {
    const auto [found, fresh] = kernel_of_.try_emplace(representative_rank(grid_, rank, even_));
    if (fresh) found->second = builder_.kernels_.on_rank(kernels_, found->first);
    return found->second;
  }
  /// Returns the bytes that a rank's unit exchanges when the ranks run the same as `item`, one of this rank's.
  double of_unit(const PlannedTraffic& item, int rank, int level, Direction direction) {
    const Grid& grid = builder_.whole_ == nullptr ? grid_ : *builder_.whole_;
    if (!each_counts_) return unit_bytes_if_alike(builder_.machine_, grid, item.peers, rank, level, direction);
    const Exchange exchange{item.op, item.exchange};
    auto found = std::find_if(units_.begin(), units_.end(), [&](const auto& each) { return each.first == exchange; });
    if (found == units_.end()) {
      units_.emplace_back(exchange, UnitTraffic(builder_.machine_, grid,
                                                [this, exchange](int other) { return peers(exchange, other); }));
      found = std::prev(units_.end());
    }
    return found->second.bytes(rank, level, direction);
  }

 private:
  using Exchange = std::pair<StepOp, int>;  // an operation, and the number of one of its exchanges

  const std::vector<PeerTraffic>* peers(const Exchange& exchange, int rank) {
    for (const PlannedTraffic& each : of(rank).first->items)
      if (each.verb == Verb::exchange && Exchange(each.op, each.exchange) == exchange) return &each.peers;
    return nullptr;
  }

  static constexpr int most_counted = 64;  // ranks of a grid whose messages are counted one by one

  CostTermBuilder& builder_;
  const LayerPlan& layer_;
  int index_, replica_;
  const Grid& grid_;
  AxisSet even_;
  bool each_counts_;  // else ranks exchange alike but at the ends of axes, which few are
  LayerKernels kernels_;
  std::unordered_map<int, LayerWork> known_;  // by the first rank of those that do the same
  std::unordered_map<int, KernelTerm> kernel_of_;
  std::vector<std::pair<Exchange, UnitTraffic>> units_;
};

RankTerms CostTermBuilder::on_rank(WorkOfRanks& works, const LayerWork& work, int rank) {
  RankTerms terms{rank, works.kernel(rank), {}};
  terms.movements.reserve(work.items.size());
  for (std::size_t i = 0; i < work.items.size(); ++i) {
    const PlannedTraffic& item = work.items[i];
    BytesOfUnit of_unit;
    if (item.verb == Verb::exchange && machine_.levels.size() > 1)
      of_unit = [&](int level, Direction direction) { return works.of_unit(item, rank, level, direction); };
    terms.movements.push_back({movement(item, works.grid(), rank, of_unit), microbatch_pass(item.pass),
                               part_of(item.purpose), work.hidden_by[i], item.purpose == Purpose::input});
    set_shares(terms.movements.back(), item);
  }
  return terms;
}

namespace {

/// Returns the first rank of a grid, and one that is in the middle of each axis.
std::vector<int> first_and_inner(const Grid& grid, const Machine& machine) {
  int inner = 0;
  for (int axis = 0; axis < grid.axes(); ++axis) {
    const int extent = grid.extent(axis);
    inner = inner * extent + (extent > 2 ? middle_coordinate(grid, machine, axis) : extent / 2);
  }
  return inner == 0 ? std::vector{0} : std::vector{0, inner};
}

}  // namespace

const std::vector<int>& CostTermBuilder::ranks(int stage, AxisSet every) {
  auto& ranks = ranks_[{stage, every}];
  if (!ranks.empty()) return ranks;
  const Grid& grid = plan_.grids[stage];
  return ranks = examined_ == Examined::representatives ? representatives(grid, machine_, every)
                                                        : first_and_inner(grid, machine_);
}

std::vector<RankTerms> CostTermBuilder::layer(int index, bool of_remainder, int replica) {
  const LayerPlan& layer = plan_.layers_of(replica, of_remainder)[index];
  WorkOfRanks works(*this, layer, index, replica);
  std::vector<RankTerms> kept;
  for (const int rank : ranks(plan_.stage_of(index, replica), irregular_axes(layer))) {
    const auto [work, fresh] = works.of(rank);
    if (!fresh && is_flat()) continue;
    RankTerms terms = on_rank(works, *work, rank);
    const auto of = [&](const RankTerms& a, const RankTerms& b) { return within(a, b, terms_); };
    if (std::any_of(kept.begin(), kept.end(), [&](const RankTerms& other) { return of(terms, other); })) continue;
    std::erase_if(kept, [&](const RankTerms& other) { return of(other, terms); });
    kept.push_back(std::move(terms));
  }
  return kept;
}

RankTerms CostTermBuilder::layer_on(int index, int rank) {
  WorkOfRanks works(*this, plan_.layers[index], index, 0);
  return on_rank(works, *works.of(rank).first, rank);
}

/// Returns the axes along which all ranks sum the same amount for a layer, or nullopt if the layer completes nothing.
std::optional<AxisSet> CostTermBuilder::even_sums(int index) {
  const LayerPlan& layer = plan_.layers[index];
  const auto completed = completed_by(plan_.buckets, index);
  if (completed.empty() && !plan_.second_replica && !(layer.op->is_loss() && plan_.grids.size() > 1))
    return std::nullopt;
  AxisSet even = plan_.second_replica ? symmetric_axes(layer) : plan_.grid_of(index).all();
  for (const auto& bucket : completed) even &= symmetric_axes(plan_, bucket);
  return even;
}

std::vector<GradReduceTerms> CostTermBuilder::sums(int layer) {
  std::vector<GradReduceTerms> all;
  const auto even = even_sums(layer);
  if (!even) return all;
  for (int replica = 0; replica < plan_.replicas(); ++replica) {  // they wait for each other
    const Grid& grid = plan_.grid_of(layer, replica);
    EquivalentRanks<std::vector<PlannedTraffic>> items_of_ranks;
    for (const int rank : ranks(plan_.stage_of(layer, replica), 0)) {
      const auto [items, inserted] = items_of_ranks.entry(representative_rank(grid, rank, *even));
      if (inserted) *items = step_traffic(plan_, layer, grid.first_rank() + rank);
      if (!inserted && is_flat()) continue;
      GradReduceTerms terms;
      terms.replica = replica;
      terms.rank = rank;
      for (const auto& item : *items) (terms.*list_of(item.op)).push_back(movement(item, grid, rank));
      all.push_back(std::move(terms));
    }
  }
  return all;
}

UpdateTerms CostTermBuilder::update(int group) const {
  const Grid& grid = plan_.grids[plan_.stage_running(group)];
  const auto states = static_cast<double>(plan_.workload.optimizer.states().size());
  const auto element = static_cast<double>(size_of(master_dtype(plan_.workload.dtype)));
  const auto rounded = static_cast<double>(size_of(plan_.workload.dtype));
  const auto gradient = static_cast<double>(size_of(plan_.gradient_dtype));
  AxisSet even = grid.all();
  for (const auto& bucket : plan_.buckets)
    if (plan_.layers[bucket.last()].group == group) even &= symmetric_axes(plan_, bucket);
  UpdateTerms most;
  for (const int rank : representatives(grid)) {
    if (representative_rank(grid, rank, even) != rank) continue;
    Index updated = 0;
    double bytes = 0;
    for (const auto& bucket : plan_.buckets) {
      if (plan_.layers[bucket.last()].group != group) continue;
      const Index all = plan_.elements(bucket, rank);
      const Index mine = plan_.sharded_optimizer ? plan_.share(bucket, rank).extent() : all;
      updated += mine;
      // The sum is converted from the type of the gradients. The norm reads it once; ranks with equal sums take parts.
      if (gradient != element) bytes += static_cast<double>(all) * (gradient + element);
      const int equal = grid.group_size(grid.all() & ~plan_.norm_axes(bucket)) * plan_.replicas();
      bytes += static_cast<double>(mine) * element / equal;
    }
    if (const auto found = kernels_.update(updated, group))
      most.seconds = std::max(most.seconds, found->forward);
    else  // reads and writes w and the states, reads dw, and writes w in the type of the kernels
      bytes += static_cast<double>(updated) * (element * (3 + 2 * states) + (rounded != element ? rounded : 0));
    most.bytes = std::max(most.bytes, bytes);
  }
  return most;
}

/// What the ranks of one stage send to, or receive from, another stage in one operation.
class CostTermBuilder::TransferOfRanks {
 public:
  TransferOfRanks(CostTermBuilder& builder, const StepOp& op, int replica, const Grid& grid)
      : builder_(builder),
        op_(op),
        replica_(replica),
        grid_(grid),
        layer_(builder.plan_.layers_of(replica, false)[op.layer]),
        alike_(symmetric_axes(layer_.sends_to_stages[op.part]) == grid.all()),
        units_(builder.machine_, grid,
               [this](int rank) { return items(rank).empty() ? nullptr : &items(rank)[0].peers; }) {}

  const std::vector<PlannedTraffic>& items(int rank) {
    const auto [found, fresh] = items_.try_emplace(rank);
    if (!fresh) return found->second;
    OpTraffic traffic(builder_.plan_, layer_, op_.layer, replica_, grid_.first_rank() + rank);
    traffic.keep_received();
    traffic.add_transfer(op_);
    return found->second = std::move(traffic).take();
  }

  /// Returns the movement of an item of a rank.
  Movement movement(const PlannedTraffic& item, int rank) {
    return builder_.movement(item, grid_, rank, [&](int level, Direction direction) {
      return alike_ ? unit_bytes_if_alike(builder_.machine_, grid_, item.peers, rank, level, direction)
                    : units_.bytes(rank, level, direction);
    });
  }

 private:
  CostTermBuilder& builder_;
  StepOp op_;
  int replica_;
  const Grid& grid_;
  const LayerPlan& layer_;
  bool alike_;  // all ranks send equally much to the same place of the other stage
  std::map<int, std::vector<PlannedTraffic>> items_;
  UnitTraffic units_;
};

std::vector<Movement> CostTermBuilder::transfer(const StepOp& sent, int replica) {
  using enum StepOp::Kind;
  const StageBoundary& boundary = plan_.layers_of(replica, false)[sent.layer].sends_to_stages[sent.part];
  const bool back = sent.kind == send_gradient;
  StepOp received = sent;
  received.kind = back ? receive_gradient : receive_input;
  std::vector<Movement> all;
  const auto add = [&](const Layout& layout, const StepOp& op) {
    TransferOfRanks ranks(*this, op, replica, layout.grid());
    const auto examined = examined_ == Examined::representatives ? representatives(layout.grid(), machine_)
                                                                 : first_and_inner(layout.grid(), machine_);
    for (const int rank : examined)
      for (const auto& item : ranks.items(rank)) all.push_back(ranks.movement(item, rank));
  };
  add(back ? boundary.to : boundary.from, sent);
  add(back ? boundary.from : boundary.to, received);
  return all;
}

Movement CostTermBuilder::transfer_on(const PlannedTraffic& item, const Grid& grid, int rank) {
  return TransferOfRanks(*this, item.op, 0, grid).movement(item, rank);
}

}  // namespace partita
