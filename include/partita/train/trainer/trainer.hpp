#pragma once

#include "partita/base/traffic.hpp"
#include "partita/strategies/plan/memory.hpp"
#include "partita/train/batch.hpp"
#include "partita/train/data/dataset.hpp"
#include "partita/train/trainer/class_counts.hpp"
#include "partita/train/trainer/local_batch.hpp"
#include "partita/train/trainer/processor.hpp"
#include "partita/train/trainer_options.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace partita {

struct Ahead;
class Arrival;
class CheckpointFile;
class DataFeed;
class MemoryAccount;
class Parameters;
class PlanSet;
class ProcessGrid;
class SampleOrder;
class StageRanks;
class StepGuard;
class TrafficCounter;
struct BoundPlan;
struct NamedTensor;
struct TimedAction;

/// One epoch, or one pass over a test set, as every rank sees it.
struct EpochReport {
  Index epoch = 0;  ///< counted from 1
  Index steps = 0;
  Index samples = 0;
  double loss = 0;      ///< mean over these samples, without those of skipped steps
  double accuracy = 0;  ///< fraction; not a number where the target is values
  double seconds = 0;
  Index first = 0;       ///< steps of the epoch that were done before: the epoch was resumed
  Index all = 0;         ///< steps of a whole epoch; more than first + steps if the epoch was not finished
  Index skipped = 0;     ///< steps that left the weights as they were
  ClassCounts counts{};  ///< of all ranks, by class; filled by Trainer::evaluate() where the targets are labels
};

/// What Trainer::load_weights() did.
struct LoadedWeights {
  std::vector<std::string> left;    ///< weights of the model that were not loaded: they keep their first values
  std::vector<std::string> unused;  ///< weights in the checkpoint that the model does not have
};

/// Trains and evaluates one model under one strategy, on one rank of `world`. A plan belongs to one batch size: the
/// smaller last batch and evaluation have plans of their own, on the same weights. Collective: every rank of `world`
/// calls each member function that computes, saves or loads.
class Trainer {
 public:
  /// Called after every step with the epoch (from 1), the step in it, its steps, and the step's loss and accuracy.
  using Progress = std::function<void(Index epoch, Index step, Index steps, const StepResult& result)>;

  /// Binds the strategy, checks that all ranks bound the same plan, and draws the weights. Collective: every rank of
  /// `world` calls it. Throws Error, alike on every rank, if the grid does not fit the number of ranks, if the strategy
  /// cannot be bound, or if the plan passes the memory limit.
  /// @pre `world` outlives the trainer.
  Trainer(Model model, Strategy strategy, TrainerOptions options, Communicator& world);
  /// As above, on a device. TrainerOptions::backend and threads do not matter.
  Trainer(Model model, Strategy strategy, TrainerOptions options, Communicator& world, Processor processor);
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  /// Lets `data` hold everything that evaluate(data) will read. So a damaged file is found before hours of training,
  /// and the time of an evaluation is that of computing. Throws Error, alike on every rank, if `data` cannot be read.
  /// Collective: every rank of `world` calls it.
  void prepare(Dataset& data);
  /// Trains for one epoch over `data`, shuffled by seed and epoch, or for the rest of an epoch. Throws Error, alike on
  /// every rank, if `data` is empty or has another size than before, and RunFailed as OnNan says.
  EpochReport train_epoch(Dataset& data, const Progress& progress);
  /// Ends train_epoch() after the present step. Called on every rank, from its `progress`.
  void stop() { stopping_ = true; }
  /// Returns what TrainerOptions::requests returned on any rank since the last call; alike on every rank.
  Requests take_requests();
  /// The number of steps so far that left the weights as they were: because a number was not finite, and because
  /// gradients exceeded the range of f16.
  Index skipped_not_finite() const;
  Index skipped_beyond_f16() const;
  /// The factor of the loss's gradients in f16; 1 for other types.
  double loss_scale() const;
  /// Returns loss, accuracy and counts by class over `data`, in order, with running statistics and without dropout.
  /// The counts are summed over all ranks once, at the end; no plan predicts that sum, and measured() leaves it out.
  /// Throws Error, alike on every rank, if `data` is empty, and RunFailed if the loss is not finite.
  EpochReport evaluate(Dataset& data, const Progress& progress);
  /// Runs one training step on the given samples of `data`, a batch at most, without augmentation.
  StepResult step(Dataset& data, std::span<const Index> samples);

  /// Returns this rank's part of a batch of `samples` samples, all zeros. Fill it and pass it to step(), or to
  /// predict() if it was made with `training` false. The boxes of its tensors say what this rank brings; ranks that
  /// hold the same box bring the same values. A batch can be filled and used again and again. Throws Error, alike on
  /// every rank, if `samples` is below 1 or the strategy cannot be bound to that batch size.
  /// Collective: every rank of `world` calls it.
  LocalBatch make_batch(Index samples, bool training = true);
  /// Runs one training step: forward, backward and update. Every rank brings its own part of the batch. Throws Error if
  /// `batch` is not one that make_batch() made on this rank, or if the learning rate decays over an unknown number of
  /// steps (TrainerOptions::steps). Collective: every rank of `world` calls it.
  StepResult step(const LocalBatch& batch);
  /// Runs the forward pass, with running statistics and without dropout. Returns this rank's part of the model's output
  /// (the input of the loss layer), one block for each microbatch that this rank computes the loss of. The targets of
  /// `batch` do not matter. Throws Error if make_batch(samples, false) did not make `batch` on this rank.
  /// Collective: every rank of `world` calls it.
  std::vector<SampleBlock> predict(const LocalBatch& batch);

