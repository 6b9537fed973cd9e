#pragma once

namespace partita::cli {

/// Runs the verb `report`: writes an HTML page that shows the JSON results of train, scale and compare. It has options
/// of its own and needs one process only. Returns the exit status.
int report(int argc, char** argv);

}  // namespace partita::cli
