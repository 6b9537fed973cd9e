#include "partita/train/data/augment.hpp"

#include "partita/base/philox.hpp"

#include <algorithm>
#include <numeric>

namespace partita {

namespace {

template <class T>
void shuffle_entries(std::span<T> order, std::uint64_t seed, Index epoch) {
  const Random random(seed, hash_text("shuffle"), static_cast<std::uint64_t>(epoch));
  std::iota(order.begin(), order.end(), T{0});
  for (auto i = static_cast<Index>(order.size()) - 1; i > 0; --i) {
    const auto j = static_cast<Index>(random.uniform(i) * static_cast<double>(i + 1));
    std::swap(order[i], order[j]);
  }
}

}  // namespace

void shuffle(std::span<Index> order, std::uint64_t seed, Index epoch) { shuffle_entries(order, seed, epoch); }
void shuffle(std::span<std::uint32_t> order, std::uint64_t seed, Index epoch) { shuffle_entries(order, seed, epoch); }

std::vector<Index> shuffled(Index n, std::uint64_t seed, Index epoch) {
  std::vector<Index> order(static_cast<std::size_t>(n));
  shuffle(order, seed, epoch);
  return order;
}

Box source_box(const Shape& sample, const Box& box, const Augmentation& augmentation) {
  Box source = box;
  if (box.empty()) return source;
  for (int d = 1; d < box.dims(); ++d) {
    if (augmentation.flip && sample.name(d) == 'W') {
      const Index extent = sample.extent(d);
      source[d] = {std::min(box[d].lo, extent - box[d].hi), std::max(box[d].hi, extent - box[d].lo)};
    }
    source[d] =
        intersect({source[d].lo - augmentation.shift, source[d].hi + augmentation.shift}, {0, sample.extent(d)});
  }
  return source;
}

namespace {

/// Maps a target coordinate along one dimension to the source coordinate that fills it.
struct Move {
  bool mirror = false;
  Index extent = 0, shift = 0;
  Index source(Index target) const { return (mirror ? extent - 1 - target : target) - shift; }
};

std::array<Move, max_dims> draw_moves(const Shape& shape, const Augmentation& augmentation, const Random& random,
                                      Index sample) {
  std::array<Move, max_dims> moves;
  for (int d = 0; d < shape.dims(); ++d) {
    auto& move = moves[d];
    move.extent = shape.extent(d);
    if (d == 0) continue;  // channels stay
    const double u = random.uniform(sample * max_dims + d);
    move.shift = static_cast<Index>(u * static_cast<double>(2 * augmentation.shift + 1)) - augmentation.shift;
    move.mirror = augmentation.flip && shape.name(d) == 'W' && (random.bits(sample * max_dims) & 1U) != 0;
  }
  return moves;
}

constexpr Index outside = -1;

/// Returns the element of the source, `stride` apart, that fills each coordinate of a dimension of the target, counted
/// from the first one of the source; `outside` for those that none fills.
std::vector<Index> sources(const Interval& target, const Interval& source, Index stride, const Move& move) {
  std::vector<Index> all;
  for (Index at = target.lo; at < target.hi; ++at) {
    const Index from = move.source(at);
    all.push_back(from < source.lo || from >= source.hi ? outside : (from - source.lo) * stride);
  }
  return all;
}

void read_as(const Dataset& data, int input, Index sample, const Box& box, std::span<float> out) {
  data.read_input_f32(input, sample, box, out);
}
void read_as(const Dataset& data, int input, Index sample, const Box& box, std::span<double> out) {
  data.read_input(input, sample, box, out);
}

}  // namespace

template <class T>
void read_augmented(const Dataset& data, Index sample, const Box& box, const Augmentation& augmentation,
                    std::uint64_t seed, Index epoch, std::span<T> out, int input) {
  if (augmentation.shift == 0 && !augmentation.flip) return read_as(data, input, sample, box, out);
  const Shape shape = data.inputs()[input].shape;
  const Box source = source_box(shape, box, augmentation);
  std::vector<T> pixels(static_cast<std::size_t>(source.volume()));
  read_as(data, input, sample, source, std::span<T>(pixels));
  const auto moves =
      draw_moves(shape, augmentation, Random(seed, hash_text("augment"), static_cast<std::uint64_t>(epoch)), sample);
  const int last = box.dims() - 1;
  std::array<std::vector<Index>, max_dims> from;
  Index stride = 1;
  for (int d = last; d >= 0; --d) {
    from[d] = sources(box[d], source[d], stride, moves[d]);
    stride *= source.extent(d);
  }
  std::array<std::size_t, max_dims> at{};  // the row
  const std::vector<Index>& in_row = from[last];
  for (std::size_t begin = 0; begin < out.size(); begin += in_row.size()) {
    Index row = 0;
    for (int d = 0; d < last && row != outside; ++d) row = from[d][at[d]] == outside ? outside : row + from[d][at[d]];
    for (std::size_t i = 0; i < in_row.size(); ++i)
      out[begin + i] = row == outside || in_row[i] == outside ? T{0} : pixels[row + in_row[i]];
    for (int d = last - 1; d >= 0 && ++at[d] == from[d].size(); --d) at[d] = 0;
  }
}

template void read_augmented(const Dataset&, Index, const Box&, const Augmentation&, std::uint64_t, Index,
                             std::span<float>, int);
template void read_augmented(const Dataset&, Index, const Box&, const Augmentation&, std::uint64_t, Index,
                             std::span<double>, int);

}  // namespace partita
