#pragma once

#include "partita/strategies/cost/estimate.hpp"
#include "src/model/attention_operators.hpp"
#include "src/model/operators.hpp"
#include "strategies/cost/counted_collectives.hpp"
#include "strategies/cost/evaluate_terms.hpp"
#include "strategies/cost/representatives.hpp"

#include "test/strategies/cost/plain_collective.hpp"
#include "test/strategies/cost/plain_kernel.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>
#include <vector>

namespace partita::test {

/// A second opinion on a plan's price. It finds out from the plan's layouts alone what is communicated where
/// (redistributions, halos, panels of products, sums in the middle of a layer, buckets of gradients), as the executor
/// would run it, and prices it rank by rank with closed forms of its own: of the cost model it shares the machine's
/// constants, not what the plan says of its traffic. For plans without measured kernels.
class PlainPrice {
 public:
  PlainPrice(const Plan& plan, const Machine& machine) : plan_(plan), machine_(machine) {}

  /// Seconds of all three passes of a layer's microbatch of the larger size in a replica, each on the rank that takes
  /// longest for it.
  double layer(int index, int replica) const {
    const auto& layers = replica == 1 ? plan_.second_replica->layers : plan_.layers;
    const auto& layer = layers[index];
    const Grid& grid = plan_.grid_of(index, replica);
    double forward = 0, data = 0, filter = 0;
    for (int rank = 0; rank < grid.size(); ++rank) {
      const RankPrice price{*this, layer, grid, rank};
      forward = std::max(forward, price.forward_pass());
      data = std::max(data, price.data_pass());
      filter = std::max(filter, price.filter_pass());
    }
    return forward + data + filter;
  }

  /// Seconds of the gradient sums that a layer completes, of the rank where they take longest. The ranks of a second
  /// replica add theirs to those of the first one.
  double sums(int index) const {
    double most = 0;
    for (int replica = 0; replica < plan_.replicas(); ++replica)
      for (int rank = 0; rank < plan_.grid_of(index, replica).size(); ++rank)
        most = std::max(most, of(index, rank, replica).gradient_sums(index).seconds);
    return most;
  }

  /// Seconds after these sums until the next step begins, of a plan of one stage with one group: norms, weights that
  /// are gathered, and the update, which reads the gradients and reads and writes the weights and the optimizer's
  /// state, and writes weights in the type of kernels. Gradients are converted, and read once by the ranks that have
  /// the same sums.
  double after_sums() const {
    double seconds = 0, bytes = 0;
    const auto states = static_cast<double>(plan_.workload.optimizer.states().size());
    const auto element = static_cast<double>(size_of(master_dtype(plan_.workload.dtype)));
    const auto kernels = static_cast<double>(size_of(plan_.workload.dtype));
    const auto gradient = static_cast<double>(size_of(plan_.gradient_dtype));
    for (int i = 0; i < static_cast<int>(plan_.layers.size()); ++i) seconds += slowest_after(i);
    for (int rank = 0; rank < plan_.grid().size(); ++rank) {
      double mine = 0;
      for (const auto& bucket : plan_.buckets) {
        const auto part = static_cast<double>(plan_.share(bucket, rank).extent());
        double equal = 1;  // ranks with this sum
        for (int axis = 0; axis < plan_.grid().axes(); ++axis) {
          const bool cuts =
              (bucket.sharding >> axis & 1) != 0 || (plan_.sharded_optimizer && (bucket.axes >> axis & 1) != 0);
          if (!cuts) equal *= plan_.grid().extent(axis);
        }
        mine += part * (element * (1 + 2 + 2 * states) + element / equal);
        if (kernels < element) mine += part * kernels;
        if (gradient < element) mine += static_cast<double>(plan_.elements(bucket, rank)) * (gradient + element);
      }
      bytes = std::max(bytes, mine);
    }
    return seconds + bytes / machine_.memory_bandwidth.value;
  }

 private:
  /// An exchange: its seconds, and how many of them can go on behind computing.
  struct Exchange {
    double seconds = 0, hidden = 0;
  };

  double slowest_after(int index) const {
    double most = 0;
    for (int replica = 0; replica < plan_.replicas(); ++replica)
      for (int rank = 0; rank < plan_.grid_of(index, replica).size(); ++rank)
        most = std::max(most, of(index, rank, replica).after_sums(index));
    return most;
  }

  /// What one rank of a layer's grid computes and communicates.
  struct RankPrice {
    const PlainPrice& price;
    const LayerPlan& layer;
    const Grid& grid;
    int rank;

