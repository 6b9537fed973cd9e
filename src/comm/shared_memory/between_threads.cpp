#include "src/comm/shared_memory/between_threads.hpp"

#include "partita/base/error.hpp"
#include "partita/device/memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <bit>

namespace partita {

namespace {

using Shared = std::shared_ptr<const Segments>;

/// Returns segments for all ranks, or null.
Shared reserve(int ranks) {
  const Index bytes = SharedMemory::bytes(ranks);
  std::vector<std::byte*> parts;
  for (int r = 0; r < ranks; ++r) {
    void* at =
        mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    parts.push_back(at == MAP_FAILED ? nullptr : static_cast<std::byte*>(at));
  }
  const bool failed = std::find(parts.begin(), parts.end(), nullptr) != parts.end();
  auto segments = std::make_shared<const Segments>(std::move(parts), bytes);
  return failed ? nullptr : std::move(segments);
}

void wait_for_all(Communicator& threads) {
  std::int32_t all = 1;
  threads.all_reduce(&all, 1, DType::i32, ReduceOp::sum, {}).wait();
}

}  // namespace

std::unique_ptr<SharedMemory> share_between_threads(Communicator& threads) {
  const int size = threads.size();
  if (size == 1) return nullptr;
  // Rank 0 makes the segments; the others copy its pointer. It keeps its own until all have one.
  Shared segments = threads.rank() == 0 ? reserve(size) : nullptr;
  const Shared* address = &segments;
  std::array<std::int32_t, sizeof(address) / sizeof(std::int32_t)> words{};
  if (threads.rank() == 0) words = std::bit_cast<decltype(words)>(address);
  threads.broadcast(words.data(), words.size(), DType::i32, 0, {}).wait();
  if (threads.rank() != 0) segments = *std::bit_cast<const Shared*>(words);
  wait_for_all(threads);
  if (!segments)
    fail("the memory that {} ranks share could not be reserved: it needs {}; start fewer ranks", size,
         print_bytes(size * SharedMemory::bytes(size)));
  auto memory = std::make_unique<SharedMemory>(threads.rank(), size, std::move(segments));
  wait_for_all(threads);
  return memory;
}

}  // namespace partita
