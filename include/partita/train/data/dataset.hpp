#pragma once

#include "partita/device/tensor.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace partita {

class BytePairs;

/// One of the inputs of a sample.
struct SampleInput {
  std::string name;  ///< of the model's input layer; the only input of a set fits the only one of a model by any name
  Shape shape;       ///< of one sample, without N
  Index vocabulary = 0;  ///< if it is tokens: the number of different ones; 0 if it is values
};

/// What is read of one input: how many samples, and the box of each.
struct SampleShare {
  Index samples = 0;
  Box box;
};

/// A data set: samples and their targets (one label, labels per spatial position, or values). Both are read by global
/// sample number and box, so a rank reads only its own part of its own samples. To use your own data, derive from this
/// class.
class Dataset {
 public:
  virtual ~Dataset() = default;
  /// The name in error messages. open_dataset() sets it to the name on the command line unless the data set did.
  const std::string& name() const { return name_; }
  void set_name(std::string name) { name_ = std::move(name); }
  /// The sample's number in error messages. A part of a data set returns the number in the whole set.
  virtual Index number(Index sample) const { return sample; }
  /// Shape of one sample, without N: e.g. C=1 H=28 W=28.
  virtual Shape sample() const = 0;
  /// Number of samples.
  virtual Index size() const = 0;
  /// Number of classes: labels are 0 to classes() - 1. 0 if the targets are values.
  virtual Index classes() const = 0;
  /// If samples are tokens, for an input with Input::tokens: the number of different ones, which are 0 to vocabulary()
  /// - 1. 0 if samples are values.
  virtual Index vocabulary() const { return 0; }
  /// Announces what will be read next: the samples of an epoch, and the box of each (dimensions as in `sample`). A data
  /// set that reads from a file can then hold just that. Later calls of `read` may only ask for these samples, and for
  /// boxes inside this one.
  virtual void hold(std::span<const Index> samples, const Box& box) = 0;
  /// Reads sample `sample` inside `box`, in the logical row-major order of the box (C H W). Values are scaled to about
  /// unit variance. A run rounds them to its data type, and refuses a number beyond the range of that type.
  virtual void read(Index sample, const Box& box, std::span<double> out) const = 0;
  /// As `read`, for runs in f32. The default rounds what `read` returns. A set whose numbers are no more
  /// exact than f32 can define it too, which saves time and half of the memory of one sample.
  virtual void read_f32(Index sample, const Box& box, std::span<float> out) const;
  /// The inputs of a sample. The default is one, of sample() and vocabulary(). For several, derive from
  /// DatasetOfInputs.
  virtual std::vector<SampleInput> inputs() const;
  /// As hold(), read(), read_f32() and bytes_to_hold(), for the input of that number. The defaults call these.
  virtual void hold_input(int input, std::span<const Index> samples, const Box& box);
  virtual void read_input(int input, Index sample, const Box& box, std::span<double> out) const;
  virtual void read_input_f32(int input, Index sample, const Box& box, std::span<float> out) const;
  virtual Index bytes_to_hold_inputs(std::span<const SampleShare> inputs, Index targets, const Box& target_box) const;
  /// Shape of one sample's target, without N: no dimension for one label, spatial dimensions for one label per
  /// position, C ... for values.
  virtual Shape target() const { return {}; }
  /// As `hold`, for targets. The samples may differ from those of `hold`.
  virtual void hold_targets(std::span<const Index> /*samples*/, const Box& /*box*/) {}
  /// Returns the bytes that the data set keeps in memory now, for reports and limits of memory.
  virtual Index held_bytes() const { return 0; }
  /// Returns the bytes that the data set will keep in memory once `samples` samples inside `box` and `targets` targets
  /// inside `target_box` are announced, each once. A training that would exceed the memory limit is refused with it
  /// before it starts. The default is right for sets that keep the same bytes all the time.
  virtual Index bytes_to_hold(Index /*samples*/, const Box& /*box*/, Index /*targets*/,
                              const Box& /*target_box*/) const {
    return held_bytes();
  }
  /// Returns false if `hold` and `hold_targets` do nothing. They are then not called, which saves the lists of samples.
  virtual bool needs_announcement() const { return true; }
  /// Reads the target inside `box`, in the box's logical row-major order, if targets are values: for sets whose
  /// classes() is 0.
  virtual void read_target(Index sample, const Box& box, std::span<double> out) const;
  /// As `read_target`, if targets are labels. The default returns `label`.
  virtual void read_labels(Index sample, const Box& box, std::span<std::int32_t> out) const;
  /// The sample's class, for sets with one label per sample. Valid for every sample, held or not.
  virtual std::int32_t label(Index sample) const;
  /// As classes(), without the label that a loss ignores, which need not be a class. The default returns classes().
  virtual Index classes_beside(Index /*ignored*/) const { return classes(); }
  /// Names the first sample whose label is `classes` or more and not `ignored`, for error messages, e.g. "sample 5 of
  /// 'labels.gz' has the label 77". The default returns "": the data set has no such sample, or does not know without
  /// reading all.
  virtual std::string label_beyond(Index classes, std::optional<Index> ignored = std::nullopt) const;

