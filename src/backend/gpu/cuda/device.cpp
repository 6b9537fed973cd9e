#include "partita/backend/cuda.hpp"
#include "partita/base/error.hpp"
#include "partita/device/memory.hpp"
#include "src/backend/gpu/cuda/card_capture.hpp"
#include "src/backend/gpu/cuda/errors.hpp"
#include "src/backend/gpu/cuda/launcher.hpp"
#include "src/backend/gpu/functor_backend/moves.hpp"

#include <mutex>
#include <set>

namespace partita {

namespace {

using cuda::CardEvent;
using cuda::check;

cudaStream_t native(Stream stream) { return static_cast<cudaStream_t>(stream.native); }
const CardEvent& card_event(const Event& event) { return *static_cast<const CardEvent*>(event.native.get()); }
cudaEvent_t native(const Event& event) { return card_event(event).event; }

/// Pinned memory. The CPU uses it, and copies to and from a card run in the order of their stream.
class PinnedMemory final : public HostMemory {
 public:
  PinnedMemory(int card, cuda::CardCapture& capture) : card_(card), capture_(capture) {}
  std::string_view name() const override { return "pinned memory"; }
  void* allocate(std::size_t bytes) override {
    check(cudaSetDevice(card_), "use the card");
    const cuda::AllowAllocation allow;
    void* data = nullptr;
    if (cudaMallocHost(&data, bytes) == cudaSuccess) return data;
    cudaGetLastError();  // else the next launch would report it again
    return nullptr;
  }
  void release(void* data) override {
    const auto now = [card = card_, data] {
      cudaSetDevice(card);
      cudaDeviceSynchronize();
      cudaFreeHost(data);
    };
    capture_.active() ? capture_.release_later(now) : now();
  }

 private:
  int card_;
  cuda::CardCapture& capture_;
};

class Card final : public CudaDevice {
 public:
  explicit Card(int card) : card_(card), capture_(*this, streams_), pinned_(card, capture_) {
    int count = 0;
    check(cudaGetDeviceCount(&count), "find a card");
    if (card < 0 || card >= count) fail("there is no card {}: this process sees {}, counted from 0", card, count);
    use();
  }
  ~Card() override {
    cudaSetDevice(card_);
    cudaDeviceSynchronize();
    for (const auto* idle : {&idle_, &idle_timed_})
      for (const auto& event : *idle) cudaEventDestroy(event->event);
    for (const cudaStream_t stream : streams_) cudaStreamDestroy(stream);
  }
  Card(const Card&) = delete;
  Card& operator=(const Card&) = delete;

  std::string_view name() const override { return "cuda"; }
  bool host() const override { return false; }
  int card() const override { return card_; }

