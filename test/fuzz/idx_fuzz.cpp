// Arbitrary bytes, plain or gzipped, are either read as an IDX file of images or refused with an Error.
#include "partita/base/error.hpp"
#include "partita/train/data/dataset.hpp"
#include "test/fuzz/memory_file.hpp"

#include <numeric>

using namespace partita;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static constexpr std::uint8_t three_labels[]{0, 0, 8, 1, 0, 0, 0, 3, 0, 2, 1};
  const MemoryFile images(data, size), labels(three_labels, sizeof three_labels);
  try {
    const auto set = open_idx(images.path(), labels.path(), 0.3, 0.3);
    const Box all(set->sample());
    constexpr Index enough = 1 << 20;
    if (all.volume() > enough) return 0;
    std::vector<Index> samples(static_cast<std::size_t>(set->size()));
    std::iota(samples.begin(), samples.end(), Index{0});
    set->hold(samples, all);
    std::vector<float> pixels(static_cast<std::size_t>(all.volume()));
    for (const Index sample : samples) set->read_f32(sample, all, pixels);
  } catch (const Error&) {
  }
  try {
    static_cast<void>(open_idx(labels.path(), images.path(), 0.3, 0.3));
  } catch (const Error&) {
  }
  return 0;
}
