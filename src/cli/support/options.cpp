#include "src/cli/support/options.hpp"

#include "partita/base/error.hpp"
#include "partita/comm/mpi.hpp"
#include "partita/model/builtin/builtin.hpp"
#include "src/cli/support/command_line.hpp"
#include "src/cli/support/size.hpp"
#include "src/cli/version.hpp"

#include <fmt/ranges.h>
#include <algorithm>
#include <map>
#include <sstream>

namespace partita::cli {

namespace {

namespace po = boost::program_options;

constexpr const char* usage = R"(Usage: {0} VERB [options]

Verbs
  train      trains the model on the ranks that the program was started with:
               mpiexec -n 4 {0} train --strategy hybrid.toml
  evaluate   loss and accuracy of a saved model on the test set
  explain    binds the strategy and prints, per layer, layouts, communication and memory;
             needs neither MPI nor the machine
  compare    prices several strategies side by side, and says which wins and why:
               {0} compare --strategies hybrid.toml spatial.toml --machine cluster.toml
  plan       searches for the cheapest strategies for a number of ranks and writes them as files:
               {0} plan --model resnet50 --ranks 16 --machine cluster.toml --out best
  calibrate  measures the machine that it is started on into a machine file:
               mpiexec -n 2 {0} calibrate --out here.toml --strategies hybrid.toml
  schedule   generates a pipeline schedule, or reads one, proves, simulates and draws it:
               {0} schedule --kind zb-h1 --stages 4 --microbatches 8
  scale      measures strong or weak scaling, starting every run itself:
               {0} scale --ranks 1 2 4 --out results.json
  report     makes one HTML page of what train, scale or compare wrote as JSON:
               {0} report results.json --out page.html

{0} VERB --help lists the options of a verb.
)";

struct Texts {  // options that are parsed further after reading
  std::string dtype = "f32", decay = "none", method = "sgd", memory_limit;
};

/// plan finds the strategy itself, and calibrate holds what it must.
po::options_description model_options(Options& o, Texts& texts, bool builtin) {
  po::options_description group("Model and strategy");
  auto add = group.add_options();
  if (builtin) {
    add("model", po::value(&o.model)->default_value(o.model)->value_name("NAME"),
        fmt::format("built-in model: {}", fmt::join(builtin_models(), ", ")).c_str());
    add("size", po::value(&o.size.extent)->value_name("N"), "extent of its input's spatial dimensions");
    add("channels", po::value(&o.size.channels)->value_name("N"), "channels of its input");
    add("classes", po::value(&o.size.classes)->value_name("N"), "classes or values that it predicts");
    add("width", po::value(&o.size.width)->default_value(1, "1")->value_name("W"), "factor for its channels");
    add("widths", po::value(&o.size.widths)->multitoken()->value_name("N..."),
        "features of mlp's hidden layers, between blanks (1024 1024); --width scales them");
  }
  if (o.verb != "plan") {
    add("strategy", po::value(&o.strategy)->value_name("FILE"),
        "strategy file (TOML); without one the ranks share the samples");
    add("grid", po::value(&o.grid)->value_name("AXES"), "replaces the strategy's grid, e.g. \"data=2 y=2\"");
    add("rule", po::value(&o.rules)->value_name("RULE"), "one more rule, e.g. \"conv*: N@data H@y\"; may be repeated");
  }
  if (o.verb != "calibrate")
    add("memory-limit", po::value(&texts.memory_limit)->value_name("SIZE"),
        o.verb == "evaluate"
            ? "refuse what holds more tensors on a rank, e.g. 4GiB"
            : "refuse what holds more tensors on a rank, e.g. 4GiB; without it a --machine says how much");
  add("batch", po::value(&o.trainer.batch)->default_value(o.trainer.batch)->value_name("N"), "global samples a step");
  return group;
}

void add_dtype(po::options_description& group, Texts& texts) {
  group.add_options()("dtype", po::value(&texts.dtype)->default_value(texts.dtype)->value_name("TYPE"),
                      "f64, f32, bf16 or f16 (weights are kept in f32)");
}

/// How ranks compute and wait, of every verb that has some.
po::options_description measure_options(Options& o) {
  po::options_description group("Run");
  auto add = group.add_options();
  add("backend", po::value(&o.trainer.backend)->default_value(o.trainer.backend)->value_name("NAME"),
      "auto, onednn or reference");
  add("threads", po::value(&o.trainer.threads)->default_value(o.trainer.threads)->value_name("N"), "threads a rank");
  add("kernels", po::value(&o.trainer.kernel_folder)->default_value(default_kernel_folder())->value_name("DIR"),
      "where measured choices of kernels are kept; \"\": choose by rule, without measuring");
  add("timeout", po::value(&o.timeout)->default_value(o.timeout)->value_name("S"),
      "seconds that a rank waits for others before it ends the job; 0: for ever");
  return group;
}

po::options_description run_options(Options& o, Texts& texts) {
  po::options_description group = measure_options(o);
  add_dtype(group, texts);
  auto add = group.add_options();
  add("no-overlap", po::bool_switch()->notifier([&o](bool off) { o.trainer.overlap = !off; }),
      "exchange halos first, then compute");
  add("data", po::value(&o.data)->default_value(o.data)->value_name("NAME"),
      "fashion-mnist, hdf5 (training.h5 and test.h5), synthetic, or one of the program's own");
  add("data-dir", po::value(&o.data_dir)->value_name("DIR"), "where the data set's files are");
  add("samples", po::value(&o.samples)->value_name("N"), "size of the synthetic set (default 1024)");
  add("seed", po::value(&o.trainer.seed)->default_value(o.trainer.seed)->value_name("N"),
      "of weights, shuffling, augmentation and dropout");
  add("load", po::value(&o.load)->value_name("FILE"), "start from a checkpoint, saved under any strategy");
  add("json", po::value(&o.json)->value_name("FILE"), "write results as JSON");
  return group;
}

po::options_description optimizer_options(Options& o, Texts& texts) {
  auto& t = o.trainer;
  po::options_description group("Optimizer");
  auto add = group.add_options();
  add("optimizer", po::value(&texts.method)->default_value(texts.method)->value_name("NAME"),
      "sgd, adagrad, rmsprop, adam, adamw, lars or lamb");
  add("rate",
      po::value(&t.optimizer.rate)
          ->default_value(t.optimizer.rate, "0.05, adagrad 0.01, adaptive 0.001")
          ->value_name("R"),
      "highest learning rate");
  add("momentum", po::value(&t.optimizer.momentum)->default_value(t.optimizer.momentum, "0.9")->value_name("M"),
      "of sgd, rmsprop and lars");
  add("beta1", po::value(&t.optimizer.beta1)->default_value(t.optimizer.beta1, "0.9")->value_name("B"),
      "of adam, adamw and lamb");
  add("beta2", po::value(&t.optimizer.beta2)->default_value(t.optimizer.beta2, "0.999")->value_name("B"),
      "of these and rmsprop");
  add("epsilon", po::value(&t.optimizer.epsilon)->default_value(t.optimizer.epsilon, "1e-8")->value_name("E"),
      "added to roots that divide");
  add("trust", po::value(&t.optimizer.trust)->default_value(t.optimizer.trust, "0.001")->value_name("T"), "of lars");
  add("nesterov", po::bool_switch(&t.optimizer.nesterov), "Nesterov's momentum");
  add("weight-decay", po::value(&t.optimizer.weight_decay)->default_value(0, "0")->value_name("D"),
      "not for biases and normalisation");
  add("warm-up", po::value(&t.optimizer.warm_up)->default_value(0)->value_name("STEPS"),
      "the rate rises linearly over so many steps");
  add("decay", po::value(&texts.decay)->default_value(texts.decay)->value_name("KIND"),
      "of the rate: none, linear or cosine");
  return group;
}

po::options_description train_options(Options& o) {
  auto& t = o.trainer;
  po::options_description group("Training");
  auto add = group.add_options();
  add("epochs", po::value(&t.epochs)->default_value(t.epochs)->value_name("N"), "passes over the training set");
  add("steps", po::value(&t.steps)->value_name("N"), "stop after so many steps in all");
  add("shift", po::value(&t.augmentation.shift)->default_value(0)->value_name("PIXELS"), "augmentation: random shifts");
  add("flip", po::bool_switch(&t.augmentation.flip), "augmentation: random mirror images");
  add("no-test", po::bool_switch()->notifier([&o](bool off) { o.test = !off; }), "leave out the evaluation at the end");
  add("profile", po::bool_switch(&o.profile), "print where the time goes: compute, exchange, wait, framework");
  add("trace", po::value(&o.trace)->value_name("FILE"),
      "write what every rank did when, in the steps after the first (8 at most): Chrome trace JSON, for Perfetto");
  add("save", po::value(&o.save)->value_name("FILE"), "write a checkpoint after every epoch");
  return group;
}

po::options_description explain_options(Options& o) {
  po::options_description group("Explain");
  auto add = group.add_options();
  add("why", po::value(&o.why)->value_name("LAYER"), "how the layer's predicted times come about: formulae and inputs");
  add("rank", po::value(&o.rank)->default_value(0)->value_name("R"), "whose messages, bytes and memory");
  add("evaluation", po::bool_switch(&o.evaluation), "of an evaluation instead of a training step");
  add("picture", po::bool_switch(&o.picture), "draw how each output is cut over the ranks");
  add("svg", po::value(&o.svg)->value_name("FILE"),
      "draw the schedule as SVG, in unit times: of a stage and a microbatch forward and both halves of backward take "
      "1");
  return group;
}

po::options_description price_options(Options& o) {
  po::options_description group("Machine");
  auto add = group.add_options();
  add("machine", po::value(&o.machine)->value_name("FILE"),
      "machine file (TOML), and beside it times of kernels (FILE.times); without one two cores, assumed");
  return group;
}

po::options_description compare_options(Options& o) {
  po::options_description group("Compare");
  auto add = group.add_options();
  add("strategies", po::value(&o.strategies)->multitoken()->value_name("FILE..."), "what to compare");
  add("measure", po::bool_switch(&o.measure),
      "train with each for some steps too, on the ranks that it was started with");
  add("json", po::value(&o.json)->value_name("FILE"), "write results as JSON");
  return group;
}

po::options_description calibrate_options(Options& o) {
  po::options_description group("Calibrate");
  auto add = group.add_options();
  add("out", po::value(&o.out)->default_value("machine.toml")->value_name("FILE"),
      "machine file to write, and FILE.times beside it, to which times are added if it is of this machine");
  add("strategies", po::value(&o.strategies)->multitoken()->value_name("FILE..."),
      "whose local kernels are measured; without any those of --strategy, --grid and --rule");
  return group;
}

po::options_description plan_options(Options& o) {
  po::options_description group("Plan");
  auto add = group.add_options();
  add("ranks", po::value(&o.ranks)->required()->value_name("N"), "of the strategy");
  add("best", po::value(&o.best)->default_value(o.best)->value_name("K"), "strategies to write");
  add("examine", po::value(&o.examined)->default_value(o.examined)->value_name("N"), "candidates to price whole");
  add("out", po::value(&o.out)->default_value("plan")->value_name("PREFIX"),
      "they are PREFIX-1.toml, the best, to PREFIX-K.toml");
  add("kinds", po::value(&o.kinds)->multitoken()->value_name("KIND..."),
      "schedules of several stages to try (default 1f1b zb-h1 chimera); \"none\": one stage");
  add("why-not", po::value(&o.why_not)->value_name("RULE"),
      "what the best one would cost with this rule, e.g. \"conv1: N C\"; may be repeated");
  return group;
}

/// All that a verb takes.
po::options_description options_of(Options& o, Texts& texts, const std::string& program, bool builtin) {
  po::options_description all(fmt::format("Usage: {} {} [options]", program, o.verb));
  all.add_options()("help,h", "this text");
  all.add(model_options(o, texts, builtin));
  if (o.verb == "explain" || o.verb == "compare" || o.verb == "plan" || o.verb == "calibrate") {
    po::options_description workload("Workload");
    add_dtype(workload, texts);
    all.add(workload).add(optimizer_options(o, texts));
    if (o.verb != "calibrate") all.add(price_options(o));
    if (o.verb == "plan") all.add(plan_options(o));
    if (o.verb == "explain") all.add(explain_options(o));
    if (o.verb == "compare") all.add(compare_options(o)).add(measure_options(o));
    if (o.verb == "calibrate") all.add(calibrate_options(o)).add(measure_options(o));
  } else {
    all.add(run_options(o, texts));
    if (o.verb == "train") all.add(price_options(o)).add(optimizer_options(o, texts)).add(train_options(o));
  }
  return all;
}

void check(const Options& o) {
  for (const auto& [option, value] : {std::pair("--batch", o.trainer.batch), std::pair("--epochs", o.trainer.epochs),
                                      std::pair("--samples", o.samples), std::pair("--steps", o.trainer.steps)})
    if (value > most_samples) fail("{} {}: it must be {} or less", option, value, most_samples);
  if (o.trainer.batch < 1) fail("--batch {}: it must be 1 or more", o.trainer.batch);
  if (o.trainer.epochs < 1) fail("--epochs {}: it must be 1 or more", o.trainer.epochs);
  if (o.trainer.steps < 0) fail("--steps {}: it must be 0 (all) or more", o.trainer.steps);
  if (o.trainer.threads < 1) fail("--threads {}: it must be 1 or more", o.trainer.threads);
  if (o.trainer.augmentation.shift < 0) fail("--shift {}: it must be 0 or more", o.trainer.augmentation.shift);
  if (o.timeout < 0) fail("--timeout {}: it must be 0 (no limit) or more", o.timeout);
  if (o.samples < 0) fail("--samples {}: it must be 0 (the default size) or more", o.samples);
  if (o.kinds.size() > 1 && std::count(o.kinds.begin(), o.kinds.end(), "none") > 0)
    fail("--kinds {}: \"none\" stands alone, for one stage", fmt::join(o.kinds, " "));
  if (!o.strategies.empty() && !o.strategy.empty())
    fail("--strategy {} beside --strategies: name all files after --strategies", o.strategy);
  o.trainer.optimizer.check();
}

}  // namespace