    const Plan& plan() const { return price.plan_; }
    double element() const { return static_cast<double>(size_of(plan().workload.dtype)); }
    /// The bytes of an element of another layer's output, or of this one's.
    double element_of(const LayerPlan& other) const { return other.op->integers() ? 4 : element(); }
    double master() const { return static_cast<double>(size_of(master_dtype(plan().workload.dtype))); }

    double kernel_seconds(bool backward) const {
      return PlainKernel{plan(), price.machine_}.seconds(layer, rank, backward);
    }

    bool has_backward() const { return plan().workload.training && layer.has_backward(); }

    double forward_pass() const {
      double seconds = forward();
      for (const auto& boundary : layer.sends_to_stages) seconds += steps(boundary.complete_sums, element_of(layer));
      return seconds;
    }
    double data_pass() const {
      const double again = plan().workload.training && layer.recompute ? forward() : 0;
      return again + (has_backward() ? backward_data() : 0);
    }
    double filter_pass() const {
      if (!has_backward()) return 0;
      double seconds = filter_seconds() + product(2), room = price.in_halves() ? filter_seconds() : data_seconds();
      if (!layer.gathers_weights() || !layer.trains()) return seconds;
      if (!price.in_halves()) {
        gathered(room);  // in the pass of dx
        if (!layer.needs_any_dx()) room = 0;
      } else {
        if (layer.op->dw_reads_weights()) seconds += gathered(room);
        room = 0;
      }
      for (const auto& rest : layer->rest) seconds += behind(rest.scatter, master(), room);
      return seconds;
    }
    /// The weights in shards that are gathered while `room` seconds are computed.
    double gathered(double& room) const {
      double seconds = 0;
      for (const auto& rest : layer->rest) seconds += behind(rest.gather, element(), room);
      return seconds;
    }

    /// Inputs and halos, the layer's work, its output. A convolution or a pooling computes what needs no halo while
    /// that travels.
    double forward() const {
      const double compute = layer.inputs.empty() ? 0 : kernel_seconds(false);
      double seconds = compute, room = compute;
      if (layer.gathers_weights()) seconds += gathered(room);
      for (std::size_t i = 0; i < layer->redistribute_input.size(); ++i)
        seconds += steps(layer->redistribute_input[i], element_of(plan().layers[layer.inputs[i]]));
      if (layer->at.x_halo) {
        const bool ahead = dynamic_cast<const ConvOperator*>(layer.op.get()) != nullptr || PlainKernel::is_pool(layer);
        seconds += exposed(halo(*layer->at.x_halo, false), ahead ? room : 0);
      }
      if (layer->at.algorithm == Algorithm::ring) seconds += ring(compute, false);
      return seconds + collectives(Collective::When::forward) + product(0) +
             steps(layer->redistribute_output, element_of(layer));
    }

    bool contracts() const { return PlainKernel::contracts(layer); }
    double filter_seconds() const { return layer.trains() && contracts() ? kernel_seconds(true) : 0; }

    /// A layer that contracts computes dx and dw apart, and dw while dy's halo travels, if one action computes both.
    /// Other layers form what gradients of weights they have with dx. A pooling computes the border's gradients first,
    /// which go back while it computes the rest.
    double backward_data() const {
      const bool dx = layer.needs_any_dx();
      const double data = data_seconds();
      double seconds = data + steps(layer->redistribute_dy, element()), room = data;
      if (layer.gathers_weights() && (dx || layer.op->dw_reads_weights())) seconds += gathered(room);
      if (dx && layer->at.dy_halo)
        seconds += exposed(halo(*layer->at.dy_halo, false), price.in_halves() ? 0 : filter_seconds());
      else if (dx && layer->at.x_halo)
        seconds += exposed(halo(*layer->at.x_halo, true), PlainKernel::is_pool(layer) ? data : 0);
      seconds += collectives(Collective::When::backward);
      if (dx) seconds += product(1);
      if (dx && layer->at.algorithm == Algorithm::ring) seconds += ring(data, true);
      for (std::size_t i = 0; i < layer->redistribute_dx.size(); ++i)
        if (layer->needs_dx[i]) seconds += steps(layer->redistribute_dx[i], element());
      return seconds;
    }

    double data_seconds() const {
      return layer.needs_any_dx() || (layer.trains() && !contracts()) ? kernel_seconds(true) : 0;
    }

    static double exposed(const Exchange& exchange, double compute) {
      return exchange.seconds - std::min(exchange.hidden, compute);
    }

