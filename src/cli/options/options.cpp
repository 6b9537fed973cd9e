#include "src/cli/options/options.hpp"

#include "partita/base/error.hpp"
#include "partita/comm/mpi.hpp"
#include "src/base/launched_rank.hpp"
#include "src/cli/files/text_file.hpp"
#include "src/cli/options/device_options.hpp"
#include "src/cli/options/number_option.hpp"
#include "src/cli/options/optimizer_options.hpp"
#include "src/cli/options/option_values.hpp"
#include "src/train/kernels/kernel_choice.hpp"

#include <fmt/ranges.h>

#include <chrono>
#include <utility>

namespace partita::cli {

namespace po = boost::program_options;

namespace {

Index memory_size(const std::string& text) { return parse_size("--memory-limit", text); }

DType training_type(const std::string& text) {
  const DType dtype = parse_dtype(text);
  if (dtype == DType::i32) fail("networks compute in f64, f32, bf16 or f16");
  return dtype;
}

/// Checks the number of ranks that are threads.
void check_thread_ranks(int ranks) {
  constexpr int most = 1024;
  if (ranks < 1) fail("--ranks {}: it must be 1 or more", ranks);
  if (ranks > most)
    fail("--ranks {0}: one process has at most {1} ranks; start processes with mpiexec -n {0}", ranks, most);
}

}  // namespace

po::options_description model_options(Options& o, const Program& program, const ModelGroup& has) {
  po::options_description group("Model and strategy");
  auto add = group.add_options();
  if (program.builtin()) {
    add("model", po::value(&o.model)->default_value(o.model)->value_name("NAME"),
        fmt::format("built-in model: {}", fmt::join(builtin_models(), ", ")).c_str());
    add("size", number(&o.size.extent)->value_name("N"), "extent of each spatial dimension of the model's input");
    add("channels", number(&o.size.channels)->value_name("N"), "channels of the model's input");
    add("classes", number(&o.size.classes)->value_name("N"), "number of classes or values that the model predicts");
    add("width", number(&o.size.width)->default_value(1, "1")->value_name("W"),
        "factor that scales the channels of the model's layers");
    add("widths", number(&o.size.widths)->multitoken()->value_name("N..."),
        "features of each hidden layer of the model mlp, separated by spaces (1024 1024); --width scales them");
    add("layers", number(&o.size.transformer.layers)->value_name("N"), "blocks of a transformer");
    add("hidden", number(&o.size.transformer.hidden)->value_name("N"), "channels of each place of a transformer");
    add("heads", number(&o.size.transformer.heads)->value_name("N"), "heads of attention of a transformer");
    add("sequence", number(&o.size.transformer.sequence)->value_name("N"), "places of a sample of a transformer");
    add("vocabulary", number(&o.size.transformer.vocabulary)->value_name("N"), "different tokens of a transformer");
    add("tied", po::bool_switch(&o.size.transformer.tied),
        "the scores of gpt or bert share the table of the embedding");
    add("patch", number(&o.size.transformer.patch)->value_name("N"),
        "extent of the patches of an image that vit reads");
    add("dropout", number(&o.size.transformer.dropout)->value_name("RATE"),
        "rate of dropout in a transformer, from 0 to less than 1 (0)");
    add("segments", po::bool_switch(&o.size.transformer.segments),
        "gpt, its presets and bert read a second input, segments: the places of a sample see those with an equal "
        "number");
    add("tables", number(&o.size.tables.tables)->value_name("N"), "number of tables of dlrm, and so of categories");
    add("rows", number(&o.size.tables.rows)->value_name("N"), "rows of each table of dlrm");
    add("features", number(&o.size.tables.features)->value_name("N"), "features of each row of dlrm's tables");
    add("bag", number(&o.size.tables.bag)->value_name("N"), "indices of each category of dlrm");
    Experts& experts = o.size.transformer.experts;
    add("experts", number(&experts.experts)->value_name("N"),
        "experts in each block of a transformer: linear layers of which each place takes those that it chooses");
    add("choices", number(&experts.chosen)->default_value(experts.chosen)->value_name("N"),
        "experts that each place chooses");
    add("capacity", number(&experts.capacity)->default_value(experts.capacity, "1.25")->value_name("F"),
        "places that an expert takes of a sample, as a multiple of its even share; it drops the places behind them");
    add("balance", number(&experts.balance)->default_value(experts.balance, "0.01")->value_name("B"),
        "factor of the loss that balances the experts; no printed loss contains it");
    add("ignore-label", parsed("--ignore-label", o.size.labels.ignored, parse_label)->value_name("LABEL"),
        "label of the samples or positions that count for nothing, e.g. 255; the loss is the mean over the others");
    add("class-weights", number(&o.size.labels.weights)->multitoken()->value_name("W..."),
        "weight in the loss of the labels of each class, separated by spaces; the loss is the weighted mean");
    add("label-smoothing", number(&o.size.labels.smoothing)->value_name("S"),
        "share of each label's loss that all classes have together, from 0 to less than 1");
    add("batch-norm",
        parsed("--batch-norm", o.size.batch_norm, parse_batch_norm)->default_value("synchronized")->value_name("HOW"),
        "samples over which batch normalization computes its statistics: synchronized (of all ranks), local (each "
        "rank's own) or ranks=N (of groups of N neighbors); only synchronized makes the strategy change no result");
  }
  if (has.strategy) {
    add("strategy", po::value(&o.strategy)->value_name("FILE"),
        program.strategy ? "strategy file (TOML), or none; default: declared, the strategy that the program declares"
                         : "strategy file (TOML); default: split the samples over all ranks");
    if (has.grids != nullptr)
      add("grid", po::value(has.grids)->multitoken()->composing()->value_name("AXES..."),
          "replace the grid of the strategies, e.g. \"data=2 y=2\"; with --ranks several grids, in which {} stands for "
          "the ranks that the other axes leave, e.g. \"data={} y=2\"");
    else
      add("grid", po::value(&o.grid)->value_name("AXES"), "replace the grid of the strategy, e.g. \"data=2 y=2\"");
    add("rule", po::value(&o.rules)->composing()->value_name("RULE"),
        "add a rule after those of the strategy, e.g. \"conv*: N@data H@y\"; may be repeated");
  }
  if (has.memory_limit)
    add("memory-limit", parsed("--memory-limit", o.trainer.memory_limit, memory_size)->value_name("SIZE"),
        has.machine ? "limit for the tensors on each rank, e.g. 4GiB; default: the memory that the --machine file "
                      "states, or no limit without --machine"
                    : "limit for the tensors on each rank, e.g. 4GiB; default: no limit");
  add("batch", number(&o.trainer.batch)->default_value(o.trainer.batch)->value_name("N"),
      "samples per step, over all ranks");
  return group;
}

void add_dtype(po::options_description& group, Options& o) {
  group.add_options()("dtype",
                      parsed("--dtype", o.trainer.dtype, training_type)->default_value("f32")->value_name("TYPE"),
                      "data type: f64, f32, bf16 or f16; bf16 and f16 keep master weights in f32");
}

po::options_description workload_options(Options& o) {
  po::options_description group("Workload");
  add_dtype(group, o);
  return group;
}

po::options_description optimizer_options(Options& o) {
  auto& t = o.trainer;
  po::options_description group("Optimizer");
  auto add = group.add_options();
  add("optimizer", parsed("--optimizer", t.optimizer.method, parse_method)->default_value("sgd")->value_name("NAME"),
      "sgd, adagrad, rmsprop, adam, adamw, lars or lamb");
  add("rate", number(&t.optimizer.rate)->default_value(t.optimizer.rate, "0.05")->value_name("R"),
      "peak learning rate; the default is 0.01 for adagrad, and 0.001 for rmsprop, adam, adamw and lamb");
  add("momentum", number(&t.optimizer.momentum)->default_value(t.optimizer.momentum, "0.9")->value_name("M"),
      ("momentum; " + used_by("momentum")).c_str());
  add("beta1", number(&t.optimizer.beta1)->default_value(t.optimizer.beta1, "0.9")->value_name("B"),
      ("decay factor of the running mean of the gradient; " + used_by("beta1")).c_str());
  add("beta2", number(&t.optimizer.beta2)->default_value(t.optimizer.beta2, "0.999")->value_name("B"),
      ("decay factor of the running mean of the squared gradient; " + used_by("beta2")).c_str());
  add("epsilon", number(&t.optimizer.epsilon)->default_value(t.optimizer.epsilon, "1e-8")->value_name("E"),
      ("added to the denominator; " + used_by("epsilon")).c_str());
  add("trust", number(&t.optimizer.trust)->default_value(t.optimizer.trust, "0.001")->value_name("T"),
      ("trust coefficient; " + used_by("trust")).c_str());
  add("nesterov", po::bool_switch(&t.optimizer.nesterov), ("use Nesterov momentum; " + used_by("nesterov")).c_str());
  add("weight-decay", number(&t.optimizer.weight_decay)->default_value(0, "0")->value_name("D"),
      "weight decay; biases and the weights of normalization layers have none");
  add("warm-up", number(&t.optimizer.warm_up)->default_value(0)->value_name("STEPS"),
      "number of first steps over which the learning rate rises linearly to its peak");
  add("decay", parsed("--decay", t.optimizer.decay, parse_decay)->default_value("none")->value_name("KIND"),
      "how the learning rate falls from the end of the warm-up to the last step: none, linear or cosine");
  add("decay-steps", number(&t.decay_steps)->value_name("STEP"),
      "step at which the decay ends; default: the last step, or that of the training that --load continues");
  add("decay-floor", number(&t.optimizer.floor)->default_value(0, "0")->value_name("F"),
      "share of the peak learning rate at which the decay ends");
  add("clip-norm", number(&t.optimizer.clip_norm)->default_value(0, "0")->value_name("N"),
      "scale gradients down to this norm over all weights where theirs is larger; 0: never");
  return group;
}

po::options_description price_options(Options& o) {
  po::options_description group("Machine");
  auto add = group.add_options();
  add("machine", po::value(&o.machine)->value_name("FILE"),
      "machine file (TOML); measured kernel times are read from FILE.times if that exists; default: assumed values for "
      "two CPU cores");
  add("scale-compute", number(&o.scale_compute)->default_value(1, "1")->value_name("X"),
      "multiply all predicted computing times by X, e.g. by the measured time of a step on one rank divided by the "
      "predicted one");
  return group;
}

po::options_description rank_options(Options& o) {
  po::options_description group("Run");
  auto add = group.add_options();
  add("backend", po::value(&o.trainer.backend)->default_value(o.trainer.backend)->value_name("NAME"),
      "compute backend: auto, onednn or reference");
  add("threads", number(&o.trainer.threads)->default_value(o.trainer.threads)->value_name("N"),
      "threads per rank; at most 8 times the cores that a rank may use");
  add("kernels", po::value(&o.trainer.kernel_folder)->default_value(default_kernel_folder())->value_name("DIR"),
      "folder that stores the measured choices of kernels; \"\": choose kernels by rule, without measuring");
  add("timeout", number(&o.timeout)->default_value(o.timeout)->value_name("S"),
      "seconds that a rank waits for other ranks before it ends the job; 0: no limit");
  add("wait-note", number(&o.wait_note)->default_value(o.wait_note)->value_name("S"),
      "seconds after which a rank that still waits for other ranks prints for whom and at which layer; 0: never");
  add_device_options(group, o.device);
  return group;
}

void add_priced(po::options_description& all, Options& o, const Program& program, const ModelGroup& has) {
  all.add(model_options(o, program, has)).add(workload_options(o)).add(optimizer_options(o)).add(price_options(o));
}

void add_thread_ranks(po::options_description& group, Options& o) {
  group.add_options()("ranks", number(&o.thread_ranks)->value_name("N"),
                      "run N ranks as threads of this one process, without MPI; the results are those of mpiexec -n N");
}

void settle(Options& o, const Program& program, const CommandLine& line) {
  auto& optimizer = o.trainer.optimizer;
  if (line.values.count("rate") != 0) {
    if (!line.gives("rate")) optimizer.rate = usual_rate(optimizer.method);
    check_used(line.values, optimizer.method);
  }
  const Experts &experts = o.size.transformer.experts, usual = TransformerSize().experts;
  for (const auto& [option, differs] : {std::pair("choices", experts.chosen != usual.chosen),
                                        {"capacity", experts.capacity != usual.capacity},
                                        {"balance", experts.balance != usual.balance}})
    if (differs && experts.experts < 2)
      fail("--{}: it is an option of experts; give --experts 2 or more, or leave it out", option);
  if (o.trainer.batch > most_samples) fail("--batch {}: it must be {} or less", o.trainer.batch, most_samples);
  if (o.trainer.batch < 1) fail("--batch {}: it must be 1 or more", o.trainer.batch);
  if (o.trainer.decay_steps < 0) fail("--decay-steps {}: it must be 0 (the last step) or more", o.trainer.decay_steps);
  if (o.device.name != "cpu" && o.trainer.backend != TrainerOptions().backend)
    fail("--backend {}: it chooses kernels of the CPU; leave it out with --device {}", o.trainer.backend,
         o.device.name);
  check_threads(o.trainer.threads);
  if (o.wait_note < 0) fail("--wait-note {}: it must be 0 (never) or more", o.wait_note);
  if (o.timeout < 0) fail("--timeout {}: it must be 0 (no limit) or more", o.timeout);
  if (!o.strategies.empty() && !o.strategy.empty())
    fail("--strategy {} cannot be combined with --strategies; name all files after --strategies", o.strategy);
  check_optimizer(optimizer);
  if (!(o.scale_compute >= 1e-3 && o.scale_compute <= 1e3))
    fail("--scale-compute {}: it must be 0.001 to 1000", o.scale_compute);
  if (!program.strategy) return;
  o.declared = program.strategy();
  if (o.strategy.empty() && o.strategies.empty()) o.strategy = declared_strategy;
}

void settle_on_ranks(Options& o, const Program& program, const CommandLine& line) {
  const bool given = line.gives("ranks");
  if (given) check_thread_ranks(o.thread_ranks);
  if (const int processes = launched_processes().number; processes > 1) {
    if (given && launched_rank() != nullptr)
      fail(
          "--ranks {}: the ranks are threads of one process, but {} processes were started; start one, or leave out "
          "--ranks; with Slurm, srun --mpi=none starts processes that train independently",
          o.thread_ranks, processes);
    if (!have_mpi() && !given)
      fail(
          "this build has no MPI, but {} processes were started; start one with --ranks N, or build with -Dmpi=enabled",
          processes);
  }
  if (!have_mpi() && !given) o.thread_ranks = 1;
  check_readable_by_all(strategy_files(o));
  const bool threads = o.thread_ranks > 0;
  if (!threads && o.device.transport == CardTransport::copies)
    fail("--transport copies: cards copy to each other only if their ranks are threads of one process; give --ranks N");
  if (threads && o.device.transport == CardTransport::automatic) o.device.transport = CardTransport::copies;
  o.device.limit = std::chrono::seconds(o.timeout);
  settle(o, program, line);
}

RankSettings rank_settings(const Options& o) { return {o.thread_ranks, o.timeout, o.wait_note, o.trainer.threads}; }

std::vector<NamedFile> strategy_files(const Options& options) {
  std::vector<NamedFile> files{{"--strategy", options.strategy}, {"--machine", options.machine}};
  for (const auto& file : options.strategies) files.push_back({"--strategies", file});
  return files;
}

}  // namespace partita::cli
