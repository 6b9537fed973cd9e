#include "src/comm/device/nccl_communicator.hpp"

#include "src/comm/blocks.hpp"
#include "src/comm/device/nccl_watch.hpp"
#include "src/comm/job/patience.hpp"
#include "src/comm/job/watchdog.hpp"
#include "src/device/capture.hpp"

#include <algorithm>
#include <exception>

namespace partita {

namespace {

/// What the communicators of one rank share: its device, the library, the stream of all messages, and a thread that
/// ends the job if a message is lost.
class NcclRank {
 public:
  NcclRank(Device& its_device, NcclLibrary& its_library, std::chrono::milliseconds limit)
      : device(its_device),
        library(its_library),
        stream(its_device.make_stream(Priority::high)),
        watch(its_library, its_device),
        thread_(limit.count() > 0 ? limit / NcclWatch::patience : std::chrono::seconds(1), [this, limit] {
          const auto [found, error] = watch.look();
          if (found == NcclWatch::Finding::failed) throw DeviceError(fmt::format("NCCL has failed: {}", error));
          if (found == NcclWatch::Finding::lost && limit.count() > 0)
            throw DeviceError(fmt::format(waited_too_long, limit.count() / 1000));
        }) {}

  Device& device;
  NcclLibrary& library;
  Stream stream;
  NcclWatch watch;

 private:
  Periodic thread_;
};

/// A communication in the stream of messages.
class Enqueued final : public Request::State {
 public:
  explicit Enqueued(std::shared_ptr<NcclRank> me) : me_(std::move(me)), done_(me_->device.record(me_->stream)) {
    const Capture* capture = me_->device.capture();
    if (capture == nullptr || !capture->active()) me_->watch.started(done_);
  }
  void wait(Stream stream) override { me_->device.wait(stream, done_); }

 private:
  std::shared_ptr<NcclRank> me_;
  Event done_;
};

class NcclCommunicator final : public Communicator {
 public:
  /// `connect()` returns NCCL's communicator of the ranks of `host`. Collective: every rank of `host` calls it.
  template <class Connect>
  NcclCommunicator(std::shared_ptr<NcclRank> me, std::shared_ptr<Communicator> host, Connect&& connect)
      : me_(std::move(me)), host_(std::move(host)) {
    const NcclWatch::Connecting connecting(me_->watch);  // NCCL would wait without end for a rank that has died
    comm_ = connect();
    me_->watch.add(comm_);
  }
  /// Ends after its messages, and waits for the other ranks, without a time limit: one of them may still write files. A
  /// rank that has failed waits for nobody.
  ~NcclCommunicator() override {
    me_->watch.remove(comm_);
    if (std::uncaught_exceptions() != exceptions_) {
      me_->library.abort(comm_);
      return;
    }
    try {
      me_->device.finish(me_->stream);
      me_->library.end(comm_);
    } catch (const std::exception&) {
      me_->library.abort(comm_);
    }
  }
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  bool captures() const override { return true; }
  void launched() override { me_->watch.started(me_->device.record(me_->stream)); }

  Request exchange(std::span<const Send> sends, std::span<const Recv> recvs, Stream stream) override {
    if (sends.empty() && recvs.empty()) return {};
    return grouped(stream, [&] {
      for (const auto& [peer, data] : sends) send(data, peer);
      for (const auto& [peer, data] : recvs) recv(data, peer);
    });
  }

  Request all_reduce(void* data, Index count, DType dtype, ReduceOp op, Stream stream) override {
    return grouped(stream, [&] {
      if (count > 0) me_->library.all_reduce(data, count, dtype, op, comm_, me_->stream);
    });
  }

  Request all_gather(const void* local, void* all, std::span<const Index> counts, DType dtype, Stream stream) override {
    return grouped(stream, [&] {
      if (equal(counts)) return me_->library.all_gather(local, all, counts[0], dtype, comm_, me_->stream);
      each_block(all, counts, dtype, [&](int root, void* block, Index count) {
        me_->library.broadcast(root == rank() ? local : block, block, count, dtype, root, comm_, me_->stream);
      });
    });
  }

