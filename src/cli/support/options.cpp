#include "src/cli/support/options.hpp"

#include "partita/base/error.hpp"
#include "partita/comm/mpi.hpp"
#include "partita/model/builtin/builtin.hpp"
#include "src/cli/support/command_line.hpp"
#include "src/cli/support/device_options.hpp"
#include "src/cli/support/number_option.hpp"
#include "src/cli/support/optimizer_options.hpp"
#include "src/cli/support/option_values.hpp"
#include "src/cli/support/options_file.hpp"
#include "src/cli/support/plan_options.hpp"
#include "src/cli/support/rank_options.hpp"
#include "src/cli/support/rank_patterns.hpp"
#include "src/cli/support/size.hpp"
#include "src/cli/support/threads.hpp"
#include "src/cli/support/verb_list.hpp"
#include "src/cli/version.hpp"

#include <fmt/ranges.h>
#include <algorithm>
#include <sstream>

namespace partita::cli {

namespace {

namespace po = boost::program_options;

struct Texts {  // values that are parsed after Boost has read them
  std::string batch_norm = "synchronized", dtype = "f32", decay = "none", method = "sgd", memory_limit, workspace,
              on_nan = "stop";
};

/// `plan` has no options for a strategy, because it searches for one. `calibrate` has no memory limit, because it runs
/// no whole step.
po::options_description model_options(Options& o, Texts& texts, bool builtin) {
  po::options_description group("Model and strategy");
  auto add = group.add_options();
  if (builtin) {
    add("model", po::value(&o.model)->default_value(o.model)->value_name("NAME"),
        fmt::format("built-in model: {}", fmt::join(builtin_models(), ", ")).c_str());
    add("size", number(&o.size.extent)->value_name("N"), "extent of each spatial dimension of the model's input");
    add("channels", number(&o.size.channels)->value_name("N"), "channels of the model's input");
    add("classes", number(&o.size.classes)->value_name("N"), "number of classes or values that the model predicts");
    add("width", number(&o.size.width)->default_value(1, "1")->value_name("W"),
        "factor that scales the channels of the model's layers");
    add("widths", number(&o.size.widths)->multitoken()->value_name("N..."),
        "features of each hidden layer of the model mlp, separated by spaces (1024 1024); --width scales them");
    add("batch-norm", po::value(&texts.batch_norm)->default_value(texts.batch_norm)->value_name("HOW"),
        "samples over which batch normalization computes its statistics: synchronized (of all ranks), local (each "
        "rank's own) or ranks=N (of groups of N neighbors); only synchronized makes the strategy change no result");
  }
  if (o.verb != "plan") {
    add("strategy", po::value(&o.strategy)->value_name("FILE"),
        o.declared ? "strategy file (TOML), or none; default: declared, the strategy that the program declares"
                   : "strategy file (TOML); default: split the samples over all ranks");
    if (o.verb == "compare")
      add("grid", po::value(&o.grids)->multitoken()->composing()->value_name("AXES..."),
          "replace the grid of the strategies, e.g. \"data=2 y=2\"; with --ranks several grids, in which {} stands for "
          "the ranks that the other axes leave, e.g. \"data={} y=2\"");
    else
      add("grid", po::value(&o.grid)->value_name("AXES"), "replace the grid of the strategy, e.g. \"data=2 y=2\"");
    add("rule", po::value(&o.rules)->composing()->value_name("RULE"),
        "add a rule after those of the strategy, e.g. \"conv*: N@data H@y\"; may be repeated");
  }
  if (o.verb != "calibrate")
    add("memory-limit", po::value(&texts.memory_limit)->value_name("SIZE"),
        o.verb == "evaluate" ? "limit for the tensors on each rank, e.g. 4GiB; default: no limit"
                             : "limit for the tensors on each rank, e.g. 4GiB; default: the memory that the --machine "
                               "file states, or no limit without --machine");
  add("batch", number(&o.trainer.batch)->default_value(o.trainer.batch)->value_name("N"),
      "samples per step, over all ranks");
  return group;
}

void add_dtype(po::options_description& group, Texts& texts) {
  group.add_options()("dtype", po::value(&texts.dtype)->default_value(texts.dtype)->value_name("TYPE"),
                      "data type: f64, f32, bf16 or f16; bf16 and f16 keep master weights in f32");
}

/// How ranks compute and wait: for every verb that runs on ranks.
po::options_description measure_options(Options& o) {
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
  if (o.verb != "compare") add_rank_option(group, o);
  return group;
}

po::options_description run_options(Options& o, Texts& texts) {
  po::options_description group = measure_options(o);
  add_dtype(group, texts);
  auto add = group.add_options();
  add("no-overlap", po::bool_switch()->notifier([&o](bool off) { o.trainer.overlap = !off; }),
      "finish each halo exchange before computing, instead of overlapping the two");
  add("data", po::value(&o.data)->default_value(o.data)->value_name("NAME"),
      "data set: fashion-mnist, hdf5 (reads training.h5 and test.h5), synthetic, or one that this program registers");
  add("data-dir", po::value(&o.data_dir)->value_name("DIR"), "folder with the data set's files");
  add("samples", number(&o.samples)->value_name("N"), "number of samples of the synthetic data set (default 1024)");
  add("seed", number(&o.trainer.seed)->default_value(o.trainer.seed)->value_name("N"),
      "seed for weights, shuffling, augmentation and dropout");
  add("load", po::value(&o.load)->value_name("FILE"),
      "start from a checkpoint; it may have been saved under another strategy");
  add("json", po::value(&o.json)->value_name("FILE"), "write the results to FILE as JSON");
  return group;
}

po::options_description optimizer_options(Options& o, Texts& texts) {
  auto& t = o.trainer;
  po::options_description group("Optimizer");
  auto add = group.add_options();
  add("optimizer", po::value(&texts.method)->default_value(texts.method)->value_name("NAME"),
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
  add("decay", po::value(&texts.decay)->default_value(texts.decay)->value_name("KIND"),
      "how the learning rate falls to 0 from the end of the warm-up to the last step: none, linear or cosine");
  add("decay-steps", number(&t.decay_steps)->value_name("STEP"),
      "step at which the decay reaches 0; default: the last step, or that of the training that --load continues");
  return group;
}

po::options_description train_options(Options& o, Texts& texts) {
  auto& t = o.trainer;
  po::options_description group("Training");
  auto add = group.add_options();
  add("epochs", number(&t.epochs)->default_value(t.epochs)->value_name("N"),
      "passes over the training set; those before a loaded checkpoint count too");
  add("steps", number(&t.steps)->value_name("N"), "stop after N steps; those before a loaded checkpoint count too");
  add("shift", number(&t.augmentation.shift)->default_value(0)->value_name("PIXELS"),
      "augmentation: shift images at random by up to PIXELS");
  add("flip", po::bool_switch(&t.augmentation.flip), "augmentation: mirror images at random");
  add("no-test", po::bool_switch()->notifier([&o](bool off) { o.test = !off; }),
      "skip the evaluation on the test set at the end");
  add("profile", po::bool_switch(&o.profile),
      "print how much time each layer and rank spends on compute, exchange, wait and framework");
  add_graph_option(group, t.graphs);
  add("trace", po::value(&o.trace)->value_name("FILE"),
      "write what every rank did in at most 8 steps after the first, as Chrome trace JSON (Perfetto shows it)");
  add("save", po::value(&o.save)->value_name("FILE"), "write a checkpoint after every epoch");
  add("save-every", number(&o.save_every)->value_name("STEPS"), "with --save: also write it every STEPS steps");
  add("overwrite", po::bool_switch(&o.overwrite), "let --save replace a checkpoint of another run");
  add("new-run", po::bool_switch(&o.new_run),
      "take only the weights of --load FILE, for a new training: with another batch, seed, optimizer or data set");
  add("skip", po::value(&o.skip)->composing()->value_name("PATTERN"),
      "with --new-run: do not load the layers whose names match, e.g. \"fc*\"; may be repeated");
  add("on-nan", po::value(&texts.on_nan)->default_value(texts.on_nan)->value_name("WHAT"),
      "if the loss or a gradient is not finite: stop, or skip (leave the weights as they are in this step)");
  add("write-options", po::value(&o.write_options)->value_name("FILE"),
      "write all options of this run to FILE, which --options reads");
  return group;
}

po::options_description explain_options(Options& o) {
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

po::options_description compare_options(Options& o) {
  po::options_description group("Compare");
  auto add = group.add_options();
  add("strategies", po::value(&o.strategies)->multitoken()->value_name("FILE..."), "strategy files to compare");
  add("measure", po::bool_switch(&o.measure),
      "also train for some steps with each strategy whose number of ranks is the one that was started");
  add("ranks", number(&o.rank_counts)->multitoken()->value_name("P..."),
      "predict each strategy on these numbers of ranks, in ascending order; numbers that a grid does not divide are "
      "left out; with --measure: one number, of ranks that are threads of this process");
  add("weak", po::bool_switch(&o.weak), "with --ranks: weak scaling, --batch is the number of samples per rank");
  add("csv", po::value(&o.csv)->value_name("FILE"), "with --ranks: write the points to FILE as CSV");
  add("json", po::value(&o.json)->value_name("FILE"), "write the results to FILE as JSON");
  return group;
}

po::options_description calibrate_options(Options& o) {
  po::options_description group("Calibrate");
  auto add = group.add_options();
  add("out", po::value(&o.out)->default_value("machine.toml")->value_name("FILE"),
      "machine file to write; kernel times go to FILE.times: they are added to that file if it belongs to this "
      "machine, else they replace it; without --out, a machine.toml without times is not replaced");
  add("strategies", po::value(&o.strategies)->multitoken()->value_name("FILE..."),
      "strategy files whose local kernels are measured; default: the strategy that --strategy, --grid and --rule give");
  return group;
}

po::options_description simulate_options(Options& o) {
  po::options_description group("Simulate");
  auto add = group.add_options();
  add("out", po::value(&o.out)->required()->value_name("DIR"),
      "folder for the platform, the list of hosts and the trace of each rank; it replaces older files of these names");
  add("json", po::value(&o.json)->value_name("FILE"), "write the results to FILE as JSON");
  return group;
}

/// All options that a verb accepts.
po::options_description options_of(Options& o, Texts& texts, const std::string& program, bool builtin) {
  po::options_description all(fmt::format("Usage: {} {} [options]", program, o.verb));
  add_common_options(all);
  all.add(model_options(o, texts, builtin));
  if (o.verb == "explain" || o.verb == "compare" || o.verb == "plan" || o.verb == "simulate" || o.verb == "calibrate") {
    po::options_description workload("Workload");
    add_dtype(workload, texts);
    all.add(workload).add(optimizer_options(o, texts));
    if (o.verb != "calibrate") all.add(price_options(o));
    if (o.verb == "plan") all.add(plan_options(o));
    if (o.verb == "explain") all.add(explain_options(o));
    if (o.verb == "simulate") all.add(simulate_options(o));
    if (o.verb == "compare") all.add(compare_options(o)).add(measure_options(o));
    if (o.verb == "calibrate") all.add(calibrate_options(o)).add(measure_options(o));
  } else {
    all.add(run_options(o, texts));
    if (o.verb == "train")
      all.add(price_options(o))
          .add(optimizer_options(o, texts))
          .add(train_options(o, texts))
          .add(watch_options(o.watch));
  }
  return all;
}

/// The options file that describes this run, for --write-options.
std::string print_run(const Options& o, const po::options_description& all, po::variables_map values) {
  values.at("rate").value() = o.trainer.optimizer.rate;  // its default depends on the optimizer
  auto unused = unused_options(o.trainer.optimizer.method);
  const bool resumes = !o.load.empty() && !o.new_run;  // what was not given comes from the checkpoint
  for (const auto& [name, value] : values)
    if (resumes && value.defaulted()) unused.push_back(name);
  return print_options_file(
      fmt::format("All options of a run of `{}` by Partita {}. --options reads this file, and options of the command "
                  "line replace those of the file. A line that begins with # and a name is an option that this run "
                  "does not have or does not use, or takes from the checkpoint that it resumes.",
                  o.verb, version),
      all, values, unused);
}

/// Checks the options of compare that belong to --ranks.
void check_curves(const Options& o) {
  check_rank_counts(o.rank_counts);
  if (!o.rank_counts.empty()) return;
  if (o.weak) fail("--weak needs --ranks, e.g. --ranks 1 2 4 8");
  if (!o.csv.empty()) fail("--csv {}: it needs --ranks, e.g. --ranks 1 2 4 8; --json writes the results", o.csv);
  if (o.grids.size() > 1) fail("--grid: several grids need --ranks, e.g. --ranks 1 2 4 8");
  if (!o.grids.empty() && o.grids[0].find("{}") != std::string::npos)
    fail("--grid \"{}\": {{}} needs --ranks, e.g. --ranks 1 2 4 8", o.grids[0]);
}

void check(const Options& o) {
  for (const auto& [option, value] : {std::pair("--batch", o.trainer.batch), std::pair("--epochs", o.trainer.epochs),
                                      std::pair("--samples", o.samples), std::pair("--steps", o.trainer.steps)})
    if (value > most_samples) fail("{} {}: it must be {} or less", option, value, most_samples);
  if (o.trainer.batch < 1) fail("--batch {}: it must be 1 or more", o.trainer.batch);
  if (o.trainer.epochs < 1) fail("--epochs {}: it must be 1 or more", o.trainer.epochs);
  if (o.trainer.steps < 0) fail("--steps {}: it must be 0 (all) or more", o.trainer.steps);
  if (o.trainer.decay_steps < 0) fail("--decay-steps {}: it must be 0 (the last step) or more", o.trainer.decay_steps);
  if (o.save_every < 0) fail("--save-every {}: it must be 0 (only after epochs) or more", o.save_every);
  if (o.save_every > 0 && o.save.empty()) fail("--save-every {}: it needs --save FILE", o.save_every);
  if (o.device.name != "cpu" && o.trainer.backend != TrainerOptions().backend)
    fail("--backend {}: it chooses kernels of the CPU; leave it out with --device {}", o.trainer.backend,
         o.device.name);
  check_threads(o.trainer.threads);
  if (o.trainer.augmentation.shift < 0) fail("--shift {}: it must be 0 or more", o.trainer.augmentation.shift);
  if (o.wait_note < 0) fail("--wait-note {}: it must be 0 (never) or more", o.wait_note);
  if (o.timeout < 0) fail("--timeout {}: it must be 0 (no limit) or more", o.timeout);
  if (o.samples < 0) fail("--samples {}: it must be 0 (the default size) or more", o.samples);
  check_plan(o);
  if (!o.strategies.empty() && !o.strategy.empty())
    fail("--strategy {} cannot be combined with --strategies; name all files after --strategies", o.strategy);
  check_optimizer(o.trainer.optimizer);
  check(o.watch);
  check_curves(o);
  if (!(o.scale_compute >= 1e-3 && o.scale_compute <= 1e3))
    fail("--scale-compute {}: it must be 0.001 to 1000", o.scale_compute);
}

}  // namespace

std::optional<Options> parse_options(int argc, char** argv, const Program& declared, std::string& answer) {
  Options options;
  Texts texts;
  const std::string program = program_name(argc, argv);
  options.verb = argc > 1 ? argv[1] : "--help";
  if (options.verb == "--version")
    answer = fmt::format("partita {} ({})\n", version, have_mpi() ? mpi_version() : "without MPI");
  if (options.verb == "--help" || options.verb == "-h" || options.verb == "help") answer = print_usage(program);
  if (!answer.empty()) return std::nullopt;
  if (const auto verbs = verb_names(); std::find(verbs.begin(), verbs.end(), options.verb) == verbs.end())
    fail("there is no verb '{}'{}; the verbs are {}", options.verb, did_you_mean(options.verb, verbs),
         quoted_list(verbs));

  if (declared.strategy) options.declared = declared.strategy();
  const auto all = options_of(options, texts, program, declared.builtin());
  const auto values = read_command_line(argc - 1, argv + 1, all);
  if (values.count("help") != 0) {
    std::ostringstream text;
    text << all;
    answer = text.str();
    return std::nullopt;
  }
  options.words.assign(argv, argv + argc);
  for (const auto& [name, value] : values)
    if (const auto* text = boost::any_cast<std::string>(&value.value());
        text != nullptr && text->empty() && !value.defaulted() && name != "kernels")
      fail("--{} is empty; give a value, or leave it out", name);
  for (const auto& [name, value] : values)
    if (!value.defaulted()) options.given.insert(name);
  settle_ranks(options);
  if (options.grids.size() == 1 && options.rank_counts.empty()) options.grid = options.grids[0];
  options.trainer.data = options.data;
  options.trainer.on_nan = parse_on_nan(texts.on_nan);
  options.trainer.dtype = about("--dtype", texts.dtype, [&] { return parse_dtype(texts.dtype); });
  options.size.batch_norm = parse_batch_norm(texts.batch_norm);
  if (!texts.memory_limit.empty()) options.trainer.memory_limit = parse_size("--memory-limit", texts.memory_limit);
  options.trainer.training = options.verb != "evaluate";
  if (options.trainer.dtype == DType::i32) fail("--dtype i32: networks compute in f64, f32, bf16 or f16");
  auto& optimizer = options.trainer.optimizer;
  optimizer.decay = about("--decay", texts.decay, [&] { return parse_decay(texts.decay); });
  optimizer.method = about("--optimizer", texts.method, [&] { return parse_method(texts.method); });
  if (options.verb != "evaluate" && values["rate"].defaulted()) optimizer.rate = usual_rate(optimizer.method);
  if (options.verb != "evaluate") check_used(values, optimizer.method);
  check(options);
  if (options.declared && options.strategy.empty() && options.strategies.empty()) options.strategy = declared_strategy;
  if (!options.write_options.empty()) options.options_text = print_run(options, all, values);
  if (options.kinds == std::vector<std::string>{"none"}) options.kinds.clear();
  return options;
}

po::options_description describe_options(const std::string& verb, const std::string& program, bool builtin) {
  Options unused;
  unused.verb = verb;
  Texts texts;
  return options_of(unused, texts, program, builtin);
}

}  // namespace partita::cli