  void* allocate(std::size_t bytes) override {
    use();
    const cuda::AllowAllocation allow;
    void* data = nullptr;
    const cudaError_t code = cudaMalloc(&data, bytes);
    if (code == cudaErrorMemoryAllocation) {
      cudaGetLastError();  // else the next launch would report it again
      return nullptr;
    }
    check(code, "allocate memory");
    return data;
  }
  void release(void* data) override {
    const auto now = [card = card_, data] {
      cudaSetDevice(card);
      cudaFree(data);  // waits until the card has done everything
    };
    capture_.active() ? capture_.release_later(now) : now();
  }
  std::string memory_left() const override {
    std::size_t left = 0, all = 0;
    cudaSetDevice(card_);
    if (cudaMemGetInfo(&left, &all) != cudaSuccess) return fmt::format("card {} does not answer", card_);
    return fmt::format("card {} has {} of {} left", card_, print_bytes(static_cast<Index>(left)),
                       print_bytes(static_cast<Index>(all)));
  }
  void zero(void* data, std::size_t bytes, Stream stream) override {
    use();
    check(cudaMemsetAsync(data, 0, bytes, native(stream)), "set memory to zero");
  }
  void move(std::span<const BoxMove> moves, Stream stream) override {
    use();
    run_moves(CudaLauncher(nullptr, 0, {}), moves, stream);
  }
  void copy(const void* from, void* to, std::size_t bytes, Stream stream) override {
    use();
    const cudaPointerAttributes source = place_of(from), target = place_of(to);
    for (const auto& place : {source, target})
      if (place.type == cudaMemoryTypeDevice && place.device != card_) reach(place.device);
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, native(stream)), "copy");
    if (capture_.active() && source.type == cudaMemoryTypeHost)
      return capture_.add_copy(from, to, bytes, native(stream));
    if (source.type == cudaMemoryTypeUnregistered || target.type == cudaMemoryTypeUnregistered) finish(stream);
  }
  Stream make_stream(Priority priority) override {
    use();
    int lowest = 0, highest = 0;
    check(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "make a stream");
    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, priority == Priority::high ? highest : lowest),
          "make a stream");
    const std::scoped_lock lock(mutex_);
    streams_.push_back(stream);
    return {stream};
  }
  Event record(Stream stream) override { return record(stream, idle_, cudaEventDisableTiming); }
  Event mark(Stream stream) override { return record(stream, idle_timed_, cudaEventDefault); }
  double seconds(const Event& from, const Event& to) override {
    use();
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, native(from), native(to)), "read the time of an event");
    return static_cast<double>(milliseconds) * 1e-3;
  }
  void wait(Stream stream, const Event& event) override {
    if (event.native == nullptr) return;
    // A launch of a graph comes after all that was in any stream, and all that is added later comes after it.
    if (card_event(event).capture != capture_.number()) return;
    use();
    check(cudaStreamWaitEvent(native(stream), native(event), 0), "wait for an event");
  }
  bool passed(const Event& event) override {
    if (event.native == nullptr) return true;
    refuse_waiting(card_event(event).capture != 0);
    use();
    const cudaError_t code = cudaEventQuery(native(event));
    if (code != cudaErrorNotReady) check(code, "look at an event");
    return code == cudaSuccess;
  }
  void finish(Stream stream) override {
    use();
    refuse_waiting(capture_.active());
    check(cudaStreamSynchronize(native(stream)), "finish the work");
  }
  void wait(const Event& event) override {
    if (event.native == nullptr) return;
    use();
    refuse_waiting(capture_.active() || card_event(event).capture != 0);
    check(cudaEventSynchronize(native(event)), "wait for an event");
  }
  Device& staging() override { return pinned_; }
  Capture* capture() override { return &capture_; }

 private:
  using IdleEvents = std::vector<std::unique_ptr<CardEvent>>;

  static void refuse_waiting(bool captures) {
    if (captures)
      fail("the CPU cannot wait for the card while a step is captured as a graph; --no-graph prevents that");
  }

  /// Each thread has a current card.
  void use() const { check(cudaSetDevice(card_), "use the card"); }

  /// Lets this card read and write the memory of another one, where their connection allows it. Not before it is
  /// needed: it makes a context on the other card, which takes 0.4 GB there and seconds.
  void reach(int other) {
    const std::scoped_lock lock(mutex_);
    if (!reached_.insert(other).second) return;
    int reaches = 0;
    check(cudaDeviceCanAccessPeer(&reaches, card_, other), "find another card");
    if (reaches == 0) return;
    const cudaError_t code = cudaDeviceEnablePeerAccess(other, 0);
    if (code == cudaErrorPeerAccessAlreadyEnabled)
      cudaGetLastError();
    else
      check(code, "reach another card");
  }

  /// Memory of the CPU that is not pinned is unregistered.
  static cudaPointerAttributes place_of(const void* data) {
    cudaPointerAttributes found{};
    check(cudaPointerGetAttributes(&found, data), "look up an address");
    return found;
  }

  /// Events are used again, since a step needs hundreds. `idle` are those of one kind.
  Event record(Stream stream, IdleEvents& idle, unsigned flags) {
    use();
    auto event = take_event(idle, flags);
    event->capture = capture_.number();
    check(cudaEventRecord(event->event, native(stream)), "record an event");
    return {std::shared_ptr<void>(event.release(), [this, &idle](void* used) {
      const std::scoped_lock lock(mutex_);
      idle.emplace_back(static_cast<CardEvent*>(used));
    })};
  }
  std::unique_ptr<CardEvent> take_event(IdleEvents& idle, unsigned flags) {
    {
      const std::scoped_lock lock(mutex_);
      if (!idle.empty()) {
        auto event = std::move(idle.back());
        idle.pop_back();
        return event;
      }
    }
    auto event = std::make_unique<CardEvent>();
    check(cudaEventCreateWithFlags(&event->event, flags), "make an event");
    return event;
  }

  int card_;
  std::mutex mutex_;
  std::vector<cudaStream_t> streams_;
  std::set<int> reached_;  // cards
  IdleEvents idle_, idle_timed_;
  cuda::CardCapture capture_;
  PinnedMemory pinned_;
};

/// Returns e.g. "13.0" for 13000.
std::string version_of(int number) {
  return number == 0 ? "" : fmt::format("{}.{}", number / 1000, number % 1000 / 10);
}

}  // namespace

bool have_cuda() { return true; }

CudaVersions cuda_versions() {
  int driver = 0, runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  const std::size_t dnn = cuda::cudnn().get_version(), blas = cuda::cublaslt().get_version();
  return {version_of(driver), version_of(runtime), fmt::format("{}.{}.{}", dnn / 10000, dnn % 10000 / 100, dnn % 100),
          fmt::format("{}.{}.{}", blas / 10000, blas % 10000 / 100, blas % 100)};
}

std::vector<CudaCard> cuda_cards() {
  int count = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  if (code == cudaErrorNoDevice || code == cudaErrorInsufficientDriver) {
    cudaGetLastError();
    return {};
  }
  check(code, "find cards");
  std::vector<CudaCard> cards;
  for (int number = 0; number < count; ++number) {
    cudaDeviceProp found{};
    check(cudaGetDeviceProperties(&found, number), "describe a card");
    cards.push_back({number, found.name, static_cast<Index>(found.totalGlobalMem), found.major, found.minor,
                     found.multiProcessorCount,
                     fmt::format("{:04x}:{:02x}:{:02x}.0", found.pciDomainID, found.pciBusID, found.pciDeviceID)});
  }
  return cards;
}

std::unique_ptr<CudaDevice> make_cuda_device(int card) { return std::make_unique<Card>(card); }

}  // namespace partita
