#include "predicted.hpp"

namespace partita::cli {

// Until the cost model is there nothing is predicted.
std::optional<double> predicted_seconds(const Model&, const Strategy&, const Options&) { return std::nullopt; }

}  // namespace partita::cli
