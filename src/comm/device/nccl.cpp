#include "src/comm/device/nccl.hpp"

#if PARTITA_HAVE_NCCL

#include "src/comm/device/nccl_communicator.hpp"
#include "src/system/loaded_library.hpp"

#include <nccl.h>

#include <bit>
#include <cstdlib>

namespace partita {

namespace {

/// The functions of NCCL that we call; they have its names without the prefix.
struct Calls {
  decltype(&ncclGetVersion) get_version = nullptr;
  decltype(&ncclGetErrorString) get_error_string = nullptr;
  decltype(&ncclGetLastError) get_last_error = nullptr;
  decltype(&ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&ncclCommInitRankConfig) comm_init_rank_config = nullptr;
  decltype(&ncclCommSplit) comm_split = nullptr;
  decltype(&ncclCommGetAsyncError) comm_get_async_error = nullptr;
  decltype(&ncclCommFinalize) comm_finalize = nullptr;
  decltype(&ncclCommDestroy) comm_destroy = nullptr;
  decltype(&ncclCommAbort) comm_abort = nullptr;
  decltype(&ncclGroupStart) group_start = nullptr;
  decltype(&ncclGroupEnd) group_end = nullptr;
  decltype(&ncclSend) send = nullptr;
  decltype(&ncclRecv) recv = nullptr;
  decltype(&ncclAllReduce) all_reduce = nullptr;
  decltype(&ncclAllGather) all_gather = nullptr;
  decltype(&ncclReduceScatter) reduce_scatter = nullptr;
  decltype(&ncclReduce) reduce = nullptr;
  decltype(&ncclBroadcast) broadcast = nullptr;
};

/// Returns NCCL, which the first call loads. Throws Error if it cannot be loaded.
const Calls& nccl() {
  static const Calls loaded = [] {
    const LoadedLibrary library({"libnccl.so." + std::to_string(NCCL_MAJOR)}, "messages by NCCL");
    Calls calls;
    library.find("ncclGetVersion", calls.get_version);
    library.find("ncclGetErrorString", calls.get_error_string);
    library.find("ncclGetLastError", calls.get_last_error);
    library.find("ncclGetUniqueId", calls.get_unique_id);
    library.find("ncclCommInitRankConfig", calls.comm_init_rank_config);
    library.find("ncclCommSplit", calls.comm_split);
    library.find("ncclCommGetAsyncError", calls.comm_get_async_error);
    library.find("ncclCommFinalize", calls.comm_finalize);
    library.find("ncclCommDestroy", calls.comm_destroy);
    library.find("ncclCommAbort", calls.comm_abort);
    library.find("ncclGroupStart", calls.group_start);
    library.find("ncclGroupEnd", calls.group_end);
    library.find("ncclSend", calls.send);
    library.find("ncclRecv", calls.recv);
    library.find("ncclAllReduce", calls.all_reduce);
    library.find("ncclAllGather", calls.all_gather);
    library.find("ncclReduceScatter", calls.reduce_scatter);
    library.find("ncclReduce", calls.reduce);
    library.find("ncclBroadcast", calls.broadcast);
    return calls;
  }();
  return loaded;
}

void check(ncclResult_t code, std::string_view what) {
  if (code == ncclSuccess) return;
  throw DeviceError(
      fmt::format("NCCL cannot {}: {} ({})", what, nccl().get_error_string(code), nccl().get_last_error(nullptr)));
}

ncclDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::f64: return ncclFloat64;
    case DType::f32: return ncclFloat32;
    case DType::bf16: return ncclBfloat16;
    case DType::f16: return ncclFloat16;
    case DType::i32: return ncclInt32;
  }
  broken("unknown dtype");
}

std::size_t size(Index count) { return static_cast<std::size_t>(count); }
cudaStream_t native(Stream stream) { return static_cast<cudaStream_t>(stream.native); }

// Halos and gradients have communicators of their own, whose kernels run at the same time. NCCL then keeps the order in
// which the CPU starts them, which is the same on all ranks, so that they cannot wait for each other in a circle. It is
// set before main() begins, because setenv() must not run beside other threads.
[[maybe_unused]] const int order_is_kept = setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", /*overwrite=*/0);