  /// Throws RunFailed, alike on every rank, unless all replicas of each weight and optimizer state are equal, bit for
  /// bit. The message names the first weight and two ranks that differ. Not counted as traffic.
  /// Collective: every rank of `world` calls it.
  void check_replicas();

  /// True when the last epoch, or the last of TrainerOptions::steps, is done.
  bool finished(const Dataset& data) const;
  /// Texts by name that save() writes beside the tensors and that load() reads back, for whoever runs the training.
  /// Those of rank 0 are written.
  std::map<std::string, std::string>& notes() { return notes_; }
  /// The number of steps done so far.
  Index steps_done() const { return step_; }
  /// The number of steps that have made the weights. It also counts those before a checkpoint of which load() took the
  /// weights alone.
  Index steps_trained() const { return trained_; }
  /// The learning rate of the last training step; 0 before the first.
  double last_rate() const { return last_rate_; }
  /// The name of the backend that computes: never "auto".
  std::string_view backend() const { return backend_->name(); }
  /// The number of steps of the whole training on `data`.
  Index all_steps(const Dataset& data) const;

  /// Writes weights, optimizer state, progress and the options of the training. Throws RunFailed, and leaves the file
  /// alone, if a weight is not finite. For `check` and the returned identity see save_checkpoint().
  /// Collective: every rank of `world` calls it.
  std::uint64_t save(const std::string& path, const std::function<void()>& check = {});
  /// Loads what save() wrote, on any grid. With `optimizer` false it reads only weights and running statistics, for an
  /// evaluation. Throws Error, alike on every rank, for a checkpoint of another model; with `optimizer` also for
  /// another seed, batch, data set or optimizer, because training would take another course. The decay of the learning
  /// rate ends where it does in the checkpoint, unless TrainerOptions::decay_steps is set.
  /// Collective: every rank of `world` calls it.
  void load(const std::string& path, bool optimizer);
  /// As above, from a file that every rank has opened.
  void load(const CheckpointFile& file, bool optimizer);
  /// Loads weights alone, for a new training on other data or with another last layer. Leaves out the layers whose
  /// names match a pattern of `skip` ("fc*"). Throws Error, alike on every rank, if any other weight of the model is
  /// missing or has another shape, or if a pattern matches no layer. Collective: every rank of `world` calls it.
  LoadedWeights load_weights(const CheckpointFile& file, const std::vector<std::string>& skip);

  /// The plan of a whole batch.
  const Plan& plan() const;
  /// The grid of this rank's stage.
  const ProcessGrid& grid() const;
  /// The device on which this rank computes, and the stream to which it adds its work.
  Device& device() const { return allocator_->device(); }
  Stream stream() const { return allocator_->stream(); }
  /// All that this rank has sent, checkpoints too.
  TrafficCounter& counter() const;
  /// What the plans of all steps so far predict for this rank.
  Traffic predicted() const { return predicted_; }
  /// What this rank has moved in these steps, as counted; without checkpoints.
  Traffic measured() const;
  /// Adds the actions of every later training step of a whole batch to `actions`, in order; null stops it. A device is
  /// waited for twice more in such a step. Collective: every rank of `world` calls it.
  void record(std::vector<TimedAction>* actions);
  /// Returns why the algorithms of convolutions were chosen by rule, without measuring; "" if they were measured.
  const std::string& kernel_problem() const;
  /// What holds this rank's tensors.
  const std::shared_ptr<Allocator>& allocator() const { return allocator_; }
  /// The most that they held so far, in bytes.
  MemoryPeak peak_memory() const { return {allocator_->peak(), allocator_->peak_total()}; }
  /// What peak_memory() is by prediction: the peak over all plans that this rank has run so far; on the CPU with the
  /// data sets and the memory that the rank shares with others. Batches of make_batch() are not part of it.
  const MemoryPeak& predicted_memory() const;
  /// The weights of this rank's stage by names, "conv1/weight".
  std::vector<NamedTensor> weights() const;

 private:
  friend class Generator;
  friend struct TrainerParts;  // tests and benchmarks look inside
  bool on_cpu() const { return device().host(); }
  void check(const LocalBatch& batch, bool training) const;
  EpochReport pass(Dataset& data, const SampleOrder& order, bool training, const Progress& progress);
  StepResult run(BoundPlan& bound, const std::function<Batch(int microbatch)>& reader, double rate,
                 Ahead* ahead = nullptr);
  void end_step();
  Index decay_end() const;
  void check_loss(const StepResult& result) const;
  void check_weights() const;

  Model model_;
  Strategy strategy_;
  TrainerOptions options_;
  Communicator& world_;
  std::shared_ptr<Allocator> allocator_;       // of tensors on the device
  std::shared_ptr<Allocator> host_allocator_;  // of samples; the same on the CPU
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<MemoryAccount> memory_;
  std::unique_ptr<StageRanks> ranks_;
  std::unique_ptr<Parameters> parameters_;
  std::unique_ptr<StepGuard> guard_;
  std::unique_ptr<PlanSet> plans_;
  std::unique_ptr<Arrival> arrival_;
  std::unique_ptr<DataFeed> feed_;
  Traffic predicted_;
  const Dataset* prepared_ = nullptr;
  std::map<std::string, std::string> notes_;
  double last_rate_ = 0;  // of the last training step
  Index epoch_ = 0, step_ = 0, total_steps_ = 0;
  Index trained_ = 0;       // steps that have made the weights, also of a run whose weights alone were loaded
  Index samples_ = 0;       // of an epoch so far, 0 before the first
  Index loaded_decay_ = 0;  // where the decay of the learning rate ends, if a checkpoint says so
  bool stopping_ = false;
};

/// Throws Error unless a grid of `strategy` has as many ranks as there are, saying which command would fit.
void check_ranks(const Strategy& strategy, int ranks);

}  // namespace partita
