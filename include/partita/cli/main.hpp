#pragma once

#include "partita/model/model.hpp"

#include <functional>

namespace partita {

/// The command line of a program that trains one model: verbs train, evaluate, explain, compare, plan,
/// calibrate, schedule, scale and report; `--help` lists what they take.
/// Returns the exit status: 0, 2 for what the user can correct (one line on standard error, from rank 0 alone), 1 for
/// what he cannot.
///
///     int main(int argc, char** argv) { return partita::main(argc, argv, small_cnn); }
int main(int argc, char** argv, const std::function<Model()>& model);

/// The same with the built-in models, chosen by `--model`: the program `partita`.
int main(int argc, char** argv);

}  // namespace partita
