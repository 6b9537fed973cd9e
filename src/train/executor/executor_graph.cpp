// Steps of an executor that a device captures as a graph and launches again: all that comes before the update.
#include "partita/base/error.hpp"
#include "src/device/profile.hpp"
#include "src/train/executor/captured_step.hpp"
#include "src/train/executor/step_guard.hpp"
#include "src/train/executor/weight_update.hpp"

#include <algorithm>

namespace partita {

namespace {

/// Null for a tensor without bytes.
const void* address(const Tensor& tensor) { return tensor && tensor.bytes() > 0 ? tensor.data() : nullptr; }

BatchPlaces places_of(const Batch& batch) {
  BatchPlaces places;
  for (const Tensor& tensor : batch.images) places.push_back(address(tensor));
  places.push_back(address(batch.target));
  return places;
}

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
Executor::StepMode Executor::step_mode() {
  if (!context_.graphs || !plan_.workload.training || inspector_ != nullptr) return StepMode::live;
  const Allocator::State now = context_.allocator->state();
  const bool steady = std::exchange(start_, now) == now;
  const bool sends = ahead_ != nullptr && ahead_->sends();
  const bool possible = record_ == nullptr && !keep_ && !observer_ && Profile::current() == nullptr &&
                        (sends || !arrives(0));  // a pass ends without a graph
  StepMode mine = steady && possible ? StepMode::capture : StepMode::live;
  const auto same_place = [&] { return !arrives(0) || captured_->here == places_of(ahead_->arrival.here()); };
  if (possible && captured_ && captured_->sent.has_value() == sends && same_place() &&
      captured_->scale == context_.guard->scale() && captured_->start.in_use == now.in_use &&
      captured_->start.given_back == now.given_back)
    mine = StepMode::launch;
  return static_cast<StepMode>(context_.guard->least(static_cast<int>(mine)));
}

void Executor::capture(const Reader& read, double rate) {
  captured_.reset();
  auto made = std::make_unique<CapturedStep>();
  made->start = start_;
  made->scale = context_.guard->scale();
  if (arrives(0)) {
    ahead_->next = staged(ahead_->next, *made);
    made->sent = places_of(ahead_->next);
    made->here = places_of(ahead_->arrival.here());
  }
  const TrafficCounter before = context_.counter;
  const auto noting = [&](int microbatch) {
    const Batch batch = staged(read(microbatch), *made);
    made->brought.push_back({microbatch, places_of(batch)});
    return batch;
  };
  try {
    made->graph =
        partita::capture(context_.allocator->device(), rank_.stream, [&] { compute_gradients(noting, rate); });
  } catch (const DeviceError& error) {
    throw DeviceError(fmt::format("{}; this happened while the step was captured as a graph, which --no-graph prevents",
                                  error.what()));
  }
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
  const auto copy_from = [&](const BatchPlaces& captured, const Batch& now) {
    auto from = captured.begin();
    static_cast<void>(now.each([&](const Tensor& tensor) {
      if (const void* place = *from++; place != nullptr) others.push_back({place, tensor.data()});
      traveling_.push_back(tensor);
      return tensor;
    }));
  };
  for (const auto& brought : captured_->brought) copy_from(brought.from, staged(read(brought.microbatch), {}));
  if (captured_->sent) copy_from(*captured_->sent, staged(ahead_->next, {}));
  if (context_.allocator->state().in_use != captured_->start.in_use)
    fail(
        "the reader of a batch holds new tensors on the device, perhaps in memory that the step's graph uses; let it "
        "release them before it returns, or run without graphs (--no-graph, TrainerOptions::graphs)");
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

/// Returns a batch in memory of the CPU from which copies can be captured. No part of it lies where a part of
/// `captured` lies, since later launches replace each part on its own.
Batch Executor::staged(const Batch& batch, const CapturedStep& captured) const {
  const auto in_staging = [&](const Tensor& tensor, bool taken) {
    if (address(tensor) == nullptr) return tensor;
    if (!tensor.device().host())
      fail(
          "this batch lies on the device, but a step that is launched as a graph copies its batch from the CPU; read "
          "it into the CPU's memory, or run without graphs (--no-graph, TrainerOptions::graphs)");
    if (&tensor.device() == &staging_->device() && !taken) return tensor;
    const Tensor copy(tensor.dtype(), tensor.names(), tensor.box(), staging_, MemoryClass::workspace, Fill::none);
    from_host(tensor, copy, {});
    return copy;
  };
  BatchPlaces taken;
  for (const auto& brought : captured.brought) taken.insert(taken.end(), brought.from.begin(), brought.from.end());
  if (captured.sent) taken.insert(taken.end(), captured.sent->begin(), captured.sent->end());
  return batch.each([&](const Tensor& tensor) {
    const bool is_taken = std::find(taken.begin(), taken.end(), address(tensor)) != taken.end();
    taken.push_back(address(tensor));
    return in_staging(tensor, is_taken);
  });
}

}  // namespace partita
