#include "src/cli/verbs/train/set_up.hpp"

#include "partita/base/error.hpp"
#include "partita/strategies/plan/bind.hpp"
#include "partita/strategies/plan/memory.hpp"
#include "src/cli/files/text_file.hpp"
#include "src/cli/inputs/model_and_strategy.hpp"
#include "src/cli/inputs/open_data.hpp"
#include "src/cli/inputs/settle_strategy.hpp"
#include "src/cli/options/optimizer_options.hpp"
#include "src/cli/options/option_values.hpp"
#include "src/cli/output/memory_fit.hpp"
#include "src/cli/verbs/train/checkpoints.hpp"
#include "src/cli/verbs/train/delays.hpp"
#include "src/cli/verbs/train/progress.hpp"
#include "src/cli/verbs/train/step_log.hpp"
#include "src/train/data/subset.hpp"
#include "src/train/trainer/run_memory.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace partita::cli {

namespace {

/// Opens the training set. The part that is held out for validation is a data set of its own, which holds its own
/// samples: else each pass would replace what the other one holds.
void open_training_data(const TrainOptions& options, Setup& setup,
                        const std::function<void(Index done, Index all)>& encoding) {
  setup.training = open_data(options, setup.model, true, encoding);
  const double fraction = options.watch.held_out();
  if (fraction == 0) return;
  if (setup.training->size() < 2)
    fail("--validate {}: the training set has {}; it needs 2 or more, so that one can be held out",
         options.watch.validate, counted(setup.training->size(), "sample"));
  Division parts = divide(setup.training->size(), fraction, options.trainer.seed);
  setup.held_out = make_subset(open_data(options, setup.model, true, encoding), std::move(parts.held_out));
  setup.training = make_subset(std::move(setup.training), std::move(parts.training));
}

/// Throws Error if a rank would exceed the memory limit in the run that the options ask for.
void check_run_fits(const TrainOptions& options, const Setup& setup, const Plan& plan, const Strategy& given,
                    const MachineFiles& files, const MessageMemory& messages, const Communicator& world) {
  const Index limit = limit_of(options, files.machine);
  if (limit == 0) return;
  std::vector<DataPass> passes;
  if (setup.training) passes.push_back({setup.training.get(), true, options.trainer.augmentation});
  if (setup.held_out) passes.push_back({setup.held_out.get(), false});
  if (setup.test) passes.push_back({setup.test.get(), false});
  std::map<std::pair<Index, bool>, Plan> plans{{{options.trainer.batch, options.trainer.training}, plan}};
  const Strategy pinned = pin_weight_layouts(setup.strategy, plan);
  const RunMemory memory(
      options.trainer.batch, options.trainer.training, options.trainer.may_skip(),
      [&](Index batch, bool training) -> const Plan& {
        auto& known = plans[{batch, training}];
        Workload workload = make_workload(options);
        workload.batch = batch;
        workload.training = training;
        if (known.layers.empty()) known = bind(setup.model, pinned, workload);
        return known;
      },
      messages);
  const Saves saves = !options.save.empty()         ? Saves::anywhere
                      : !options.watch.best.empty() ? Saves::between_epochs
                                                    : Saves::never;
  check_fits(plan, setup.model, given, files, limit, [&](int rank) {
    const BesideTensors beside = setup.device ? beside_tensors(*setup.device, options.device)
                                              : BesideTensors{.shared = memory.shared_bytes(passes, world, rank)};
    return memory.peak(passes, beside, rank, saves, !options.load.empty());
  });
}

}  // namespace

Setup set_up(TrainOptions& options, const ModelFactory& factory, Communicator& world) {
  Setup setup;
  setup.device = make_rank_device(options.device, world);
  const MessageMemory messages = setup.device
                                     ? message_memory(*setup.device, options.device, options.trainer.overlap, world)
                                     : message_memory(world, options.trainer.overlap);
  ProgressBar bar(world.rank() == 0);
  const auto encoding = [&](Index done, Index all) { bar.count("encoding text, MiB", done >> 20, all >> 20); };
  agree_or_throw(world, [&] {
    setup.model = make_model(options, factory);
    setup.checkpoint = open_checkpoint(options, setup.notes);
    const Strategy given = make_strategy(options, world.size());
    check_ranks(given, world.size());
    check_delays(options, world.size());
    const MachineFiles files = load_machine(options);
    auto [strategy, choices] = settle_strategy(options, setup.model, given, files);
    setup.strategy = std::move(strategy);
    setup.chosen = choice_note(choices);
    const Plan plan = bind(setup.model, setup.strategy, make_workload(options));
    for (std::size_t i = 0; i < plan.layers.size(); ++i)
      static_cast<void>(
          make_kernel(plan.layers[i], std::min(world.rank(), plan.grid_of(static_cast<int>(i)).size() - 1)));
    check_fits(plan, setup.model, given, files, limit_of(options, files.machine));
    naming_option("--backend", options.trainer.backend,
                  [&] { make_backend(options.trainer.backend, options.trainer.dtype, options.trainer.threads); });
    if (options.verb == "train") {
      open_training_data(options, setup, encoding);
      const auto& o = options.trainer;
      const Index all = o.epochs * ((setup.training->size() + o.batch - 1) / o.batch);
      setup.rate_notes = check_rates(o, o.steps > 0 ? std::min(o.steps, all) : all);
    }
    if (options.test || options.watch.validates_on_test())
      setup.test = open_data(options, setup.model, false, encoding);
    check_run_fits(options, setup, plan, given, files, messages, world);
    if (options.verb == "evaluate" && options.load.empty()) fail("evaluate needs a checkpoint: --load FILE");
    if (world.rank() == 0) {
      check_writable({{"--json", options.json, FileKind::json},
                      {"--save", options.save, FileKind::checkpoint},
                      {"--trace", options.trace, FileKind::json},
                      {"--best", options.watch.best, FileKind::checkpoint},
                      {"--log", options.watch.log}},
                     strategy_files(options));
      check_writable({{"--json", options.json}, {"--trace", options.trace}}, {{"--load", options.load}});
      check_no_stream("--save", options.save);
      check_no_stream("--best", options.watch.best);
      setup.replaceable = check_replaceable(options);
      StepLog::check(options.watch.log);
      if (!options.write_options.empty()) {
        auto others = strategy_files(options);
        others.insert(others.end(), {{"--load", options.load},
                                     {"--save", options.save},
                                     {"--best", options.watch.best},
                                     {"--log", options.watch.log},
                                     {"--trace", options.trace},
                                     {"--json", options.json}});
        check_writable({{"--write-options", options.write_options}}, others);
        write_text("--write-options", options.write_options, options.options_text);
      }
    }
  });
  return setup;
}

}  // namespace partita::cli
