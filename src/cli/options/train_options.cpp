#include "src/cli/options/train_options.hpp"

#include "partita/base/error.hpp"
#include "src/base/plain_text.hpp"
#include "src/cli/options/device_options.hpp"
#include "src/cli/options/number_option.hpp"
#include "src/cli/options/optimizer_options.hpp"
#include "src/cli/options/option_values.hpp"
#include "src/cli/options/options_file.hpp"
#include "src/cli/version.hpp"

namespace partita::cli {

namespace po = boost::program_options;

namespace {

po::options_description run_options(TrainOptions& o) {
  po::options_description group = rank_options(o);
  add_thread_ranks(group, o);
  add_dtype(group, o);
  auto add = group.add_options();
  add("no-overlap", po::bool_switch()->notifier([&o](bool off) { o.trainer.overlap = !off; }),
      "finish each halo exchange before computing, instead of overlapping the two");
  add("data", po::value(&o.trainer.data)->default_value("fashion-mnist")->value_name("NAME"),
      "data set: fashion-mnist, hdf5 (reads training.h5 and test.h5), text, synthetic, or one that this program "
      "registers");
  add_tokenizer(group, o.tokenizer);
  add("data-dir", po::value(&o.data_dir)->value_name("DIR"), "folder with the data set's files");
  add("mask-tokens", number(&o.mask)->value_name("SHARE"),
      "share of the tokens that are hidden, for the model to guess from those around them (bert: 0.15, others: none); "
      "the mask is the last token of the vocabulary");
  add("separator", number(&o.separator)->value_name("TOKEN"),
      "token that ends a document: places see their own document only (--segments), whose numbers follow from the "
      "tokens");
  add("samples", number(&o.samples)->value_name("N"), "number of samples of the synthetic data set (default 1024)");
  add("seed", number(&o.trainer.seed)->default_value(o.trainer.seed)->value_name("N"),
      "seed for weights, shuffling, augmentation and dropout");
  add("load", po::value(&o.load)->value_name("FILE"),
      "start from a checkpoint; it may have been saved under another strategy");
  add("json", po::value(&o.json)->value_name("FILE"), "write the results to FILE as JSON");
  return group;
}

po::options_description train_options(TrainOptions& o) {
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
  add("delay",
      po::value<std::vector<std::string>>()
          ->composing()
          ->value_name("WHO:TIME")
          ->notifier([&o](const std::vector<std::string>& all) {
            o.delays.clear();
            for (const std::string& text : all)
              o.delays.push_back(naming_option("--delay", text, [&] { return parse_delay(text); }));
          }),
      "for experiments, wait before each step: rank=R:TIME on one rank, random:TIME on each rank for up to TIME, drawn "
      "by --seed; e.g. rank=3:20ms; may be repeated");
  add("save", po::value(&o.save)->value_name("FILE"), "write a checkpoint after every epoch");
  add("save-every", number(&o.save_every)->value_name("STEPS"), "with --save: also write it every STEPS steps");
  add("keep", number(&o.keep)->default_value(o.keep)->value_name("N"),
      "with --save: keep the N latest checkpoints; those before the last one have their step in the name");
  add("time-limit", po::value(&o.time_limit)->value_name("TIME")->notifier([&o](const std::string& text) {
    o.seconds = parse_time("--time-limit", text);
  }),
      "with --save: end in good time before the program has run for TIME, e.g. 23h50m, so that the run can be resumed");
  add("slurm", po::value(&o.slurm)->value_name("SCRIPT"),
      "with --save and --time-limit: only write a script for sbatch, whose job trains, and returns to the queue to "
      "resume until the training is finished; --ranks N says how many ranks, default: as the strategy");
  add("ranks-per-node", number(&o.ranks_per_node)->value_name("N"),
      "with --slurm: ranks of a node; default: Slurm decides");
  add("sbatch", po::value(&o.sbatch)->value_name("OPTIONS"),
      "with --slurm: more options of sbatch, e.g. \"--partition=gpu --account=x\"");
  add("overwrite", po::bool_switch(&o.overwrite), "let --save replace a checkpoint of another run");
  add("new-run", po::bool_switch(&o.new_run),
      "take only the weights of --load FILE, for a new training: with another batch, seed, optimizer or data set");
  add("skip", po::value(&o.skip)->composing()->value_name("PATTERN"),
      "with --new-run: do not load the layers whose names match, e.g. \"fc*\"; may be repeated");
  add("on-nan", parsed("--on-nan", t.on_nan, parse_on_nan)->default_value("stop")->value_name("WHAT"),
      "if the loss or a gradient is not finite: stop, or skip (leave the weights as they are in this step)");
  add("write-options", po::value(&o.write_options)->value_name("FILE"),
      "write all options of this run to FILE, which --options reads");
  return group;
}

po::options_description watch_options(WatchOptions& o) {
  po::options_description group("Validation, curves and checks");
  auto add = group.add_options();
  add("validate", po::value(&o.validate)->value_name("PART"),
      "validate after every epoch: on a fraction of the training set, e.g. 0.1, which is then never trained on, or on "
      "the test set (\"test\")");
  add("best", po::value(&o.best)->value_name("FILE"),
      "write a checkpoint to FILE whenever the validation loss is the lowest so far");
  add("patience", number(&o.patience)->value_name("N"),
      "stop after N epochs in a row without a new lowest validation loss");
  add("log", po::value(&o.log)->value_name("FILE"),
      "write a row per step to FILE as CSV, at once; a training that resumes appends to it");
  add("tensorboard", po::value(&o.tensorboard)->value_name("DIR"),
      "write the curves to an event file in DIR, which TensorBoard shows");
  add("check-replicas", number(&o.check_replicas)->value_name("N"),
      "compare all replicas of weights and optimizer states, bit for bit, after every N steps and at the end; default: "
      "at the end only; 0: never");
  return group;
}

/// The options file that describes this run, for --write-options.
std::string print_run(const TrainOptions& o, const CommandLine& line) {
  po::variables_map values = line.values;
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
      line.options, values, unused);
}

void check_numbers(const TrainOptions& o) {
  for (const auto& [option, value] : {std::pair("--epochs", o.trainer.epochs), std::pair("--samples", o.samples),
                                      std::pair("--steps", o.trainer.steps)})
    if (value > most_samples) fail("{} {}: it must be {} or less", option, value, most_samples);
  if (o.trainer.epochs < 1) fail("--epochs {}: it must be 1 or more", o.trainer.epochs);
  if (o.trainer.steps < 0) fail("--steps {}: it must be 0 (all) or more", o.trainer.steps);
  if (o.save_every < 0) fail("--save-every {}: it must be 0 (only after epochs) or more", o.save_every);
  if (o.save_every > 0 && o.save.empty()) fail("--save-every {}: it needs --save FILE", o.save_every);
  if (o.keep < 1) fail("--keep {}: it must be 1 (only the last one) or more", o.keep);
  if (o.keep > 1 && o.save.empty()) fail("--keep {}: it needs --save FILE", o.keep);
  if (!o.time_limit.empty() && o.save.empty()) fail("--time-limit {}: it needs --save FILE", o.time_limit);
  if (!o.slurm.empty() && (o.save.empty() || o.time_limit.empty()))
    fail("--slurm {}: it needs --save FILE and --time-limit TIME, so that the next job can resume", o.slurm);
  for (const auto& [option, given] :
       {std::pair("--ranks-per-node", o.ranks_per_node != 0), std::pair("--sbatch", !o.sbatch.empty())})
    if (given && o.slurm.empty()) fail("{} needs --slurm", option);
  if (o.ranks_per_node < 0) fail("--ranks-per-node {}: it must be 1 or more", o.ranks_per_node);
  if (o.trainer.augmentation.shift < 0) fail("--shift {}: it must be 0 or more", o.trainer.augmentation.shift);
  if (o.given.contains("separator") && o.separator < 0)
    fail("--separator {}: it must be a token, 0 or more", o.separator);
  if (o.samples < 0) fail("--samples {}: it must be 0 (the default size) or more", o.samples);
}

}  // namespace

