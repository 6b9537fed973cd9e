#include "src/backend/gpu/cuda/card_capture.hpp"

#include "partita/base/error.hpp"
#include "src/backend/gpu/cuda/errors.hpp"

#include <algorithm>
#include <utility>

namespace partita::cuda {

namespace {

cudaStream_t stream_of(Stream stream) { return static_cast<cudaStream_t>(stream.native); }

class CardGraph final : public Graph {
 public:
  CardGraph(const CardCapture& capture, Stream origin) : capture_(capture), origin_(origin) {}
  ~CardGraph() override {
    if (executable_ != nullptr) cudaGraphExecDestroy(executable_);
    if (graph_ != nullptr) cudaGraphDestroy(graph_);
    for (const auto& release : released_) release();
  }
  CardGraph(const CardGraph&) = delete;
  CardGraph& operator=(const CardGraph&) = delete;

  /// Ends the capture on its first stream. Messages of the captured streams keep their priority.
  void make(std::vector<CapturedCopy> copies, std::vector<std::function<void()>> released) {
    copies_ = std::move(copies);
    released_ = std::move(released);
    check(cudaStreamEndCapture(stream_of(origin_), &graph_), "end a capture");
    check(cudaGraphInstantiate(&executable_, graph_, cudaGraphInstantiateFlagUseNodePriority), "make a graph");
  }

  void launch(std::span<const OtherSource> others) override {
    for (const CapturedCopy& copy : copies_) {
      const auto other = std::find_if(others.begin(), others.end(),
                                      [&](const OtherSource& each) { return each.captured == copy.from; });
      if (other == others.end()) continue;
      check(cudaGraphExecMemcpyNodeSetParams1D(executable_, copy.node, copy.to, other->now, copy.bytes,
                                               cudaMemcpyDefault),
            "change a copy of a graph");
    }
    capture_.join_streams(origin_);
    check(cudaGraphLaunch(executable_, stream_of(origin_)), "launch a graph");
    capture_.join_streams(origin_);
  }

 private:
  const CardCapture& capture_;
  Stream origin_;
  cudaGraph_t graph_ = nullptr;  // the nodes of copies_ live as long as it does
  cudaGraphExec_t executable_ = nullptr;
  std::vector<CapturedCopy> copies_;
  std::vector<std::function<void()>> released_;
};

/// Returns the last node that a capture has added to a stream.
cudaGraphNode_t last_node(cudaStream_t stream) {
  cudaStreamCaptureStatus status{};
  const cudaGraphNode_t* nodes = nullptr;
  std::size_t count = 0;
#if CUDART_VERSION >= 13000
  check(cudaStreamGetCaptureInfo(stream, &status, nullptr, nullptr, &nodes, nullptr, &count), "look at a capture");
#else
  check(cudaStreamGetCaptureInfo_v2(stream, &status, nullptr, nullptr, &nodes, &count), "look at a capture");
#endif
  require(status == cudaStreamCaptureStatusActive && count == 1, "a captured copy must be the last node of its stream");
  return nodes[0];
}

}  // namespace

AllowAllocation::AllowAllocation() { check(cudaThreadExchangeStreamCaptureMode(&mode_), "allow an allocation"); }
AllowAllocation::~AllowAllocation() { cudaThreadExchangeStreamCaptureMode(&mode_); }

void CardCapture::begin(Stream stream) {
  require(!active(), "a capture must end before the next one begins");
  check(cudaStreamBeginCapture(stream_of(stream), cudaStreamCaptureModeThreadLocal), "begin a capture");
  origin_ = stream;
  number_ = ++count_;
  copies_.clear();
}

std::unique_ptr<Graph> CardCapture::end() {
  require(active(), "a capture must have begun");
  for (const cudaStream_t stream : streams_) {  // a capture ends on the stream where it began
    cudaStreamCaptureStatus status{};
    if (cudaStreamIsCapturing(stream, &status) != cudaSuccess) continue;  // the end below says why
    if (stream != stream_of(origin_) && status == cudaStreamCaptureStatusActive)
      card_.wait(origin_, card_.record({stream}));
  }
  number_ = 0;
  auto graph = std::make_unique<CardGraph>(*this, origin_);
  graph->make(std::exchange(copies_, {}), std::exchange(released_, {}));
  return graph;
}

void CardCapture::add_copy(const void* from, void* to, std::size_t bytes, cudaStream_t stream) {
  copies_.push_back({last_node(stream), from, to, bytes});
}

void CardCapture::join_streams(Stream origin) const {
  for (const cudaStream_t stream : streams_)
    if (stream != stream_of(origin)) card_.wait(origin, card_.record({stream}));
  const Event together = card_.record(origin);
  for (const cudaStream_t stream : streams_)
    if (stream != stream_of(origin)) card_.wait({stream}, together);
}

}  // namespace partita::cuda
