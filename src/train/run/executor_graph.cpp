// Steps of an executor that a device captures as a graph and launches again: all that comes before the update.
#include "partita/base/profile.hpp"
#include "src/train/run/captured_step.hpp"
#include "src/train/run/step_guard.hpp"
#include "src/train/run/weight_update.hpp"

namespace partita {

namespace {

/// Null for a tensor without bytes.
const void* address(const Tensor& tensor) { return tensor && tensor.bytes() > 0 ? tensor.data() : nullptr; }

std::vector<ReleasedTensor> released(const std::vector<Tensor>& tensors) { return {tensors.begin(), tensors.end()}; }

std::vector<Tensor> again(const std::vector<ReleasedTensor>& tensors) {
  std::vector<Tensor> all;
  for (const auto& tensor : tensors) all.push_back(tensor.again());
  return all;
}

}  // namespace

/// How this step runs up to its update, alike on every rank. A step is captured when the one before it began with the
/// same buffers and asked the device for no memory: then this one will use the same memory, as will those that follow.
/// Its graph is launched as long as the buffers that it uses are free.
Executor::Way Executor::way() {
  const bool possible = context_.graphs && plan_.workload.training && inspector_ == nullptr && record_ == nullptr &&
                        !keep_ && !observer_ && Profile::current() == nullptr;
  if (!possible) return Way::live;
  const Allocator::State now = context_.allocator->state();
  const bool steady = std::exchange(start_, now) == now;
  Way mine = steady ? Way::capture : Way::live;
  if (captured_ && captured_->scale == context_.guard->scale() && captured_->start.in_use == now.in_use &&
      captured_->start.given_back == now.given_back)
    mine = Way::launch;
  return static_cast<Way>(context_.guard->least(static_cast<int>(mine)));
}

void Executor::capture(const Reader& read, double rate) {
  captured_.reset();
  auto made = std::make_unique<CapturedStep>();
  made->start = start_;
  made->scale = context_.guard->scale();
  const TrafficCounter before = context_.counter;
  const auto noting = [&](int microbatch) {
    const Batch batch = staged(read(microbatch));
    made->brought.push_back({microbatch, address(batch.images), address(batch.target)});
    return batch;
  };
  made->graph = partita::capture(context_.allocator->device(), rank_.stream, [&] { compute_gradients(noting, rate); });
  made->traffic = context_.counter.since(before);
  made->losses = losses_;
  made->results.emplace(results_);
  made->sums = released(update_->sums());
  made->statistics = released(update_->statistics());
  captured_ = std::move(made);
  launch_graph({});
}

void Executor::launch(const Reader& read) {
  Profile::layer("data");
  std::vector<OtherSource> others;
  for (const auto& [microbatch, images, target] : captured_->brought) {
    const Batch now = staged(read(microbatch));
    if (images != nullptr) others.push_back({images, now.images.data()});
    if (target != nullptr) others.push_back({target, now.target.data()});
    traveling_.insert(traveling_.end(), {now.images, now.target});
  }
  Profile::layer("graph");
  launch_graph(others);
  context_.counter.add(captured_->traffic);
  losses_ = captured_->losses;
  results_ = captured_->results->again();
  update_->resume(again(captured_->sums), again(captured_->statistics));
  ++launched_;
}

void Executor::launch_graph(std::span<const OtherSource> others) {
  captured_->graph->launch(others);
  context_.world.launched();
  context_.gradient_grid.world().launched();
}

/// Returns a batch in memory of the CPU from which copies can be captured.
Batch Executor::staged(const Batch& batch) const {
  const auto in_staging = [&](const Tensor& tensor) {
    if (address(tensor) == nullptr || &tensor.device() == &step_number_.device()) return tensor;
    const Tensor copy = step_number_.beside(tensor.dtype(), tensor.names(), tensor.box(), MemoryClass::workspace);
    from_host(tensor, copy, {});
    return copy;
  };
  return {in_staging(batch.images), in_staging(batch.target)};
}

/// Brings what the CPU holds of a batch to the device.
Batch Executor::bring(const Batch& batch) { return {bring(batch.images), bring(batch.target)}; }

Tensor Executor::bring(const Tensor& tensor) {
  Device& device = context_.allocator->device();
  if (!tensor || &tensor.device() == &device || device.host()) return tensor;
  const Tensor there(tensor.dtype(), tensor.names(), tensor.box(), context_.allocator, MemoryClass::activations,
                     Fill::none);
  from_host(tensor, there, rank_.stream);
  traveling_.push_back(tensor);
  return there;
}

}  // namespace partita