void add_tokenizer(po::options_description& group, std::string& file) {
  group.add_options()("tokenizer", po::value(&file)->value_name("FILE"),
                      "vocabulary of byte pairs in which text is encoded (tokenizer.json); default: tokens are bytes");
}

void TrainOptions::read_tokenizer() {
  if (tokenizer.empty()) return;
  pairs = naming_option("--tokenizer", [&] { return std::make_shared<const BytePairs>(tokenizer); });
  if (size.transformer.vocabulary == 0) size.transformer.vocabulary = pairs->size() + (mask_share() > 0 ? 1 : 0);
}

double TrainOptions::mask_share() const {
  return given.contains("mask-tokens") ? mask : model == "bert" ? MaskedTokens().share : 0;
}

double WatchOptions::held_out() const {
  if (!validates() || validates_on_test()) return 0;
  const double fraction = parse_number<double>(validate).value_or(0);
  if (!(fraction > 0 && fraction < 1))
    fail(
        "--validate {}: give the fraction of the training set to hold out, between 0 and 1 (e.g. 0.1), or \"test\" for "
        "the test set",
        validate);
  return fraction;
}

void WatchOptions::check() const {
  held_out();
  if (check_replicas < 0) fail("--check-replicas {}: it must be 0 or more", check_replicas);
  if (patience < 0) fail("--patience {}: it must be 1 or more", patience);
  for (const auto& [option, given] : {std::pair("--best", !best.empty()), std::pair("--patience", patience > 0)})
    if (given && !validates()) fail("{} needs a validation: add --validate 0.1, or --validate test", option);
}

void TrainOptions::add_to(po::options_description& all, const Program& program) {
  const bool trains = verb == "train";
  all.add(model_options(*this, program, {.machine = trains})).add(run_options(*this));
  if (trains)
    all.add(price_options(*this)).add(optimizer_options(*this)).add(train_options(*this)).add(watch_options(watch));
}

void TrainOptions::check(const Program& program, const CommandLine& line) {
  settle_on_ranks(*this, program, line);
  words = line.words;
  given = line.given;
  trainer.training = verb == "train";
  check_numbers(*this);
  watch.check();
  read_tokenizer();
  if (separates()) size.transformer.segments = true;
  if (!write_options.empty()) options_text = print_run(*this, line);
}

}  // namespace partita::cli
