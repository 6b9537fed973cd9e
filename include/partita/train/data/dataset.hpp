#pragma once

#include "partita/base/tensor.hpp"

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace partita {

/// Samples with what they are to be mapped to, a label or more, read by global sample number and box: a rank reads its own samples' own rows only.
/// A user's own data set is a class like this.
class Dataset {
 public:
  virtual ~Dataset() = default;
  /// One sample, without N: e.g. C=1 H=28 W=28.
  virtual Shape sample() const = 0;
  /// Number of samples.
  virtual Index size() const = 0;
  /// Labels are less; 0 where the target is values.
  virtual Index classes() const = 0;
  /// Announces what will be read next (an epoch's samples, and the box of each, dimensions as in `sample`), so that
  /// whoever reads from a file can hold just that. `read` may ask for samples and boxes inside these only.
  virtual void hold(std::span<const Index> samples, const Box& box) = 0;
  /// Sample `sample` inside `box`, in the logical row-major order of the box (C H W), pixels scaled to about unit
  /// variance.
  virtual void read(Index sample, const Box& box, std::span<float> out) const = 0;
  /// The target of one sample, without N: no dimension for one label, space for a label a place, C for values.
  virtual Shape target() const { return {}; }
  /// As `hold`, for targets; the samples may be others.
  virtual void hold_targets(std::span<const Index> /*samples*/, const Box& /*box*/) {}
  /// The target inside `box`, in its logical row-major order; labels are whole numbers. The default is `label`'s.
  virtual void read_target(Index sample, const Box& box, std::span<float> out) const;
  /// The sample's class, of sets with one label a sample; known for every sample.
  virtual std::int32_t label(Index sample) const;
};

/// Images and labels in the IDX format (MNIST's), gzipped or not. Opening reads headers and labels; `hold` streams
/// through the pixels and keeps the announced ones, as bytes. Pixels become (p/255 - mean)/deviation.
/// Throws Error naming the file for one that is missing, unreadable, truncated or no IDX file.
std::unique_ptr<Dataset> open_idx(const std::string& images, const std::string& labels, double mean, double deviation);

/// Fashion-MNIST's training or test part from `folder` ("" for where Debian's package dataset-fashion-mnist puts it).
/// Throws Error that names the package if the files are missing.
std::unique_ptr<Dataset> open_fashion_mnist(const std::string& folder, bool training);

/// Samples in one HDF5 file: a data set "samples" of N C D H W (or fewer spatial dimensions), of any number type, and one
/// "targets" of as many: whole numbers N are a label a sample, N D H W a label a place, both with an attribute "classes";
/// floating-point numbers N C ... are values. A rank reads its own box of its own samples, the next ones in the background
/// while it computes; what is damaged inside is found where it is read, maybe by one rank alone. Throws Error naming the
/// file for one that is missing, no HDF5 or not of this form.
std::unique_ptr<Dataset> open_volumes(const std::string& path);

/// Writes a data set as such a file, in single precision and 32-bit labels; it appears under `path` when it is whole.
/// Throws Error if it cannot.
void save_volumes(const std::string& path, Dataset& data);

/// Opens a data set's training or test part from a folder ("" where the user gave none); throws Error if it cannot.
using DatasetFactory = std::function<std::unique_ptr<Dataset>(const std::string& folder, bool training)>;
/// Makes a user's own data set known to the command line as `--data NAME`. Throws Error if the name is taken.
void register_dataset(const std::string& name, DatasetFactory factory);
/// Opens a data set by its name, "fashion-mnist", "hdf5" (training.h5 and test.h5 in the folder) or a registered one. Throws Error with the nearest name for another.
std::unique_ptr<Dataset> open_dataset(const std::string& name, const std::string& folder, bool training);

/// Samples drawn from a seed, which a network can learn: a pattern of the target's plus noise. The pattern is the class's
/// for one label a sample; for labels of places each place shows its class (a place of a coarser target a block of them);
/// values scale one pattern. Two parts with the same seed and another `part` share the patterns and differ in samples.
/// `target` is Dataset::target; `classes` is 0 where it is values.
std::unique_ptr<Dataset> make_synthetic(const Shape& sample, const Shape& target, Index size, Index classes,
                                        std::uint64_t seed, int part);

}  // namespace partita
