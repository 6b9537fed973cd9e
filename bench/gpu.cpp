// Measures one GPU: bench/gpu.sh runs it, beside PyTorch.
//   build/bench/gpu properties              prints the card's properties, from which cuDNN makes plans elsewhere
//   build/bench/gpu convs MODEL BATCH TYPE  each convolution of a training step, with its fastest kernel
//   build/bench/gpu step MODEL BATCH TYPE   training steps, and the memory that they hold
//   build/bench/gpu gaps                    steps that compute next to nothing: the time from kernel to kernel
//   build/bench/gpu halos                   packing and unpacking, beside plain copies
//   build/bench/gpu nccl                    the verbs of NCCL on one rank
#include "partita/backend/cuda.hpp"
#include "partita/base/error.hpp"
#include "partita/base/philox.hpp"
#include "partita/comm/solo.hpp"
#include "partita/model/builtin/builtin.hpp"
#include "src/backend/gpu/cuda/libraries/conv_plan.hpp"
#include "src/backend/measure.hpp"
#include "src/base/plain_text.hpp"
#include "src/comm/device/nccl.hpp"
#include "src/comm/threads/threads.hpp"
#include "src/device/capture.hpp"
#include "src/system/clock.hpp"
#include "src/train/kernels/kernel_choice.hpp"
#include "src/train/trainer/trainer_parts.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <map>
#include <numeric>

using namespace partita;

namespace {

using Json = nlohmann::ordered_json;

void print(const Json& line) { std::cout << line.dump() << std::endl; }

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// The median seconds of `count` calls, each timed by the stream, after some that are not counted.
double time_on(Device& device, Stream stream, int count, const std::function<void()>& call) {
  for (int i = 0; i < 3; ++i) call();
  const StreamClock clock(device, stream);
  std::vector<Event> moments{clock.mark()};
  for (int i = 0; i < count; ++i) {
    call();
    moments.push_back(clock.mark());
  }
  clock.finish();
  std::vector<double> seconds;
  for (std::size_t i = 1; i < moments.size(); ++i) seconds.push_back(device.seconds(moments[i - 1], moments[i]));
  return median(seconds);
}

std::string_view name(ConvPass pass) {
  return pass == ConvPass::forward ? "forward" : pass == ConvPass::backward_data ? "backward-data" : "backward-filter";
}

/// The backend that `train` would use.
std::unique_ptr<Backend> make_backend_on(CudaDevice& device, DType dtype) {
  const Index memory = cuda_cards().at(static_cast<std::size_t>(device.card())).memory;
  return make_cuda_backend(device, {.dtype = dtype, .workspace = default_workspace(memory)});
}

/// One trainer on one rank, which repeats steps on random images.
class Steps {
 public:
  Steps(Device& device, std::unique_ptr<Backend> backend, const Model& model, Index batch, DType dtype,
        Communicator& world, bool graphs = true)
      : trainer_(model, Strategy(), options(batch, dtype, graphs), world,
                 {device, borrow(world), borrow(world), std::move(backend)}),
        batch_(trainer_.make_batch(batch)) {
    const SampleBlock& images = batch_.images[0];
    fill(images.tensor, images.shape, [](Index i) { return Random(1, 1).normal(i); });
  }
  void run() { trainer_.step(batch_); }
  Trainer& trainer() { return trainer_; }

 private:
  static TrainerOptions options(Index batch, DType dtype, bool graphs) {
    TrainerOptions options{
        .batch = batch, .dtype = dtype, .optimizer = {.rate = 1e-4, .momentum = 0.9}, .augmentation = {}};
    options.graphs = graphs;
    options.kernel_folder = default_kernel_folder();
    return options;
  }