  Request reduce_scatter(const void* all, void* local, std::span<const Index> counts, DType dtype,
                         Stream stream) override {
    return grouped(stream, [&] {
      if (equal(counts)) return me_->library.reduce_scatter(all, local, counts[0], dtype, comm_, me_->stream);
      each_block(const_cast<void*>(all), counts, dtype, [&](int root, const void* block, Index count) {
        me_->library.reduce(block, root == rank() ? local : nullptr, count, dtype, root, comm_, me_->stream);
      });
    });
  }

  Request broadcast(void* data, Index count, DType dtype, int root, Stream stream) override {
    return grouped(stream, [&] {
      if (count > 0) me_->library.broadcast(data, data, count, dtype, root, comm_, me_->stream);
    });
  }

  Request all_to_all(const void* send_data, std::span<const Index> send_counts, void* recv_data,
                     std::span<const Index> recv_counts, DType dtype, Stream stream) override {
    const auto out = blocks_of(send_data, send_counts, dtype);
    const auto in = blocks_of(recv_data, recv_counts, dtype);
    return grouped(stream, [&] {
      if (const auto own = out[rank()]; !own.empty())
        me_->device.copy(own.data(), in[rank()].data(), own.size(), me_->stream);
      for (int peer = 0; peer < size(); ++peer) {
        if (peer == rank()) continue;
        send(out[peer], peer);
        recv(in[peer], peer);
      }
    });
  }

  std::shared_ptr<Communicator> split(int color, int key) override {
    return std::make_shared<NcclCommunicator>(me_, host_->split(color, key), [&] {
      me_->device.finish(me_->stream);
      return me_->library.split(comm_, color, key);
    });
  }

 private:
  static bool equal(std::span<const Index> counts) {
    return counts[0] > 0 && std::all_of(counts.begin(), counts.end(), [&](Index count) { return count == counts[0]; });
  }

  /// Runs `start`, whose calls come after what is in the stream now.
  template <class Start>
  Request grouped(Stream stream, Start&& start) {
    me_->device.wait(me_->stream, me_->device.record(stream));
    me_->library.group_start();
    start();
    me_->library.group_end();
    return Request(std::make_unique<Enqueued>(me_), stream);
  }

  // Every message is sent as 16-bit numbers: all types have an even number of bytes.
  void send(std::span<const std::byte> data, int peer) {
    if (!data.empty())
      me_->library.send(data.data(), static_cast<Index>(data.size()) / 2, DType::f16, peer, comm_, me_->stream);
  }
  void recv(std::span<std::byte> data, int peer) {
    if (!data.empty())
      me_->library.recv(data.data(), static_cast<Index>(data.size()) / 2, DType::f16, peer, comm_, me_->stream);
  }

  /// Calls visit(rank, block, elements) for each rank's block that is not empty.
  template <class Visit>
  void each_block(void* all, std::span<const Index> counts, DType dtype, Visit&& visit) const {
    const auto blocks = blocks_of(all, counts, dtype);
    for (int r = 0; r < size(); ++r)
      if (const Index count = counts[r]; count > 0) visit(r, blocks[r].data(), count);
  }

  std::shared_ptr<NcclRank> me_;
  std::shared_ptr<Communicator> host_;
  NcclLibrary::Comm comm_ = nullptr;
  int exceptions_ = std::uncaught_exceptions();
};

}  // namespace

std::shared_ptr<Communicator> make_nccl(Communicator& host, Device& device, NcclLibrary& library,
                                        std::chrono::milliseconds limit) {
  NcclLibrary::Id id{};
  agree_or_throw(host, [&] {
    if (host.rank() == 0) id = library.make_id();
  });
  host.broadcast(id.data(), static_cast<Index>(id.size()), DType::i32, 0, {}).wait();
  return std::make_shared<NcclCommunicator>(std::make_shared<NcclRank>(device, library, limit), borrow(host),
                                            [&] { return library.start(id, host); });
}

}  // namespace partita
