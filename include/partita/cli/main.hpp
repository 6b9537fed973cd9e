#pragma once

#include "partita/model/model.hpp"
#include "partita/strategies/declare/strategy.hpp"

#include <functional>

namespace partita {

/// Runs the command line of a program that trains one model. `--help` lists the verbs, and `VERB --help` the options of
/// a verb.
/// Returns the exit status: 0 for success, 2 for an error that the user can correct (rank 0 prints one line on standard
/// error), 3 if a run cannot go on or standard output cannot be written, 1 for any other error.
///
///     int main(int argc, char** argv) { return partita::main(argc, argv, small_cnn); }
int main(int argc, char** argv, const std::function<Model()>& model);

/// The same for a program that declares its strategy too. All verbs that take a strategy then take this one, as if it
/// were a file with the name `declared`: `--grid` and `--rule` change it, and `--strategy FILE` takes another. With
/// `--strategy none` the program has no strategy, as without the last parameter.
///
///     int main(int argc, char** argv) { return partita::main(argc, argv, small_cnn, hybrid); }
int main(int argc, char** argv, const std::function<Model()>& model, const std::function<Strategy()>& strategy);

/// Runs the command line of the program `partita`, where `--model` chooses a built-in model.
int main(int argc, char** argv);

}  // namespace partita