  Trainer trainer_;
  LocalBatch batch_;
};

void run_convs(CudaDevice& device, const std::string& model, Index batch, DType dtype) {
  const auto solo = make_solo(0, 1, true, nullptr, device);
  Steps steps(device, make_backend_on(device, dtype), builtin_model(model), batch, dtype, *solo);
  const auto backend = make_backend_on(device, dtype);
  std::map<std::string, std::string> engines;
  const auto problems = TrainerParts::executor(steps.trainer(), batch, true).problems();
  for (const auto& group : halves_first(*backend, problems))
    for (const ConvProblem& problem : group)
      if (!backend->algorithms(problem).empty())
        engines[problem.print()] = measure_fastest(*backend, steps.trainer().stream(), problem);
  for (const ConvProblem& problem : problems) {
    const auto engine = engines.find(problem.print());
    if (engine == engines.end()) {
      print({{"subject", "gpu-conv"}, {"model", model}, {"problem", problem.print()}, {"left", "cuDNN has no engine"}});
      continue;
    }
    Json sides = Json::array();
    for (std::size_t d = static_cast<std::size_t>(3 - problem.spatial); d < 3; ++d) {
      const auto& s = problem.sides[d];
      sides.push_back({{"in", s.in},
                       {"out", s.out},
                       {"kernel", s.kernel},
                       {"stride", s.stride},
                       {"dilation", s.dilation},
                       {"padding", s.pad_lo}});
    }
    print({{"subject", "gpu-conv"},
           {"model", model},
           {"type", name(dtype)},
           {"pass", name(problem.pass)},
           {"batch", problem.batch},
           {"channels", problem.channels},
           {"filters", problem.filters},
           {"groups", problem.groups},
           {"sides", sides},
           {"engine", engine->second},
           {"seconds", time_algorithm(*backend, steps.trainer().stream(), problem, engine->second)}});
  }
}

void run_step(CudaDevice& device, const std::string& model, Index batch, DType dtype, bool graphs) {
  const auto solo = make_solo(0, 1, true, nullptr, device);
  Steps steps(device, make_backend_on(device, dtype), builtin_model(model), batch, dtype, *solo, graphs);
  for (int i = 0; i < 5; ++i) steps.run();
  std::vector<double> seconds;
  for (double spent = 0; seconds.size() < 10 || spent < 5;) {
    const double start = now();
    steps.run();
    seconds.push_back(now() - start);
    spent += seconds.back();
  }
  print({{"subject", "gpu-step"},
         {"model", model},
         {"batch", batch},
         {"type", name(dtype)},
         {"graph", TrainerParts::executor(steps.trainer(), batch, true).launched() > 0},
         {"seconds", median(seconds)},
         {"held", steps.trainer().peak_memory().total},
         {"predicted", steps.trainer().predicted_memory().total},
         {"left", device.memory_left()}});
}

/// Steps of ResNet-50 on images so small that the card waits for the CPU.
void run_gaps(CudaDevice& device, bool graphs) {
  const auto solo = make_solo(0, 1, true, nullptr, device);
  ModelSize size;
  size.extent = 32;
  Steps steps(device, make_backend_on(device, DType::f32), builtin_model("resnet50", size), 1, DType::f32, *solo,
              graphs);
  for (int i = 0; i < 5; ++i) steps.run();
  std::vector<double> seconds;
  for (int i = 0; i < 50; ++i) {
    const double start = now();
    steps.run();
    seconds.push_back(now() - start);
  }
  const auto layers = static_cast<double>(steps.trainer().plan().layers.size());
  print({{"subject", "gpu-gaps"},
         {"graph", TrainerParts::executor(steps.trainer(), 1, true).launched() > 0},
         {"seconds", median(seconds)},
         {"layers", layers},
         {"microseconds_per_layer", median(seconds) / layers * 1e6}});
}

/// Packs and unpacks slabs of a large tensor, and copies as many bytes.
void run_halos(CudaDevice& device) {
  const auto allocator = std::make_shared<Allocator>(device, 0, device.make_stream(Priority::normal));
  const Stream stream = allocator->stream();
  const Box whole(Shape{{'N', 8}, {'C', 64}, {'H', 1024}, {'W', 1024}});
  for (const DType dtype : {DType::bf16, DType::f32}) {
    const Tensor x(dtype, "NCHW", whole, allocator, MemoryClass::activations);
    for (const char dim : {'H', 'W'})
      for (const Index rows : {1, 3}) {
        Box slab = whole;
        slab[dim == 'H' ? 2 : 3] = {100, 100 + rows};
        const Tensor packed = x.like(slab), other = x.like(slab);
        const auto bytes = static_cast<double>(packed.bytes());
        const double out = time_on(device, stream, 50, [&] { copy_box(x, packed, slab, stream); });
        const double in = time_on(device, stream, 50, [&] { copy_box(packed, x, slab, stream); });
        const double copy = time_on(device, stream, 50, [&] {
          device.copy(packed.data(), other.data(), static_cast<std::size_t>(packed.bytes()), stream);
        });
        print({{"subject", "gpu-halo"},
               {"type", name(dtype)},
               {"slab", fmt::format("{} of {}", rows, dim)},
               {"bytes", bytes},
               {"pack_of_copy", copy / out},
               {"unpack_of_copy", copy / in},
               {"copy_bytes_per_second", 2 * bytes / copy}});
      }
  }
}

void run_nccl(CudaDevice& device) {
  run_threads(1, [&](Communicator& threads) {
    const auto comm = make_nccl(threads, device, std::chrono::seconds(60));
    const auto allocator = std::make_shared<Allocator>(device, 0, device.make_stream(Priority::normal));
    const Stream stream = allocator->stream();
    const Tensor mine(DType::f32, "F", Box(Shape{{'F', 1000}}), allocator, MemoryClass::workspace);
    const Tensor all = mine.like(DType::f32);
    const Tensor host(DType::f32, "F", mine.box());
    for (Index i = 0; i < host.volume(); ++i) host.set(i, static_cast<double>(i));
    from_host(host, mine, stream);
    const std::vector<Index> counts{mine.volume()};
    comm->all_reduce(mine.data(), mine.volume(), DType::f32, ReduceOp::sum, stream).wait(stream);
    comm->reduce_scatter(mine.data(), all.data(), counts, DType::f32, stream).wait(stream);
    comm->all_gather(all.data(), mine.data(), counts, DType::f32, stream).wait(stream);
    comm->broadcast(mine.data(), mine.volume(), DType::f32, 0, stream).wait(stream);
    const auto part = comm->split(0, 0);
    part->all_to_all(mine.data(), counts, all.data(), counts, DType::f32, stream).wait(stream);
    const std::vector<double> found = read(all, stream);
    // A graph sums what its buffer holds at the time of a launch.
    const Tensor doubled(DType::f32, "F", mine.box());
    for (Index i = 0; i < host.volume(); ++i) doubled.set(i, 2 * static_cast<double>(i));
    const auto graph = capture(
        device, stream, [&] { comm->all_gather(mine.data(), all.data(), counts, DType::f32, stream).wait(stream); });
    from_host(doubled, mine, stream);
    graph->launch({});
    comm->launched();
    const std::vector<double> launched = read(all, stream);
    bool right = true;
    for (std::size_t i = 0; i < found.size(); ++i)
      right = right && found[i] == static_cast<double>(i) && launched[i] == 2 * found[i];
    print({{"subject", "gpu-nccl"}, {"version", nccl_version()}, {"right", right}});
    if (!right) fail("NCCL on one rank has changed the numbers");
  });
}

void run(int argc, char** argv) {
  const std::string subject = argc > 1 ? argv[1] : "";
  const auto device = make_cuda_device(0);
  const auto named = [&](auto&& of_model) {
    if (argc != 5) fail("give a model, a batch and a type, e.g. {} resnet50 256 bf16", subject);
    of_model(*device, argv[2], parse_number<Index>(argv[3]).value_or(0), parse_dtype(argv[4]));
  };
  if (subject == "properties")
    std::cout << cuda::print_properties(cuda::device_properties(0)) << std::endl;
  else if (subject == "convs")
    named(run_convs);
  else if (subject == "step")
    for (const bool graphs : {true, false})
      named([&](CudaDevice& card, const std::string& model, Index batch, DType dtype) {
        run_step(card, model, batch, dtype, graphs);
      });
  else if (subject == "gaps")
    for (const bool graphs : {true, false}) run_gaps(*device, graphs);
  else if (subject == "halos")
    run_halos(*device);
  else if (subject == "nccl")
    run_nccl(*device);
  else
    fail("the subjects are properties, convs, step, gaps, halos and nccl");
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(argc, argv);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "gpu: " << error.what() << "\n";
    return 2;
  }
}