 private:
  std::string name_;
  friend class HeldData;
  std::shared_ptr<const void> counted_;  // while it lives, a trainer counts the bytes that the set holds
};

/// A data set whose samples have several inputs: see Dataset::inputs(). Its boxes and values are those of one input.
class DatasetOfInputs : public Dataset {
 public:
  std::vector<SampleInput> inputs() const override = 0;
  void hold_input(int input, std::span<const Index> samples, const Box& box) override = 0;
  void read_input(int input, Index sample, const Box& box, std::span<double> out) const override = 0;
  /// Rounds what read_input() returns.
  void read_input_f32(int input, Index sample, const Box& box, std::span<float> out) const override;
  /// Returns held_bytes(): right for sets that keep the same bytes all the time.
  Index bytes_to_hold_inputs(std::span<const SampleShare> inputs, Index targets, const Box& target_box) const override;
  // Those of the first input.
  Shape sample() const final { return inputs().front().shape; }
  Index vocabulary() const final { return inputs().front().vocabulary; }
  void hold(std::span<const Index> samples, const Box& box) final { hold_input(0, samples, box); }
  void read(Index sample, const Box& box, std::span<double> out) const final { read_input(0, sample, box, out); }
  void read_f32(Index sample, const Box& box, std::span<float> out) const final { read_input_f32(0, sample, box, out); }
};

/// Returns for each of a model's inputs, by name, the number of that of the data set. Throws Error if they are not the
/// same inputs. One input fits one input of any name.
std::vector<int> match_inputs(const Dataset& data, std::span<const std::string> model_inputs);

/// As data.read_labels(). Throws Error that names the data set, the sample, the place, the label and the classes if one
/// of the labels is neither a class nor `ignored`.
void read_checked_labels(const Dataset& data, Index sample, const Box& box, std::span<std::int32_t> out,
                         std::optional<Index> ignored = std::nullopt);

/// Opens images and labels in the IDX format (MNIST's), gzipped or not. Opening reads headers and labels. `hold`
/// streams through the pixels and keeps the announced ones as bytes. Pixels become (p/255 - mean)/deviation. Throws
/// Error that names the file if it is missing, unreadable, truncated or not an IDX file.
std::unique_ptr<Dataset> open_idx(const std::string& images, const std::string& labels, double mean, double deviation);

/// Opens Fashion-MNIST's training or test set from `folder`; "" is where Debian's package dataset-fashion-mnist
/// installs it. Throws Error that names the package if the files are missing.
std::unique_ptr<Dataset> open_fashion_mnist(const std::string& folder, bool training);

/// Opens text as tokens, which are its bytes. A sample is the next `length` bytes, and the label of each is the byte
/// that follows it. `path` is a file, of which the last tenth is the test set, or a folder with training.txt and
/// test.txt. Ranks read only what they need, when they need it. Throws Error if the file cannot be read or is too short
/// for a sample.
std::unique_ptr<Dataset> open_text(const std::string& path, Index length, bool training);
/// The same with tokens of byte pairs. The text is encoded now, in one pass with bounded memory, and its tokens are
/// held, in 2 bytes each, or 4 if there are more than 65536 different ones (Dataset::held_bytes). `progress` is called
/// on the way with the bytes that are done, and all.
std::unique_ptr<Dataset> open_text(const std::string& path, Index length, bool training, const BytePairs& pairs,
                                   const std::function<void(Index done, Index all)>& progress = {});

