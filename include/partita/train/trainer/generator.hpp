#pragma once

#include "partita/train/trainer/trainer.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace partita {

struct KeptPlaces;

/// Continues sequences of tokens on one rank of `world`, under any strategy. The keys and values of attention are kept,
/// so that each token is computed once: a pass runs the model on the places that are new. The kept numbers lie where
/// attention runs: heads and samples that are cut over ranks are cut here too. A layout that cuts places (L) is
/// followed as far as a pass has places; a single one lies on one rank.
/// Collective: every rank of `world` calls each member function, with equal arguments.
class Generator {
 public:
  /// TrainerOptions::batch is the number of sequences. No sequence gets more than `places` places, for which memory is
  /// taken now. Throws Error, alike on every rank, as Trainer does, and if the model cannot continue sequences
  /// (Model::at_places).
  /// @pre `world` outlives the generator.
  Generator(const Model& model, Strategy strategy, TrainerOptions options, Communicator& world, Processor processor,
            Index places);
  ~Generator();
  Generator(const Generator&) = delete;
  Generator& operator=(const Generator&) = delete;

  /// Loads the weights of a checkpoint, on any grid. Throws Error, alike on every rank, for a checkpoint of another
  /// model.
  void load(const CheckpointFile& file);

  /// Chooses the token that follows, by the scores of all tokens. It is called for each sequence on one rank.
  using Choice = std::function<std::int32_t(Index sequence, std::span<const double> scores)>;
  /// Runs the next places of all sequences: `tokens` are those of the first sequence, then those of the next one, and
  /// so on, equally many of each. Returns the tokens that `choose` chooses to follow, one for each sequence. They are
  /// not part of the sequences until they are passed on. Throws Error, alike on every rank, for a token that the model
  /// does not know and for more places than there are, and RunFailed if the scores of a sequence are not finite.
  std::vector<std::int32_t> next(std::span<const std::int32_t> tokens, const Choice& choose);
  /// Forgets all places, to begin with others.
  void restart();

  /// The number of places that each sequence has so far.
  Index places_done() const;
  /// The bytes that this rank keeps for the places of the sequences.
  Index kept_bytes() const { return kept_bytes_; }
  /// What runs the passes. Its counters and its memory are those of the generator.
  const Trainer& trainer() const { return trainer_; }

 private:
  std::size_t sequences() const;

  Trainer trainer_;
  const Model model_;
  const Index places_;
  Index vocabulary_ = 0, kept_bytes_ = 0;
  std::unique_ptr<KeptPlaces> kept_;
};

/// How a token is chosen by the scores of all tokens.
struct Sampling {
  double temperature = 0;  ///< 0: the token with the largest score; else tokens are drawn from softmax(scores / it)
  Index most = 0;          ///< tokens of the largest scores that may be drawn; 0: all
  std::uint64_t seed = 1;
};
/// Chooses token number `place` of a sequence. The draw depends on seed, sequence and place alone, so no layout changes
/// it. Of equal scores, the first ones count as larger.
/// @pre The scores are finite.
std::int32_t choose_token(const Sampling& sampling, Index sequence, Index place, std::span<const double> scores);

}  // namespace partita