std::optional<Options> parse_options(int argc, char** argv, bool builtin, std::string& answer) {
  static const std::vector<std::string> verbs{"train",    "evaluate", "explain", "compare", "calibrate",
                                              "schedule", "scale",    "report",  "plan"};
  Options options;
  Texts texts;
  const std::string program = program_name(argc, argv);
  options.verb = argc > 1 ? argv[1] : "--help";
  if (options.verb == "--version") answer = fmt::format("partita {} ({})\n", version, mpi_version());
  if (options.verb == "--help" || options.verb == "-h" || options.verb == "help")
    answer = fmt::format(fmt::runtime(usage), program);
  if (!answer.empty()) return std::nullopt;
  if (std::find(verbs.begin(), verbs.end(), options.verb) == verbs.end())
    fail("there is no verb '{}'{}; the verbs are {}", options.verb, did_you_mean(options.verb, verbs),
         quoted_list(verbs));

  const auto all = options_of(options, texts, program, builtin);
  const auto values = read_command_line(argc - 1, argv + 1, all);
  if (values.count("help") != 0) {
    std::ostringstream text;
    text << all;
    answer = text.str();
    return std::nullopt;
  }
  options.trainer.dtype = parse_dtype(texts.dtype);
  if (!texts.memory_limit.empty()) options.trainer.memory_limit = parse_size("--memory-limit", texts.memory_limit);
  options.trainer.training = options.verb != "evaluate";
  if (options.trainer.dtype == DType::i32) fail("--dtype i32: networks compute in f64, f32, bf16 or f16");
  auto& optimizer = options.trainer.optimizer;
  optimizer.decay = parse_decay(texts.decay);
  optimizer.method = parse_method(texts.method);
  if (options.verb != "evaluate" && values["rate"].defaulted()) optimizer.rate = usual_rate(optimizer.method);
  check(options);
  if (options.kinds == std::vector<std::string>{"none"}) options.kinds.clear();
  return options;
}

