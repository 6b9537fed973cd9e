#pragma once

#include "partita/train/data/byte_pairs.hpp"
#include "src/cli/options/options.hpp"
#include "src/cli/options/step_delay.hpp"

#include <limits>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace partita::cli {

/// What a training records and validates while it runs.
struct WatchOptions {
  std::string log;          ///< CSV file with a row per step; "" for none
  std::string tensorboard;  ///< folder for TensorBoard's event files; "" for none
  std::string validate;     ///< "test", or the fraction of the training set to hold out; "" for none
  std::string best;         ///< checkpoint of the epoch with the lowest validation loss; "" for none
  Index patience = 0;       ///< stop after so many epochs without a lower validation loss; 0: never
  /// Compare the replicas of all weights after each so many steps, and at the end; 0: never.
  Index check_replicas = std::numeric_limits<Index>::max();

  bool validates() const { return !validate.empty(); }
  bool validates_on_test() const { return validate == "test"; }
  /// The fraction of the training set that is held out; 0 for none. Throws Error if `validate` is neither "test" nor a
  /// number between 0 and 1.
  double held_out() const;
  /// Throws Error for a bad value, and for an option that has no effect without --validate.
  void check() const;
};

/// Adds --tokenizer.
void add_tokenizer(boost::program_options::options_description& group, std::string& file);

/// The options of `train` and `evaluate`.
struct TrainOptions : Options {
  std::string verb = "train";  ///< or "evaluate"
  std::string data_dir;
  Index samples = 0;                       ///< size of the synthetic data set; 0: the default size
  std::string tokenizer;                   ///< file of a vocabulary of byte pairs; "" if tokens are bytes
  std::shared_ptr<const BytePairs> pairs;  ///< what it holds; null without one
  double mask = 0;                         ///< share of tokens to guess, if it is given (mask_share)
  std::int32_t separator = 0;              ///< token that ends a document, if it is given (separates)
  std::string save, load, trace;           ///< files; "" for none
  std::vector<StepDelay> delays;           ///< before each step, on purpose
  WatchOptions watch;
  bool new_run = false;            ///< take weights alone from the checkpoint
  std::vector<std::string> skip;   ///< with new_run: patterns of layers whose weights are not loaded
  bool overwrite = false;          ///< replace a checkpoint of another run
  Index save_every = 0;            ///< steps between checkpoints; 0: only after epochs
  Index keep = 1;                  ///< checkpoints that --save leaves there
  std::string time_limit;          ///< as it is given; "" for none
  double seconds = 0;              ///< what that means
  std::string slurm;               ///< write this script for sbatch, and train in its jobs; "" for none
  int ranks_per_node = 0;          ///< with slurm; 0: Slurm decides
  std::string sbatch;              ///< with slurm: more options of sbatch, separated by blanks
  std::string write_options;       ///< the file for all options of this run; "" for none
  std::string options_text;        ///< what goes into that file
  bool test = true;                ///< evaluate at the end
  bool profile = false;            ///< print where the time goes
  std::vector<std::string> words;  ///< the command line, with the name of the program
  std::set<std::string> given;     ///< names of the options that are given, or turned off

  /// Reads the vocabulary that --tokenizer names. A built-in model then has its tokens, unless --vocabulary says how
  /// many.
  void read_tokenizer();
  /// Returns the share of tokens that the model guesses from those around them (mask_tokens); 0: none.
  double mask_share() const;
  /// True if a token separates the documents of a sample (separate_documents).
  bool separates() const { return given.contains("separator"); }
  /// Adds the options of the verb.
  void add_to(boost::program_options::options_description& all, const Program& program);
  void check(const Program& program, const CommandLine& line);
};

}  // namespace partita::cli
