#pragma once

#include "partita/strategies/plan/memory.hpp"
#include "partita/train/data/augment.hpp"
#include "partita/train/data/dataset.hpp"
#include "partita/train/kernels/kernel_choice.hpp"
#include "partita/train/run/executor.hpp"

#include <functional>
#include <map>
#include <memory>
#include <string>

namespace partita {

/// Everything about a training that is neither model nor strategy nor data.
struct TrainerOptions {
  Index batch = 128;  ///< global samples a step
  DType dtype = DType::f32;
  Optimizer optimizer;
  Index epochs = 1;
  Index steps = 0;  ///< stop after so many steps in all; 0: run all epochs
  std::uint64_t seed = 1;
  Augmentation augmentation;
  std::string backend = "auto";
  int threads = 1;
  bool overlap = true;
  Index memory_limit = 0;       ///< bytes of tensors a rank; 0: none
  bool training = true;         ///< false: evaluation alone, without gradients and optimizer state
  std::string kernel_folder{};  ///< where measured choices of kernels are kept; "": by rule, without measuring
  std::function<void(Index done, Index all)> measuring{};  ///< called on every rank while kernels are measured
};

/// One epoch, or one pass over a test set, as every rank sees it.
struct EpochReport {
  Index epoch = 0;  ///< counted from 1
  Index steps = 0;
  Index samples = 0;
  double loss = 0;      ///< mean over the epoch's samples
  double accuracy = 0;  ///< fraction; not a number where the target is values
  double seconds = 0;
};

/// Trains and evaluates one model under one strategy on one rank of `world`. A plan belongs to a batch size: the last,
/// smaller batch and evaluation have their own, all on the same weights. What computes, saves or loads is collective over `world`.
class Trainer {
 public:
  /// Called after every step with the epoch (from 1), the step in it, its steps, and the step's loss and accuracy.
  using Progress = std::function<void(Index epoch, Index step, Index steps, const StepResult& result)>;

  /// Binds, checks that all ranks bound the same plan, draws the weights. Collective over `world`. Throws Error, alike
  /// on every rank, if the grid does not fit the number of ranks, the plan cannot be, or passes the memory limit.
  Trainer(Model model, Strategy strategy, TrainerOptions options, std::shared_ptr<Communicator> world);

  /// Has `data` hold all that evaluate(data) will read: a damaged file is found before hours of training, and the time
  /// of an evaluation is that of computing. Collective; throws Error alike on every rank.
  void prepare(Dataset& data);
  /// One epoch over `data`, shuffled by seed and epoch.
  EpochReport train_epoch(Dataset& data, const Progress& progress);
  /// Loss and accuracy over `data`, in order, with running statistics and without dropout.
  EpochReport evaluate(Dataset& data, const Progress& progress);
  /// One step on given samples, a batch at most; for tests and tools.
  StepResult train_step(Dataset& data, std::span<const Index> samples);

  /// True when the last epoch, or the last of `steps`, is done.
  bool finished(const Dataset& data) const;
  /// Steps done so far, and all that will be.
  Index step() const { return step_; }
  Index all_steps(const Dataset& data) const;

  /// Writes weights, optimizer state and progress; loads them on whatever grid this is. A checkpoint of another model is
  /// refused; one of another seed or batch too where training is to go on, since the course would be another.
  void save(const std::string& path);
  /// With `optimizer` false only weights and running statistics are read (for evaluation).
  void load(const std::string& path, bool optimizer);

  /// The plan of a whole batch.
  const Plan& plan() { return executor(options_.batch, options_.training).plan(); }
  /// The grid of this rank's stage.
  const ProcessGrid& grid() const { return *grid_; }
  /// All that this rank has sent, checkpoints too.
  const TrafficCounter& counter() const { return *counter_; }
  TrafficCounter& counter() { return *counter_; }
  /// What the plans of all steps so far predict for this rank.
  Traffic predicted() const { return predicted_; }
  /// What this rank has moved in these steps, as counted; without checkpoints.
  Traffic measured() const;
  /// How the kernels of all plans so far were chosen.
  const KernelReport& kernel_report() const { return kernel_report_; }
  /// What holds this rank's tensors.
  const std::shared_ptr<Allocator>& allocator() const { return allocator_; }
  /// The most that they held so far, in bytes.
  MemoryPeak peak_memory() const { return {allocator_->peak(), allocator_->peak_total()}; }
  Parameters& parameters() { return *parameters_; }
  /// The weights of this rank's stage by names, "conv1/weight".
  std::vector<NamedTensor> weights() { return parameters_->named(plan(), *grid_, false); }
  /// What runs batches of this size, made where it is asked for first: then collective, and throws Error alike on every rank.
  Executor& executor(Index batch, bool training);

 private:
  struct Bound {
    Plan plan;
    std::unique_ptr<Executor> executor;
    Traffic predicted;
  };

  std::map<std::string, std::string> attributes() const;
  Bound& bound(Index batch, bool training);
  void prepare(Bound& entry, Plan plan);
  Batch read(const Executor& executor, int microbatch, Dataset& data, std::span<const Index> all, bool augment);
  void hold(Dataset& data, std::span<const Index> order, bool training, const Augmentation& augmentation);
  EpochReport pass(Dataset& data, const std::vector<Index>& order, bool training, const Progress& progress);
  StepResult run(Bound& bound, Dataset& data, std::span<const Index> samples, bool augment, double rate);

  Model model_;
  Strategy strategy_;
  TrainerOptions options_;
  std::shared_ptr<TrafficCounter> counter_;
  std::shared_ptr<Communicator> world_;
  std::shared_ptr<Allocator> allocator_;
  std::shared_ptr<Communicator> counted_;       // world_, counted
  int stage_ = 0;                               // of this rank
  std::shared_ptr<Communicator> replica_pair_;  // the two ranks that hold both replicas of a weight
  std::unique_ptr<ProcessGrid> grid_;           // of the stage
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Parameters> parameters_;
  std::map<std::pair<Index, bool>, Bound> bound_;
  Traffic predicted_;
  KernelReport kernel_report_;
  const Dataset* prepared_ = nullptr;
  Index epoch_ = 0, step_ = 0, total_steps_ = 0;
  Index samples_ = 0;  // of an epoch so far, 0 before the first
};

/// Throws Error unless a grid of `strategy` has as many ranks as there are, saying which command would fit.
void check_ranks(const Strategy& strategy, int ranks);

}  // namespace partita