Model make_model(const Options& options, const ModelFactory& factory) {
  return factory ? factory() : builtin_model(options.model, options.size);
}

Strategy make_strategy(const Options& options, int ranks) {
  Strategy strategy = options.strategy.empty() ? Strategy() : Strategy::load(options.strategy);
  if (!options.grid.empty()) strategy = strategy.on(Grid::parse(options.grid));
  if (options.strategy.empty() && options.grid.empty() && ranks > 1) {
    strategy = Strategy(fmt::format("data={}", ranks));
    strategy.layer("*", {.output = "N@data"});
  }
  add_rules(strategy, options.rules, "--rule");
  return strategy;
}

void note_renamed_keys(const Strategy& strategy) {
  for (const auto& note : strategy.renamed_keys()) fmt::print(stderr, "note: {}\n", note);
}

void add_rules(Strategy& strategy, const std::vector<std::string>& rules, std::string_view option) {
  for (const auto& rule : rules) {
    const auto colon = rule.find(':');
    if (colon == std::string::npos)
      fail("{} \"{}\": write a layer's name or pattern, a colon and a layout, e.g. \"conv*: N@data H\"", option, rule);
    const auto layout = rule.find_first_not_of(" \t", colon + 1);
    strategy.layer(rule.substr(0, colon), {.output = layout == std::string::npos ? "" : rule.substr(layout)},
                   fmt::format("{} \"{}\"", option, rule));
  }
}