    /// Redistributions, one after the other.
    double steps(const LayerPlan::Steps& steps, double element) const {
      double none = 0;
      return behind(steps, element, none);
    }
    /// The same, behind `room` seconds of computing, of which they use up what they hide behind.
    double behind(const LayerPlan::Steps& steps, double element, double& room) const {
      double seconds = 0;
      for (const auto& step : steps) {
        Exchange taken;
        if (step.verb == Verb::exchange)
          taken = exchange([&](int each) { return messages(plan_transfer(step.from, step.to, each), false, element); });
        else if (step.verb != Verb::none)  // the full vector: what is summed, or what is gathered
          taken = collective(step.verb, step.axes,
                             PlainKernel::volume(step.verb == Verb::all_gather ? step.to : step.from, rank) * element);
        const double hidden = std::min(taken.hidden, room);
        room -= hidden;
        seconds += taken.seconds - hidden;
      }
      return seconds;
    }

    /// The messages of an exchange: the peer (a rank of the grid) and the bytes.
    struct Messages {
      std::vector<std::pair<int, double>> sent, received;

      void add(const TransferPlan& plan, bool back, double element) {
        for (auto [list, transfers] : {std::pair(&sent, &plan.sends), std::pair(&received, &plan.recvs)})
          for (const auto& transfer : *transfers)
            ((list == &sent) != back ? sent : received)
                .emplace_back(transfer.peer, static_cast<double>(transfer.box.volume()) * element);
      }
    };

    static Messages messages(const TransferPlan& transfers, bool back, double element) {
      Messages all;
      all.add(transfers, back, element);
      return all;
    }

    /// The boxes that a rank sends, or with `back` those that it has received and whose gradients go back.
    Exchange halo(const Halo& halo, bool back) const {
      return exchange([&](int each) { return messages(halo.transfer(each), back, element()); });
    }

    /// Keys, values and queries that travel between the ranks that share a sequence, while these compute, and what
    /// comes back. Of `hops` messages, one travels with each block but the last; what that one gives travels after all
    /// computing.
    double ring(double compute, bool back) const {
      const auto around = [&](int each, bool results) {
        return PlainRing(layer, each).messages(results, back, element(), master());
      };
      const auto travel = [&](bool results, double hops) {
        const auto of = [&](int each) {
          const auto all = around(each, results);
          return Messages{all.sent, all.received};
        };
        return exchange(of, std::max(1., hops));
      };
      double hops = around(rank, false).hops();
      const Exchange blocks = travel(false, hops);
      const double hidden = std::min(blocks.hidden, compute * hops / (hops + 1));
      const double seconds = blocks.seconds - hidden;
      if (hops = around(rank, true).hops(); hops == 0) return seconds;
      const Exchange sums = travel(true, hops);
      const double room = compute - hidden - compute * 2 / (hops + 1);
      return seconds + sums.seconds - std::max(0., std::min(sums.hidden * (hops - 1) / hops, room));
    }

    int level_between(int one, int other) const {
      return price.machine_.level_of(grid.first_rank() + one, grid.first_rank() + other);
    }

    /// A rank sends and receives at the same time, so the direction that takes longer counts. `of(r)` are the messages
    /// of rank r of the grid.
    template <class Of>
    Exchange exchange(Of&& of, double panels = 1) const {
      using List = std::vector<std::pair<int, double>>;
      const auto one_way = [&](List Messages::*list) {
        const auto of_rank = [&](int each) { return of(each).*list; };
        return this->one_way(of_rank, panels);
      };
      const Exchange out = one_way(&Messages::sent), in = one_way(&Messages::received);
      const double exposed = std::max(out.seconds - out.hidden, in.seconds - in.hidden),
                   seconds = std::max(out.seconds, in.seconds);
      return {seconds, seconds - exposed};
    }