/// Which tokens a model has to guess from those around them.
struct MaskedTokens {
  double share = 0.15;          ///< of all tokens: for how many the label is the token. More than 0, and at most 1
  std::int32_t ignored = -100;  ///< the label of the other places (CrossEntropy::ignored)
  std::uint64_t seed = 0;
};
/// Hides tokens of a data set, which become labels: of ten tokens to guess, eight are shown as a further token, the
/// mask, which is the last one of the vocabulary; one is shown as any token, and one as it is (Devlin et al. 2019). The
/// choice is the same in each epoch. Throws Error if the data set has no sequences of tokens, or must be told what will
/// be read (Dataset::needs_announcement), or for a share that is none.
std::unique_ptr<Dataset> mask_tokens(std::unique_ptr<Dataset> tokens, const MaskedTokens& options = {});

/// Adds an input "segments" to the sequences of a data set: for each place the number of its document in the sample,
/// from 0 on (Model::attention). The token `separator` ends a document. The tokens are the input "tokens", and may then
/// be masked. Throws Error if the data set has no sequences of tokens, or must be told what will be read
/// (Dataset::needs_announcement), or if the separator is no token.
std::unique_ptr<Dataset> separate_documents(std::unique_ptr<Dataset> tokens, std::int32_t separator);

/// Opens an HDF5 file with two data sets. "samples" is N C D H W (or has fewer spatial dimensions), of any number type,
/// or of Booleans (0 and 1). "targets" has as many samples: whole numbers (or Booleans) of shape N are one label per
/// sample, whole numbers of shape N D H W one label per spatial position, both with an attribute "classes";
/// floating-point numbers N C ... are values. Several inputs are the arrays of a group "inputs" instead of "samples";
/// whole numbers N C L with an attribute "vocabulary" are tokens. A rank reads its own box of its own samples, and
/// reads the next ones in the background while it computes; it keeps them in the type of the file. Damage inside the
/// file is found only when it is read, possibly by one rank alone. Throws Error that names the file if it is missing,
/// not HDF5 or not of this form.
std::unique_ptr<Dataset> open_volumes(const std::string& path);

/// Writes a data set as a file for open_volumes(), with values in `values` (f32 or f64) and 32-bit labels. The file
/// appears under `path` only once it is complete. Throws Error if it cannot be written, or if a number is beyond the
/// range of f32.
void save_volumes(const std::string& path, Dataset& data, DType values = DType::f32);

/// Opens a data set's training or test set from a folder ("" if the user gave none). Throws Error if it cannot.
using DatasetFactory = std::function<std::unique_ptr<Dataset>(const std::string& folder, bool training)>;
/// Makes a user's own data set available to the command line as `--data NAME`. Throws Error if the name is
/// taken or the factory is empty.
void register_dataset(const std::string& name, DatasetFactory factory);
/// Opens a data set by its name: "fashion-mnist", "hdf5" (training.h5 and test.h5 in the folder) or a registered one.
/// Throws Error with the nearest name for an unknown one.
std::unique_ptr<Dataset> open_dataset(const std::string& name, const std::string& folder, bool training);

/// Makes synthetic samples from a seed that a network can learn: a pattern that depends on the target, plus noise. With
/// one label per sample the pattern is the class's. With labels per position each position shows the pattern of its
/// class; a position of a coarser target covers a block of positions of the sample. Values scale a single pattern. Two
/// parts (`part`) with the same seed share the patterns but have different samples. `target` is Dataset::target;
/// `classes` is 0 if the target is values.
std::unique_ptr<Dataset> make_synthetic(const Shape& sample, const Shape& target, Index size, Index classes,
                                        std::uint64_t seed, int part);
/// The same for samples of several inputs, with one label per sample. In three of four places of tokens, the token
/// modulo `classes` is the sample's label.
std::unique_ptr<Dataset> make_synthetic(std::vector<SampleInput> inputs, Index size, Index classes, std::uint64_t seed,
                                        int part);
/// The same for tokens: samples of `length` of them, drawn from `vocabulary`, each with the next token as its label.
/// They count up in runs of eight, so that a model can learn seven of eight labels.
std::unique_ptr<Dataset> make_synthetic_tokens(Index length, Index vocabulary, Index size, std::uint64_t seed,
                                               int part);

}  // namespace partita