std::vector<std::pair<std::string, Strategy>> make_strategies(const Options& options, int ranks) {
  std::vector<std::pair<std::string, Strategy>> all;
  for (const auto& file : options.strategies) {
    Options one = options;
    one.strategy = file;
    all.emplace_back(file, make_strategy(one, ranks));
  }
  if (all.empty())
    all.emplace_back(options.strategy.empty() ? "command line" : options.strategy, make_strategy(options, ranks));
  return all;
}

namespace {

/// Without N.
Shape one_of(const Shape& batch) {
  Shape one;
  for (int d = 0; d < batch.dims(); ++d)
    if (batch.name(d) != 'N') one.push_back({batch.name(d), batch.extent(d)});
  return one;
}

std::string print_target(const Shape& target, bool labels) {
  if (target.dims() == 0) return "one label a sample";
  return fmt::format("{} a sample, {}", labels ? "labels" : "values", target.print());
}

void check_data(const Dataset& data, const Options& options, const Model& model) {
  const auto shapes = model.shapes(1);
  const auto& loss = model.layers().back();
  const Shape &scores = shapes[static_cast<std::size_t>(loss.inputs[0])], sample = one_of(shapes[0]);
  const Target target = loss.op->target(scores);
  if (data.size() == 0) fail("the data set '{}' holds no samples", options.data);
  if (!(data.sample() == sample))
    fail("the samples of '{}' are {}, but the model's input '{}' takes {}", options.data, data.sample().print(),
         model.layers().front().name, sample.print());
  if (!(data.target() == one_of(target.shape)) || (data.classes() > 0) != target.labels)
    fail("the data set '{}' has {}, but the loss '{}' compares with {}", options.data,
         print_target(data.target(), data.classes() > 0), loss.name, print_target(one_of(target.shape), target.labels));
  if (target.labels && data.classes() > scores['C'])
    fail("the data set '{}' has {} classes, but the model ends in {}", options.data, data.classes(), scores['C']);
  const bool moves = options.trainer.augmentation.flip || options.trainer.augmentation.shift > 0;
  const Shape places = data.target();
  if (moves && std::any_of(places.names().begin(), places.names().end(), is_spatial))
    fail("--flip and --shift move images, but not targets that have places, as those of '{}'", options.data);
  for (int d = 0; d < sample.dims(); ++d)
    if (is_spatial(sample.name(d)) && options.trainer.augmentation.shift >= sample.extent(d))
      fail("--shift {}: an image's {} is {}, so that nothing of it would be left; give less",
           options.trainer.augmentation.shift, sample.name(d), sample.extent(d));
}

}  // namespace

std::unique_ptr<Dataset> open_data(const Options& options, const Model& model, bool training) {
  std::unique_ptr<Dataset> data;
  if (options.data == "synthetic") {
    if (!options.data_dir.empty())
      fail("--data-dir {}: the synthetic set has no files; leave it out", options.data_dir);
    const auto shapes = model.shapes(1);
    const Shape& scores = shapes[static_cast<std::size_t>(model.layers().back().inputs[0])];
    const Target target = model.layers().back().op->target(scores);
    data = make_synthetic(one_of(shapes[0]), one_of(target.shape), options.samples > 0 ? options.samples : 1024,
                          target.labels ? scores['C'] : 0, options.trainer.seed, training ? 0 : 1);
  } else {
    if (options.samples > 0) fail("--samples {}: only the synthetic set has a size to choose", options.samples);
    data = open_dataset(options.data, options.data_dir, training);
  }
  check_data(*data, options, model);
  return data;
}

std::vector<std::string> default_kinds() {
  std::vector<std::string> names;
  for (const ScheduleKind kind : PlannerOptions().kinds) names.emplace_back(name(kind));
  return names;
}

}  // namespace partita::cli