class Nccl final : public NcclLibrary {
 public:
  Id make_id() override {
    ncclUniqueId id{};
    check(nccl().get_unique_id(&id), "start");
    return std::bit_cast<Id>(id);
  }
  Comm start(const Id& id, Communicator& host) override {
    ncclComm_t comm = nullptr;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;  // whatever NCCL_COMM_BLOCKING says: calls would answer that they are in progress
    config.splitShare = 1;
    check(nccl().comm_init_rank_config(&comm, host.size(), std::bit_cast<ncclUniqueId>(id), host.rank(), &config),
          "connect the ranks");
    return comm;
  }
  Comm split(Comm comm, int color, int key) override {
    ncclComm_t part = nullptr;
    check(nccl().comm_split(of(comm), color, key, &part, /*config=*/nullptr), "split a communicator");
    return part;
  }
  std::string error(Comm comm) override {
    ncclResult_t found = ncclSuccess;
    nccl().comm_get_async_error(of(comm), &found);
    return found == ncclSuccess || found == ncclInProgress ? "" : nccl().get_error_string(found);
  }
  void end(Comm comm) override {
    check(nccl().comm_finalize(of(comm)), "end a communicator");
    nccl().comm_destroy(of(comm));
  }
  void abort(Comm comm) override { nccl().comm_abort(of(comm)); }

  void group_start() override { check(nccl().group_start(), "start a group"); }
  void group_end() override { check(nccl().group_end(), "start messages"); }
  void send(const void* from, Index count, DType dtype, int peer, Comm comm, Stream stream) override {
    check(nccl().send(from, size(count), type_of(dtype), peer, of(comm), native(stream)), "send");
  }
  void recv(void* to, Index count, DType dtype, int peer, Comm comm, Stream stream) override {
    check(nccl().recv(to, size(count), type_of(dtype), peer, of(comm), native(stream)), "receive");
  }
  void all_reduce(void* data, Index count, DType dtype, ReduceOp op, Comm comm, Stream stream) override {
    check(nccl().all_reduce(data, data, size(count), type_of(dtype), op == ReduceOp::sum ? ncclSum : ncclMax, of(comm),
                            native(stream)),
          "sum");
  }
  void all_gather(const void* local, void* all, Index count, DType dtype, Comm comm, Stream stream) override {
    check(nccl().all_gather(local, all, size(count), type_of(dtype), of(comm), native(stream)), "gather");
  }
  void reduce_scatter(const void* all, void* local, Index count, DType dtype, Comm comm, Stream stream) override {
    check(nccl().reduce_scatter(all, local, size(count), type_of(dtype), ncclSum, of(comm), native(stream)), "sum");
  }
  void reduce(const void* from, void* to, Index count, DType dtype, int root, Comm comm, Stream stream) override {
    check(nccl().reduce(from, to, size(count), type_of(dtype), ncclSum, root, of(comm), native(stream)), "sum");
  }
  void broadcast(const void* from, void* to, Index count, DType dtype, int root, Comm comm, Stream stream) override {
    check(nccl().broadcast(from, to, size(count), type_of(dtype), root, of(comm), native(stream)), "broadcast");
  }

 private:
  static ncclComm_t of(Comm comm) { return static_cast<ncclComm_t>(comm); }
};

}  // namespace

std::string nccl_version() {
  int version = 0;
  nccl().get_version(&version);
  return fmt::format("{}.{}.{}", version / 10000, version % 10000 / 100, version % 100);
}

bool have_nccl() { return true; }

bool nccl_orders_communicators() {
  constexpr int first = 22600;
  int version = 0;
  nccl().get_version(&version);
  return version >= first;
}

std::shared_ptr<Communicator> make_nccl(Communicator& host, Device& device, std::chrono::milliseconds limit) {
  static Nccl library;
  return make_nccl(host, device, library, limit);
}

}  // namespace partita

#else

namespace partita {

std::string nccl_version() { return ""; }

bool have_nccl() { return false; }

bool nccl_orders_communicators() { return true; }

std::shared_ptr<Communicator> make_nccl(Communicator&, Device&, std::chrono::milliseconds) {
  fail("this build lacks NCCL: install it beside the CUDA toolkit and configure again");
}

}  // namespace partita

#endif
