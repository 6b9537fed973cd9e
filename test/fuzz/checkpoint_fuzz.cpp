// Arbitrary bytes are either loaded as a checkpoint or refused with an Error.
#include "partita/base/error.hpp"
#include "partita/comm/process_grid.hpp"
#include "partita/train/checkpoint/checkpoint.hpp"
#include "src/comm/threads/threads.hpp"
#include "test/fuzz/memory_file.hpp"

using namespace partita;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const MemoryFile file(data, size);
  try {
    static_cast<void>(checkpoint_attributes(file.path()));
  } catch (const Error&) {
  }
  run_threads(1, [&](Communicator& comm) {
    const ProcessGrid grid(Grid(), comm, {});
    const auto layout = Layout::parse("", {{'F', 3}, {'C', 7}}, Grid());
    const DistTensor weight(layout, 0, DType::f32, std::make_shared<Allocator>(), MemoryClass::weights);
    try {
      load_checkpoint(file.path(), {{"fc/weight", weight}}, grid.world());
    } catch (const Error&) {
    }
  });
  return 0;
}
