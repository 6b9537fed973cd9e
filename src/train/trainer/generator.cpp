#include "partita/train/trainer/generator.hpp"

#include "partita/base/error.hpp"
#include "partita/base/philox.hpp"
#include "partita/strategies/plan/memory.hpp"
#include "partita/train/checkpoint/checkpoint.hpp"
#include "src/model/operators.hpp"
#include "src/train/checkpoint/run_record.hpp"
#include "src/train/trainer/data_feed.hpp"
#include "src/train/trainer/plan_set.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace partita {

namespace {

TrainerOptions of_evaluation(TrainerOptions options) {
  options.training = false;
  return options;
}

/// The number of tokens that every embedding of the model knows.
Index vocabulary_of(const Model& model) {
  Index least = 0;
  for (const auto& layer : model.layers())
    if (const auto* table = dynamic_cast<const EmbeddingOperator*>(layer.op.get()))
      least = least == 0 ? table->vocabulary() : std::min(least, table->vocabulary());
  return least;
}

}  // namespace

Generator::Generator(const Model& model, Strategy strategy, TrainerOptions options, Communicator& world,
                     Processor processor, Index places)
    : trainer_(model.at_places(1), std::move(strategy), of_evaluation(std::move(options)), world, std::move(processor)),
      model_(model),
      places_(places),
      vocabulary_(vocabulary_of(model)),
      kept_(std::make_unique<KeptPlaces>()) {
  const Plan& plan = trainer_.plan();
  const int rank = world.rank();
  agree_or_throw(world, [&] {
    static_cast<void>(model.at_places(places));  // throws Error unless the model has so many
    for (int j = 0; j < plan.microbatches; ++j) {
      auto& tensors = kept_->tensors.emplace_back();
      for (int i = 0; i < std::ssize(plan.layers); ++i) {
        const Box box = kept_box(plan, j, i, rank, places);
        tensors.push_back(
            box.dims() == 0 ? Tensor()
                            : Tensor(plan.workload.dtype, "NCL", box, trainer_.allocator(), MemoryClass::activations));
        kept_bytes_ += tensors.back() ? tensors.back().bytes() : 0;
      }
    }
  });
  trainer_.memory_->hold_places(kept_bytes_);
}

Generator::~Generator() = default;

Index Generator::places_done() const { return kept_->first; }
void Generator::restart() { kept_->first = 0; }
std::size_t Generator::sequences() const { return static_cast<std::size_t>(trainer_.options_.batch); }

void Generator::load(const CheckpointFile& file) {
  agree_or_throw(trainer_.world_, [&] { check_same_model(RunRecord(file), file.path(), model_.describe(), false); });
  trainer_.load_weights(file, {});
}

std::vector<std::int32_t> Generator::next(std::span<const std::int32_t> tokens, const Choice& choose) {
  if (tokens.empty() || tokens.size() % sequences() != 0)
    throw AgreedError(
        fmt::format("{} tokens for {} sequences; give each equally many, and one or more", tokens.size(), sequences()));
  const auto count = static_cast<Index>(tokens.size() / sequences());
  if (count > places_ - kept_->first)
    throw AgreedError(
        fmt::format("{} more places after {}, but this generator was made for {}", count, kept_->first, places_));
  for (const std::int32_t token : tokens)
    if (token < 0 || token >= vocabulary_)
      throw AgreedError(fmt::format("a token is {}, but the model knows the tokens 0 to {}", token, vocabulary_ - 1));
  auto& bound = count == 1 ? trainer_.plans_->of(trainer_.options_.batch, false)
                           : trainer_.plans_->of_places(trainer_.options_.batch, count, model_);
  Executor& executor = *bound.executor;
  const Plan& plan = bound.plan;
  std::vector<double> chosen(sequences(), 0);
  executor.keep_places(kept_.get());
  executor.observe([&](int microbatch, const Tensor& scores, const Tensor&) {
    const Layout& x = plan.layers_of(microbatch).back()->at.x[0];
    const int rank = trainer_.grid().rank();
    const Box& box = scores.box();
    if (representative_rank(x.grid(), rank, x.replicated()) != rank || box.empty() || box[2].hi != count) return;
    const Tensor mine = on_host(scores, trainer_.stream());
    std::vector<double> row(static_cast<std::size_t>(box.extent(1)));
    for (Index n = box[0].lo; n < box[0].hi; ++n) {
      for (Index c = 0; c < std::ssize(row); ++c) row[c] = mine.at({n, c, count - 1});
      const Index sequence = plan.samples(microbatch).lo + n;
      const bool good = std::all_of(row.begin(), row.end(), [](double score) { return std::isfinite(score); });
      chosen[sequence] = good ? choose(sequence, row) : -1;
    }
  });
  const auto read = [&](int microbatch) {
    const Batch batch = trainer_.feed_->empty_batch(executor, microbatch, Fill::zeros);
    const SampleBlock block{plan.samples(microbatch).lo, {}, batch.images.front()};
    block.fill([&](Index sequence, const Box& box, std::span<double> values) {
      std::copy_n(tokens.begin() + sequence * count + box[1].lo, values.size(), values.begin());
    });
    return batch;
  };
  trainer_.run(bound, read, 0);
  executor.observe({});
  kept_->first += count;
  trainer_.world_.all_reduce(chosen.data(), std::ssize(chosen), DType::f64, ReduceOp::sum, {}).wait();
  if (const auto bad = std::find(chosen.begin(), chosen.end(), -1.0); bad != chosen.end())
    throw RunFailed(
        fmt::format("the scores of sequence {} after {} are not finite; look for such numbers in the weights",
                    bad - chosen.begin() + 1, counted(kept_->first, "place")));
  return {chosen.begin(), chosen.end()};
}

std::int32_t choose_token(const Sampling& sampling, Index sequence, Index place, std::span<const double> scores) {
  std::vector<std::int32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  const auto larger = [&](std::int32_t a, std::int32_t b) {
    return scores[a] != scores[b] ? scores[a] > scores[b] : a < b;
  };
  if (sampling.temperature == 0) return *std::min_element(order.begin(), order.end(), larger);
  const Index all = std::ssize(scores), most = sampling.most == 0 ? all : std::min(sampling.most, all);
  std::partial_sort(order.begin(), order.begin() + most, order.end(), larger);
  const double largest = scores[order[0]];
  double total = 0;
  std::vector<double> sums;  // of the weights of the first tokens of the order
  for (Index i = 0; i < most; ++i)
    sums.push_back(total += std::exp((scores[order[i]] - largest) / sampling.temperature));
  const Random random(sampling.seed, hash_text("next token"), static_cast<std::uint64_t>(sequence));
  const auto drawn = std::upper_bound(sums.begin(), sums.end(), random.uniform(place) * total);
  return order[std::min(drawn - sums.begin(), most - 1)];
}

}  // namespace partita