    /// The levels are busy at the same time. At each, a rank has links of its own, and the links of its unit, which all
    /// messages of the unit's ranks to this level and to outer ones share. All messages of a panel are under way
    /// together.
    template <class Of>
    Exchange one_way(Of&& of, double panels) const {
      const auto mine = of(rank);
      int farthest = 0;
      for (const auto& [peer, bytes] : mine) farthest = std::max(farthest, level_between(rank, peer));
      double slowest = 0, exposed = 0;
      for (int number = 0; number <= farthest; ++number) {
        double count = 0, bytes = 0;
        for (const auto& [peer, each] : mine) {
          if (level_between(rank, peer) != number) continue;
          ++count;
          bytes += each;
        }
        double shared = 0;
        for (int other = 0; number > 0 && other < grid.size(); ++other)
          if (level_between(rank, other) < number)
            for (const auto& [peer, each] : of(other)) shared += level_between(other, peer) >= number ? each : 0;
        const Level& level = price.level(number);
        const auto found = level.verbs.find({Verb::exchange, 2});
        double seconds = 0;
        if (found != level.verbs.end())
          seconds = count > 0 ? count * found->second.seconds(bytes / count) : 0;
        else
          seconds =
              std::min(panels, count) * level.latency.value +
              std::max(bytes / price.bandwidth(number, 1), shared / (level.bandwidth.value * price.busy_links(number)));
        slowest = std::max(slowest, seconds);
        exposed = std::max(exposed, seconds * (1 - level.overlap.value));
      }
      return {slowest, slowest - exposed};
    }

    /// All panels that a product gathers of A and B, and the parts of sums that are added slab by slab, as one exchange
    /// with all ranks that take part; then its result's way to where it belongs.
    double product(std::size_t which) const {
      if (which >= layer->at.products.size()) return 0;
      const ProductPlan& product = layer->at.products[which];
      const auto of = [&](int each) {
        Messages messages;
        const auto gathers = [&](const ProductOperand& operand, const Layout& used) {
          for (const Interval slab : product.slabs(operand))
            messages.add(product.gather(operand, used, each, slab), false, element());
        };
        gathers(product.a, product.a_used);
        gathers(product.b, product.b_used);
        if (product.sums_slabs)
          for (const Interval slab : product.slabs(product.c)) messages.add(product.sum(each, slab), true, element());
        return messages;
      };
      return exchange(of, static_cast<double>(product.panels.size())).seconds +
             steps(product.redistribute_c, element());
    }

    double collectives(Collective::When when) const {
      double seconds = 0;
      for (const auto& each : layer->at.collectives)
        if (each.when == when)
          seconds +=
              collective(Verb::all_reduce, each.axes,
                         PlainKernel::volume(each.layout, rank) * static_cast<double>(each.factor) * sizeof(double))
                  .seconds;
      return seconds;
    }

    /// Among the ranks of the grid along some axes.
    Exchange collective(Verb verb, AxisSet axes, double bytes) const {
      if (straddles(grid, price.machine_)) return counted(verb, grid, axes, rank, bytes);
      std::vector<int> members;
      for (const int each : grid.group(rank, axes)) members.push_back(grid.first_rank() + each);
      return collective(verb, std::move(members), bytes);
    }

    /// On units that hold different numbers of ranks the library's own price counts, which counted_collectives_test
    /// holds against numbers worked out by hand, and test/cli/simgrid.py against a simulation.
    Exchange counted(Verb verb, const Grid& on, AxisSet axes, int of, double bytes) const {
      if (on.group_size(axes) < 2 || bytes == 0) return {};
      CostTerms terms;
      CountedCollectives all(price.machine_, on, axes, verb);
      all.add_options(on.first_rank() + of, bytes, terms);
      terms.routes = {all.route(on.first_rank() + of)};
      const MachineRates rates(terms, price.machine_);
      const Seconds taken = rates.seconds(Movement{0, 1, bytes, 0, static_cast<int>(terms.options.size())});
      return {taken.all, taken.hidden()};
    }

    /// Among some ranks of the world, which run the same way.
    Exchange collective(Verb verb, std::vector<int> members, double bytes) const {
      if (members.size() < 2 || bytes == 0) return {};
      std::sort(members.begin(), members.end());
      const int top = price.machine_.level_of(members.front(), members.back());
      const auto levels = levels_of(members, members.front());
      const PlainCollective all{static_cast<int>(members.size()), bytes, 3 / price.machine_.memory_bandwidth.value,
                                levels, top == 0};
      const auto times = all.times(verb);
      const PlainTime best = *std::min_element(times.begin(), times.end());
      double seconds = best.total();
      const auto& measured = price.level(top).verbs;
      if (const auto found = measured.find({verb, static_cast<int>(members.size()), levels.back().inside});
          found != measured.end())
        seconds = found->second.seconds(bytes);
      return {seconds, seconds * (1 - best.exposed() / best.total())};
    }

