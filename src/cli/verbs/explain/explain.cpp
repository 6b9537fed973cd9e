#include "partita/base/error.hpp"
#include "partita/layouts/picture.hpp"
#include "partita/strategies/cost/estimate.hpp"
#include "partita/strategies/cost/explain_cost.hpp"
#include "partita/strategies/plan/bind.hpp"
#include "partita/strategies/plan/leaving_bytes.hpp"
#include "partita/strategies/plan/memory.hpp"
#include "partita/strategies/plan/traffic.hpp"
#include "partita/train/kernels/kernel.hpp"
#include "src/backend/gpu/cuda.hpp"
#include "src/backend/gpu/fused_attention.hpp"
#include "src/cli/files/text_file.hpp"
#include "src/cli/inputs/model_and_strategy.hpp"
#include "src/cli/inputs/settle_strategy.hpp"
#include "src/cli/options/device_options.hpp"
#include "src/cli/options/number_option.hpp"
#include "src/cli/options/options.hpp"
#include "src/cli/output/memory_fit.hpp"
#include "src/cli/output/plan_notes.hpp"
#include "src/cli/output/schedule_report.hpp"
#include "src/cli/verbs/explain/explain_json.hpp"
#include "src/model/attention_operators.hpp"

namespace partita::cli {

namespace {

namespace po = boost::program_options;

struct ExplainOptions : Options {
  std::string why;          ///< the layer whose predicted times are explained
  int rank = 0;             ///< the rank whose messages, bytes and memory are printed
  bool names_rank = false;  ///< --rank was given
  bool evaluation = false;  ///< explain an evaluation instead of a training step
  bool picture = false;     ///< draw how the ranks divide each output
  std::string svg;          ///< the file for a drawing of the schedule
};

po::options_description explain_options(ExplainOptions& o) {
  po::options_description group("Explain");
  auto add = group.add_options();
  add("why", po::value(&o.why)->value_name("LAYER"),
      "print the formulas and inputs that give the predicted times of this layer");
  add("rank", number(&o.rank)->default_value(0)->value_name("R"),
      "print the messages, bytes and memory of this rank, and with --why its price instead of the slowest rank's");
  add("evaluation", po::bool_switch(&o.evaluation), "explain an evaluation instead of a training step");
  add("json", po::value(&o.json)->value_name("FILE"), "write what is explained of all layers to FILE as JSON");
  add("picture", po::bool_switch(&o.picture), "draw how the ranks divide the output of each layer");
  add("svg", po::value(&o.svg)->value_name("FILE"),
      "draw the schedule as SVG in unit times: 1 each for forward, the backward of inputs and that of weights");
  add_explained_device(group, o.device);
  return group;
}

void print_line(std::string_view what, const std::string& text) {
  if (!text.empty()) fmt::print("    {:<8} {}\n", what, text);
}

std::string shape_and_layout(const Shape& shape, const Layout& layout) {
  return fmt::format("{:<28} {}", layout.print(), shape.print());
}

/// Says of which embedding the table of a tied layer is.
std::string origin_of_table(const Plan& plan, const LayerPlan& layer) {
  return fmt::format(" of {}{}", plan.layers[layer.table].name, layer.copies_table ? ", a copy" : "");
}

void print_gradients(const LayerPlan& layer) {
  for (std::size_t i = 0; i < layer->at.dx.size(); ++i)
    if (layer->needs_dx[i]) print_line("dx", layer->at.dx[i].print());
  for (std::size_t i = 0; i < layer->weights.size(); ++i)
    if (layer->weights[i].trained)
      print_line("dw", fmt::format("{:<28} {}", layer->at.dw[i].print(), layer->weights[i].name));
}

void print_redistributions(const LayerPlan& layer, bool training) {
  for (std::size_t i = 0; i < layer->redistribute_input.size(); ++i)
    if (!layer->redistribute_input[i].empty())
      print_line("from", fmt::format("{} by {}", layer->redistribute_input[i][0].from.print(),
                                     print(layer->redistribute_input[i])));
  print_line("to", print(layer->redistribute_output));
  for (std::size_t i = 0; i < layer->redistribute_dx.size(); ++i)
    if (training && layer->needs_dx[i] && !layer->redistribute_dx[i].empty())
      print_line("dx to", fmt::format("{} by {}", layer->redistribute_dx[i].back().to.print(),
                                      print(layer->redistribute_dx[i])));
}

void print_traffic(const Plan& plan, int layer, int rank) {
  const auto traffic = layer_traffic(plan, layer, rank);
  if (traffic.empty() && plan.grid_of(layer).size() > 1) print_line("moves", "nothing");
  for (const auto& item : traffic) {
    const std::string axes = item.verb == Verb::exchange ? "" : plan.grid_of(layer).print(item.axes);
    fmt::print("      {:<22} {:<24} {:>4} messages {:>12}\n", item.role, std::string(name(item.verb)) + axes,
               item.traffic.messages, print_bytes(item.traffic.bytes));
  }
}

/// Prints the layers whose gradients are reduced in one bucket with those of this layer. Backward completes a bucket
/// with the first of its layers, so the bucket's traffic is listed there.
void print_bucket(const Plan& plan, int layer) {
  for (const auto& bucket : plan.buckets) {
    const auto has = [&](const Bucket::Entry& entry) { return entry.layer == layer; };
    const int first = bucket.last(), last = bucket.entries.back().layer;
    if (bucket.axes == 0 || first == last || std::none_of(bucket.entries.begin(), bucket.entries.end(), has)) continue;
    const auto& names = plan.layers;
    print_line("dw",
               fmt::format("is summed in one bucket with the layers {} to {}{}", names[first].name, names[last].name,
                           first == layer ? "" : fmt::format("; its traffic is listed at {}", names[first].name)));
  }
}

/// Prints the chosen algorithm first, then the others that were considered: "stationary-y 24.0 KiB per step;
/// stationary-x 48.0 KiB per step, 2 times the operations". An algorithm with more operations per rank is slower
/// whatever it sends.
void print_algorithm(const OperatorLayouts& at, DType dtype) {
  if (at.alternatives.empty()) return;
  std::string text;
  for (const auto& way : at.alternatives) {
    text += fmt::format("{}{}{} {} per step", text.empty() ? "" : "; ", way.balanced ? "balanced " : "",
                        name(way.algorithm, "whole"), print_bytes(static_cast<Index>(way.words) * size_of(dtype)));
    if (way.flops > at.alternatives[0].flops)
      text += fmt::format(", {:.3g} times the operations", way.flops / at.alternatives[0].flops);
  }
  print_line("runs as", text);
}

/// Prints for each product the chosen algorithm with the bytes that it sends, then the others that were considered. If
/// a rank multiplies other parts than it owns, prints their layouts below.
void print_products(const std::vector<ProductPlan>& products, DType dtype) {
  constexpr std::array names{"y", "dx", "dw"};
  for (std::size_t i = 0; i < products.size(); ++i) {
    const ProductPlan& product = products[i];
    std::string text;
    for (const auto& way : product.alternatives)
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name(way.algorithm, "replicated"),
                          print_bytes(static_cast<Index>(way.words) * size_of(dtype)));
    print_line(names[i], "by " + text);
    if (!(product.a_used == product.a.layout) || !(product.b_used == product.b.layout))
      print_line("", fmt::format("   \"{}\" times \"{}\"", product.a_used.print(), product.b_used.print()));
  }
}

void print_layer(const Plan& plan, int index, const ExplainOptions& options) {
  const auto& layer = plan.layers[index];
  fmt::print("\n{} = {}", layer.name, layer.op->kind());
  for (std::size_t i = 0; i < layer.inputs.size(); ++i)
    fmt::print("{}{}", i == 0 ? "(" : ", ", plan.layers[layer.inputs[i]].name);
  fmt::print("{} {}\n", layer.inputs.empty() ? "" : ")", layer.op->describe());
  if (layer.activation_fusion() > ActivationFusion::where_fused)
    print_line("then", fmt::format("{}, in the same kernels{}", name(layer.next_activation->kind),
                                   layer.activation_fusion() == ActivationFusion::both ? " of both passes" : ""));
  if (layer.computed_by_producer)
    print_line("runs in", fmt::format("the kernels of {}{}", plan.layers[layer.inputs.front()].name,
                                      layer.forwards_gradient ? "" : ", but for its gradient"));
  if (layer.drops >= 0)
    print_line("drops", fmt::format("elements of {}, in the same kernel", plan.layers[layer.inputs[layer.drops]].name));
  if (layer.computed_by_reader)
    print_line("runs in", fmt::format("the kernel of {}, but for its gradient",
                                      plan.layers[plan.all_readers.of(index).front()].name));
  if (layer.adds_gradient)
    print_line("adds dx", fmt::format("to the gradient of {} that other readers made, in the same kernels",
                                      plan.layers[layer.inputs.front()].name));
  print_algorithm(layer->at, plan.workload.dtype);
  print_products(layer->at.products, plan.workload.dtype);
  for (const auto& x : layer->at.x) print_line("x", shape_and_layout(x.shape(), x));
  for (std::size_t i = 0; i < layer->weights.size(); ++i)
    print_line("w", fmt::format("{:<28} {} {}{}", layer->at.w[i].print(), layer->weights[i].name,
                                layer->weights[i].shape.print(),
                                i > 0 || layer.table < 0 ? "" : origin_of_table(plan, layer)));
  for (std::size_t i = 0; i < layer->weights.size(); ++i)
    if (const auto& rest = layer->rest[i]; !rest.gather.empty())
      print_line("w rests",
                 fmt::format("{:<28} {}, by {}", rest.w.print(), layer->weights[i].name, print(rest.gather)));
  if (!(layer->at.y == layer->y)) print_line("computes", layer->at.y.print());
  print_line("y", shape_and_layout(layer->shape, layer->y));
  if (plan.workload.training) {
    print_gradients(layer);
    print_bucket(plan, index);
  }
  print_redistributions(layer, plan.workload.training);
  if (layer->at.x_halo) print_line("halo x", layer->at.x_halo->widths());
  if (layer->at.dy_halo && layer->needs_dx[0] && plan.workload.training)
    print_line("halo dy", layer->at.dy_halo->widths());
  for (const auto& boundary : layer.sends_to_stages) {
    const int stage = plan.stage_of_group[boundary.group];
    print_line(fmt::format("y to {}", stage),
               shape_and_layout(layer->shape, boundary.to) + fmt::format(" on stage {}", stage));
  }
  if (layer.recompute) print_line("backward", "recomputes the output; it is not stored until then");
  for (const auto& note : layer->notes) print_line("dropped", note);
  print_traffic(plan, index, options.rank);
  print_line("memory", layer_memory(plan, index, options.rank).print());
  if (options.picture && layer->shape.has('H') && layer->shape.has('W')) fmt::print("{}", picture(layer->y, 'H', 'W'));
}

/// Prints all layers, or the one that --why names.
void print_layers(const Plan& plan, int asked, const ExplainOptions& options) {
  if (asked >= 0) return print_layer(plan, asked, options);
  for (int layer = 0, before = -1; layer < static_cast<int>(plan.layers.size()); ++layer) {
    const int group = plan.layers[layer].group;
    if (plan.grids.size() > 1 && group != before)
      fmt::print("\n== stage {}{} ==\n", plan.stage_of(layer),
                 plan.stage_of_group.size() > plan.grids.size() ? fmt::format(", group {}", group) : "");
    before = group;
    print_layer(plan, layer, options);
  }
}

/// Returns e.g. "image to pool1 (group 0), loss (group 3)". The groups of the second replica come after those of the
/// first.
std::string layers_of_stage(const Plan& plan, int stage) {
  std::string text;
  for (int replica = 0; replica < plan.replicas(); ++replica)
    for (int group = 0; group < static_cast<int>(plan.stage_of_group.size()); ++group) {
      if (plan.stage_running(group, replica) != stage) continue;
      const auto in = [&](const LayerPlan& layer) { return layer.group == group; };
      const auto first = std::find_if(plan.layers.begin(), plan.layers.end(), in);
      const auto last = std::find_if(plan.layers.rbegin(), plan.layers.rend(), in);
      text += (text.empty() ? "" : ", ") + first->name;
      if (last->name != first->name) text += " to " + last->name;
      if (plan.stage_of_group.size() > plan.grids.size()) text += fmt::format(" (group {})", group);
      if (replica > 0) text += " (second replica)";
    }
  return text;
}

std::string print_ranks(const Grid& grid) {
  const int first = grid.first_rank(), last = first + grid.size() - 1;
  return first == last ? fmt::format("rank {}", first) : fmt::format("ranks {} to {}", first, last);
}

/// Prints the grids, the ranks and the schedule of all stages.
void print_head(const Plan& plan, const ScheduleReport& schedule, const std::vector<std::string>& notes,
                const ExplainOptions& options) {
  const bool alone = plan.grids.size() == 1;
  fmt::print("{} on {} ({}), batch {}, {}; messages, bytes and memory of rank {}\n", plan.model,
             alone ? fmt::format("the grid \"{}\"", plan.grid().print()) : fmt::format("{} stages", plan.grids.size()),
             counted(plan.ranks(), "rank"), options.trainer.batch, name(options.trainer.dtype), options.rank);
  if (plan.microbatches > 1)
    fmt::print("in {} microbatches of {}{}; layouts and memory of a layer are for one microbatch\n", plan.microbatches,
               counted(plan.samples(0).extent(), "sample"), plan.remainder_layers.empty() ? "" : " or one less");
  for (const auto& note : notes) fmt::print("note: {}\n", note);
  if (alone && plan.microbatches == 1) return fmt::print("schedule: {}", plan.schedule.print());
  for (std::size_t stage = 0; !alone && stage < plan.grids.size(); ++stage)
    fmt::print("  stage {}, {}, grid \"{}\": {}\n", stage, print_ranks(plan.grids[stage]), plan.grids[stage].print(),
               layers_of_stage(plan, static_cast<int>(stage)));
  fmt::print("schedule in unit times, not measured times; the actions include transfers and updates\n{}",
             print(schedule, 100));
}

/// The index of the layer that --why names; -1 without --why.
int asked_why(const ExplainOptions& options, const Model& model) {
  if (options.why.empty()) return -1;
  std::vector<std::string> names;
  for (const auto& layer : model.layers()) names.push_back(layer.name);
  const auto found = std::find(names.begin(), names.end(), options.why);
  if (found == names.end())
    fail("--why {}: the model '{}' has no such layer{}; give one layer's name", options.why, model.name(),
         did_you_mean(options.why, names));
  return static_cast<int>(found - names.begin());
}

/// Prints the predicted time of a step and, if `layer` is not -1, how the predicted times of that layer come about: on
/// the rank of --rank if that is given and has a part of the layer, else on the slowest.
void print_price(const Plan& plan, const Cost& cost, const MachineFiles& files, int layer,
                 const ExplainOptions& options) {
  const auto& [machine, times, note] = files;
  fmt::print("predicted time: {:.3f} ms per step on \"{}\"{}\n", cost.seconds * 1e3, machine.name,
             note.empty() ? "" : "; " + note);
  if (layer < 0) return;
  const Grid& grid = plan.grid_of(layer);
  std::optional<int> rank;
  if (options.names_rank && plan.stage_of_rank(options.rank) == plan.stage_of(layer))
    rank = options.rank - grid.first_rank();
  fmt::print("\n{}", explain_cost(plan, machine, times, layer, rank));
}

/// Returns the properties of the card that --device means. Throws Error if they are not known.
std::string card_properties(const ExplainOptions& options) {
  const std::string& file = options.device.properties;
  if (file.empty() && have_cuda() && cuda_cards().empty())
    fail("--device {}: this machine has no card; describe one with --properties FILE", options.device.name);
  const std::string properties = file.empty() ? "" : read_text("--properties", file);
  if (!file.empty() && properties.empty()) fail("--properties {}: the file is empty", file);
  try {
    static_cast<void>(cudnn_uses({}, {}, properties));
  } catch (const Error& error) {
    if (file.empty() || !have_cuda()) throw;
    fail("--properties {}: it does not describe a card as JSON: {}", file, error.what());
  }
  return properties;
}

/// Returns the memory of the card that these properties describe; "" stands for the first card of this machine.
Index memory_of_card(const std::string& properties) {
  if (properties.empty()) return cuda_cards().front().memory;
  const Json json = Json::parse(properties, nullptr, /*allow_exceptions=*/false);
  return json.is_object() ? json.value("totalGlobalMem", Index{0}) : 0;
}

/// Says what cuDNN runs of a rank's convolutions: which ones run in kernels of our own, because it has no engine for
/// them, and how many have to do with less workspace than their fastest engine needs.
void print_use_of_cudnn(const Plan& plan, const std::string& properties, const ExplainOptions& options) {
  CudaOptions card{options.trainer.dtype, options.device.tf32, options.device.workspace};
  if (card.workspace == 0) card.workspace = default_workspace(memory_of_card(properties));
  int all = 0, left = 0, limited = 0;
  Index most = 0;
  std::string which;
  for (const auto& layer : plan.layers) {
    if (plan.stage_running(layer.group) != plan.stage_of_rank(options.rank)) continue;
    const auto kernel = make_kernel(layer, plan.rank_in_stage(options.rank));
    const auto problems =
        kernel->problems(plan.workload.training, true, layer.next_activation && cuda_fuses(*layer.next_activation));
    const auto uses = cudnn_uses(problems, card, properties);
    for (std::size_t i = 0; i < problems.size(); ++i) {
      ++all;
      if (!uses[i].runs) {
        ++left;
        fmt::print("{} has no engine of cuDNN for {}; a kernel of Partita runs it\n", layer.name, problems[i].print());
      }
      if (!uses[i].runs || !uses[i].limited) continue;
      ++limited;
      if (uses[i].workspace <= most) continue;
      most = uses[i].workspace;
      which = fmt::format("{}, {}", layer.name, problems[i].print());
    }
  }
  fmt::print("cuDNN runs {} of {} on rank {}\n", all - left, counted(all, "convolution"), options.rank);
  if (limited > 0)
    fmt::print(
        "the engines that it expects to be the fastest need more than the workspace of {} leaves for {} of them, up to "
        "{} ({}); these take other engines, or a part of the batch at a time\n",
        print_bytes(card.workspace), limited, print_bytes(most), which);
}

/// Returns what decides whether cuDNN may compute the attention of a layer, in a pass that `adds` to results; none of
/// another layer, and none of whole attention, which consists of products.
std::optional<AttentionTraits> attention_traits(const LayerPlan& layer, const Workload& workload, bool adds) {
  if (layer.op->kind() != "attention") return std::nullopt;
  const auto& op = static_cast<const AttentionOperator&>(*layer.op);
  if (op.whole()) return std::nullopt;
  return AttentionTraits{.dtype = workload.dtype,
                         .results = workload.dtype,
                         .segments = op.inputs() == 2,
                         .drops = workload.training && op.dropout() > 0,
                         .adds = adds,
                         .dim = op.heads(layer->input_shapes[0]).dim};
}

/// Says which layers of attention on a rank cuDNN is asked for, and why the others run in kernels of our own.
void print_attention_of_cudnn(const Plan& plan, const ExplainOptions& options) {
  int all = 0, left = 0;
  for (const auto& layer : plan.layers) {
    if (plan.stage_running(layer.group) != plan.stage_of_rank(options.rank)) continue;
    const auto steps = layer->at.ring ? layer->at.ring->steps(options.rank) : std::vector<RingStep>();
    const auto forward = attention_traits(layer, plan.workload, adds_results(steps));
    if (!forward) continue;
    ++all;
    // A rank whose queries meet its own keys alone adds in backward, to the gradients of these keys.
    const auto backward = attention_traits(layer, plan.workload, steps.size() > 1);
    const bool in_forward = !why_not_fused(*forward).empty();
    const std::string_view reason = why_not_fused(plan.workload.training ? *backward : *forward);
    if (reason.empty()) continue;
    ++left;
    fmt::print("a kernel of Partita computes {}{}, since {}\n", in_forward ? "" : "the backward of ", layer.name,
               reason);
  }
  if (all > 0)
    fmt::print("cuDNN is asked for the attention of {} of {} on rank {}\n", all - left, counted(all, "layer"),
               options.rank);
}

/// Says how much memory the allocator takes. It is more than the peak, since it keeps what is released.
void print_taken(const Plan& plan, const MemoryPeak& memory, Index limit, int rank) {
  const Index taken = taken_memory(plan, rank, state_memory(plan, rank));
  const bool gives_back = limit > 0 && taken > limit && memory.total <= limit;
  fmt::print("memory taken: {}, as released memory is kept for buffers of the same size{}\n", print_bytes(taken),
             gives_back
                 ? fmt::format("; to stay within {}, each step gives memory back, which takes time", print_bytes(limit))
                 : "");
}

/// Returns the ranks of one of the machine's nodes; 0 if it has no others, or the plan fits into one.
int ranks_of_node(const Plan& plan, const Machine& machine) {
  const auto ranks = static_cast<int>(machine.levels.front().ranks.value);
  return machine.levels.size() > 1 && plan.ranks() > ranks ? ranks : 0;
}

/// Says what of each axis leaves the rank's node, and returns it. The order of the grid's axes decides it.
std::vector<LeavingBytes> print_leaving(const Plan& plan, const Machine& machine, int rank) {
  const int ranks = ranks_of_node(plan, machine);
  if (ranks == 0) return {};
  auto all = leaving_bytes(plan, rank, ranks);
  const int first = rank / ranks * ranks;
  std::string text;
  for (const auto& [along, bytes] : all)
    text += fmt::format("{}{} along {}", text.empty() ? "" : ", ", print_bytes(static_cast<Index>(bytes)), along);
  fmt::print("leaves the {} of ranks {} to {} per step: {}\n", machine.levels.front().name, first,
             std::min(first + ranks, plan.ranks()) - 1, text.empty() ? "nothing" : text);
  return all;
}

int explain(const ExplainOptions& options, const ModelFactory& factory) {
  check_writable({{"--svg", options.svg}, {"--json", options.json, FileKind::json}}, strategy_files(options));
  const bool on_card = options.device.name != "cpu";
  const std::string properties = on_card ? card_properties(options) : "";
  const Model model = make_model(options, factory);
  const int asked = asked_why(options, model);
  const MachineFiles files = load_machine(options);
  const Strategy given = make_strategy(options, 1);
  const auto [strategy, choices] = settle_strategy(options, model, given, files);
  const Plan plan = bind(model, strategy, make_workload(options));
  if (options.rank < 0 || options.rank >= plan.ranks())
    fail("--rank {}: the {} has the ranks 0 to {}", options.rank,
         plan.grids.size() == 1 ? fmt::format("grid \"{}\"", plan.grid().print()) : "strategy", plan.ranks() - 1);
  ScheduleRequest unit_times;
  unit_times.filter_memory = kept_until_backward_filter;
  const ScheduleReport schedule = examine(plan.schedule, graph_of(plan), unit_times);
  if (!options.svg.empty()) write_text("--svg", options.svg, draw(schedule));
  auto notes = microbatch_notes(strategy, plan);
  for (auto& note : plan_notes(plan)) notes.push_back(std::move(note));
  if (!choices.empty()) notes.push_back(fmt::format("chosen for \"{}\": {}", files.machine.name, choice_note(choices)));
  print_head(plan, schedule, notes, options);
  print_layers(plan, asked, options);
  const Traffic traffic = rank_traffic(plan, options.rank).counted;
  fmt::print("\ntotal per step: {} messages, {} ({} bytes) from rank {}\n", traffic.messages,
             print_bytes(traffic.bytes), traffic.bytes, options.rank);
  auto leaves_node = print_leaving(plan, files.machine, options.rank);
  const MemoryPeak memory = peak_memory(plan, options.rank);
  fmt::print("peak memory: {} ({} bytes); peaks by class: {}\n", print_bytes(memory.total), memory.total,
             memory.each.print());
  print_taken(plan, memory, options.trainer.memory_limit, options.rank);
  std::optional<Cost> cost;
  if (plan.workload.training) {
    cost = estimate(plan, files.machine, files.times);
    print_price(plan, *cost, files, asked, options);
  }
  if (!options.json.empty())
    write_text("--json", options.json,
               print_json(to_json(Explained{plan, options.rank, std::move(notes), files.machine.name,
                                            std::move(leaves_node), std::move(cost)})));
  if (on_card) {
    print_use_of_cudnn(plan, properties, options);
    print_attention_of_cudnn(plan, options);
  }
  std::fflush(stdout);
  check_fits(plan, model, given, files, limit_of(options, files.machine));
  return 0;
}

class Explain final : public ModelCommand<ExplainOptions> {
 public:
  using ModelCommand::ModelCommand;
  void add_options(po::options_description& all) override {
    add_priced(all, options_, program_);
    all.add(explain_options(options_));
  }
  void check(const CommandLine& line) override {
    settle(options_, program_, line);
    options_.names_rank = line.gives("rank");
    options_.trainer.training = !options_.evaluation;
  }
  int run(Communicator*) const override { return explain(options_, program_.model); }
};

}  // namespace

extern const VerbEntry explain_verb{
    "explain",
    "prints the layouts, communication and memory of each layer under a strategy; it runs in one process on any "
    "computer, without mpiexec",
    "", make<Explain>};

}  // namespace partita::cli
