#include "partita/base/activation.hpp"

namespace partita {

namespace {

enum class Needs : std::uint8_t { x, y };

/// What the list says of one activation.
struct Entry {
  std::string_view name;
  Needs needs;
};

#define PARTITA_ENTRY(NAME, NEEDS) {#NAME, Needs::NEEDS},
constexpr Entry entries[]{PARTITA_ACTIVATIONS(PARTITA_ENTRY)};  // by Activation::Kind
#undef PARTITA_ENTRY

}  // namespace

std::span<const Activation::Kind> Activation::kinds() {
#define PARTITA_KIND(NAME, NEEDS) Kind::NAME,
  static constexpr Kind all[]{PARTITA_ACTIVATIONS(PARTITA_KIND)};
#undef PARTITA_KIND
  return all;
}

bool Activation::differentiates_value() const { return entries[static_cast<std::size_t>(kind)].needs == Needs::y; }

std::string_view name(Activation::Kind kind) { return entries[static_cast<std::size_t>(kind)].name; }

}  // namespace partita
