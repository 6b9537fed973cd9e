#pragma once

#include "partita/model/model.hpp"

#include <functional>

namespace partita {

/// Runs the command line of a program that trains one model. The verbs are train, evaluate, explain, compare, plan,
/// calibrate, schedule, scale, report and info; `VERB --help` lists their options.
/// Returns the exit status: 0 for success, 2 for an error that the user can correct (rank 0 prints one line on standard
/// error), 3 if a run cannot go on or standard output cannot be written, 1 for any other error.
///
///     int main(int argc, char** argv) { return partita::main(argc, argv, small_cnn); }
int main(int argc, char** argv, const std::function<Model()>& model);

/// Runs the command line of the program `partita`, where `--model` chooses a built-in model.
int main(int argc, char** argv);

}  // namespace partita
