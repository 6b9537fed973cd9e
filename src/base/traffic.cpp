#include "partita/base/traffic.hpp"

#include "partita/base/error.hpp"

namespace partita {

std::string_view name(Verb verb) {
  switch (verb) {
    case Verb::none: return "none";
    case Verb::exchange: return "exchange";
    case Verb::all_reduce: return "all_reduce";
    case Verb::all_gather: return "all_gather";
    case Verb::reduce_scatter: return "reduce_scatter";
    case Verb::broadcast: return "broadcast";
    case Verb::all_to_all: return "all_to_all";
  }
  broken("unknown verb");
}

}  // namespace partita