    /// How a member of a collective lies, on the levels that the collective crosses anywhere. Groups that lie alike run
    /// at the same time: the unit's ranks share its links.
    std::vector<PlainLevel> levels_of(const std::vector<int>& members, int member) const {
      const int top = price.machine_.level_of(members.front(), members.back());
      const auto unit_of = [&](int number, int of) { return number < top ? of / price.unit(number) : 0; };
      const auto below = [&](int number, int of) { return number == 0 ? of : unit_of(number - 1, of); };
      std::vector<PlainLevel> levels;
      for (int number = 0; number <= top; ++number) {
        int here = 0, inside = 0, there = 0;
        std::set<int> units;
        bool crosses = false;  // some members of one unit lie in different units of the level below
        for (const int each : members) {
          for (const int other : members)
            crosses |= unit_of(number, each) == unit_of(number, other) && below(number, each) != below(number, other);
          if (unit_of(number, each) != unit_of(number, member)) continue;
          ++here;
          inside += below(number, each) == below(number, member) ? 1 : 0;
          units.insert(below(number, each));
        }
        if (!crosses) continue;
        for (int each = grid.first_rank(); each < grid.first_rank() + grid.size(); ++each)
          there += below(number, each) == below(number, member) ? 1 : 0;
        const Level& level = price.level(number);
        levels.push_back({here, inside, static_cast<int>(units.size()),
                          number == 0 ? 1 : std::max(1., static_cast<double>(there) / inside), level.latency.value,
                          1 / level.bandwidth.value, price.busy_links(number), level.overlap.value,
                          level.reduction.value > 0 ? 1 / level.reduction.value : -1});
      }
      return levels;
    }

    /// The elements of a bucket's weights on this rank, each weight rounded up to whole blocks of `bucket_alignment`.
    double elements(const Bucket& bucket) const {
      double all = 0;
      for (const auto& [of, weight] : bucket.entries) {
        const Layout& w = plan().layers[of]->rest[weight].w;
        all += std::ceil(PlainKernel::volume(w, rank) / bucket_alignment) * bucket_alignment;
      }
      return all;
    }

    Exchange gradient_sums(int index) const {
      Exchange sums;
      for (const auto& bucket : plan().buckets) {
        if (bucket.last() != index) continue;
        const Exchange sum = collective(plan().sharded_optimizer ? Verb::reduce_scatter : Verb::all_reduce, bucket.axes,
                                        elements(bucket) * master());
        sums.seconds += sum.seconds;
        sums.hidden += sum.hidden;
      }
      return sums;
    }

    /// Norms of whole weights, weights that ranks have updated in shares, and the loss that every stage is told.
    double after_sums(int index) const {
      double seconds = 0;
      for (const auto& bucket : plan().buckets) {
        if (bucket.last() != index) continue;
        if (plan().workload.optimizer.needs_norms())
          seconds += collective(Verb::all_reduce, bucket.sharding | (plan().sharded_optimizer ? bucket.axes : 0),
                                static_cast<double>(2 * bucket.entries.size() * sizeof(double)))
                         .seconds;
        if (plan().sharded_optimizer)
          seconds += collective(Verb::all_gather, bucket.axes, elements(bucket) * master()).seconds;
      }
      if (layer.op->is_loss() && plan().grids.size() > 1) {
        const Grid world = Grid::parse(fmt::format("all={}", plan().ranks()));
        seconds += RankPrice{price, layer, world, 0}.collective(Verb::all_reduce, 1, 2 * sizeof(double)).seconds;
      }
      return seconds;
    }
  };

  RankPrice of(int index, int rank, int replica) const {
    return {*this, plan_.layers[index], plan_.grid_of(index, replica), rank};
  }

  /// True if the gradients of inputs and of weights are actions of their own.
  bool in_halves() const {
    for (const auto& actions : plan_.schedule.stages)
      for (const Action& action : actions)
        if (action.kind == Action::Kind::backward_filter) return true;
    return false;
  }

  const Level& level(int number) const { return machine_.levels[number]; }
  /// Ranks that a unit of the level holds.
  int unit(int number) const { return static_cast<int>(level(number).ranks.value); }
  /// Of one of so many ranks of a unit below the level that use its links at once.
  double bandwidth(int number, double concurrent) const {
    const double sharing = std::min(concurrent, number == 0 ? 1. : unit(number - 1)), busy = busy_links(number);
    return level(number).bandwidth.value * (sharing > busy ? busy / sharing : 1.);
  }
  double busy_links(int number) const { return level(number).links.value / level(number).fan_out.value; }

  const Plan& plan_;
  const Machine& machine_;
};

}  // namespace partita::test
