#include "partita/train/data/dataset.hpp"
#include "src/train/data/prefetch.hpp"
#include "src/train/files/output_file.hpp"

#include <limits>
#include <memory>
#include <optional>

namespace partita {

namespace {

using hdf5::check;
using hdf5::Handle;
using hdf5::Session;

constexpr std::string_view spatial_names = "DHW";

/// The box of one sample (or target) in the array of all samples.
Box with_sample(Index sample, const Box& box) {
  Box whole(box.dims() + 1);
  whole[0] = {sample, sample + 1};
  for (int d = 0; d < box.dims(); ++d) whole[d + 1] = box[d];
  return whole;
}

/// One array of the file; its first dimension counts the samples.
class Array {
 public:
  Array(hid_t file, const std::string& name)
      : data_(hdf5::open_data(file, name)), extents_(hdf5::extents_of(data_, name)) {
    const Handle type(H5Dget_type(data_), H5Tclose);
    const auto kind = H5Tget_class(type);
    if (kind != H5T_INTEGER && kind != H5T_FLOAT) fail("'{}' does not hold numbers", name);
    if (extents_.empty()) fail("'{}' has no dimension for samples", name);
    whole_numbers_ = kind == H5T_INTEGER;
  }
  Index samples() const { return extents_[0]; }
  /// The extents without the first.
  std::span<const Index> extents() const { return std::span(extents_).subspan(1); }
  bool whole_numbers() const { return whole_numbers_; }
  hid_t id() const { return data_; }

  /// Throws Error with HDF5's reason if reading fails.
  void read(Index sample, const Box& box, std::span<float> out) const {
    const Session session;
    const Box part = with_sample(sample, box);
    check(H5Dread(data_, H5T_NATIVE_FLOAT, hdf5::dense_space(part), hdf5::selected_space(data_, part), H5P_DEFAULT,
                  out.data()));
  }

 private:
  Handle data_;
  std::vector<Index> extents_;
  bool whole_numbers_ = false;
};

/// Returns the shape for these extents: C and spatial dimensions, or only spatial dimensions.
Shape shape_of(std::span<const Index> extents, bool channels) {
  Shape shape;
  const std::size_t spatial = extents.size() - (channels ? 1 : 0);
  for (std::size_t i = 0; i < extents.size(); ++i) {
    const bool is_channel = channels && i == 0;
    shape.push_back({is_channel ? 'C' : spatial_names[3 - spatial + i - (channels ? 1 : 0)], extents[i]});
  }
  return shape;
}

/// Throws Error if the file lacks the array.
void require_array(hid_t file, const char* name) {
  if (check(H5Lexists(file, name, H5P_DEFAULT)) == 0)
    fail("it has no array '{}'; a data set has the arrays 'samples' and 'targets', as save_volumes() writes them",
         name);
}

/// Throws Error if the targets, which are labels, lack their number of classes.
void require_classes(hid_t targets) {
  if (check(H5Aexists(targets, "classes")) == 0)
    fail("'targets' holds whole numbers, which are labels; give it an attribute 'classes' with the number of classes");
}

class Volumes final : public Dataset {
 public:
  explicit Volumes(const std::string& path) : path_(path) {
    set_name(path);
    const Session session;
    try {
      hdf5::explained("data set '" + path + "'", [&] { open(); });
    } catch (...) {
      close();  // while the session is open
      throw;
    }
  }
  ~Volumes() override {
    ahead_.reset();
    targets_ahead_.reset();
    const Session session;
    close();
  }

  Shape sample() const override { return sample_; }
  Index size() const override { return samples_->samples(); }
  Index classes() const override { return classes_; }
  Shape target() const override { return target_; }

  void hold(std::span<const Index> samples, const Box& box) override {
    ahead_.reset();
    box_ = box;
    if (!box.empty()) ahead_ = prefetch(*samples_, samples, box);
  }
  void hold_targets(std::span<const Index> samples, const Box& box) override {
    targets_ahead_.reset();
    target_box_ = box;
    if (box.dims() == 0 || !box.empty()) targets_ahead_ = prefetch(*targets_, samples, box);
  }

  Index held_bytes() const override {
    return (ahead_ ? ahead_->bytes() : 0) + (targets_ahead_ ? targets_ahead_->bytes() : 0);
  }
  Index bytes_to_hold(Index samples, const Box& box, Index targets, const Box& target_box) const override {
    const Index of_samples = box.empty() ? 0 : Prefetch::bytes(samples, size(), box.volume());
    if (target_box.dims() == 0) return of_samples + Prefetch::bytes(targets, size(), 1);
    return of_samples + (target_box.empty() ? 0 : Prefetch::bytes(targets, size(), target_box.volume()));
  }

  void read(Index sample, const Box& box, std::span<float> out) const override {
    if (ahead_ && box == box_ && ahead_->take(sample, out)) return;
    read(*samples_, sample, box, out);
  }
  void read_target(Index sample, const Box& box, std::span<float> out) const override {
    if (!(targets_ahead_ && box == target_box_ && targets_ahead_->take(sample, out))) read(*targets_, sample, box, out);
  }

 private:
  void open() {
    file_ = hdf5::open_to_read(path_, hdf5::serial_access());
    for (const char* name : {"samples", "targets"}) require_array(file_, name);
    samples_.emplace(file_, "samples");
    targets_.emplace(file_, "targets");
    if (samples_->extents().empty() || samples_->extents().size() > 4)
      fail("'samples' has {} dimensions; it needs N, C and up to three spatial dimensions",
           samples_->extents().size() + 1);
    sample_ = shape_of(samples_->extents(), true);
    if (targets_->samples() != samples_->samples())
      fail("it has {} samples, but {} targets", samples_->samples(), targets_->samples());
    const bool labels = targets_->whole_numbers();
    if (targets_->extents().size() > (labels ? 3U : 4U) || (!labels && targets_->extents().empty()))
      fail("'targets' has {} dimensions; labels need N, values N and C, both with up to three spatial dimensions",
           targets_->extents().size() + 1);
    target_ = shape_of(targets_->extents(), !labels);
    if (labels) require_classes(targets_->id());
    if (labels) classes_ = read_classes();
  }
  void close() {
    samples_.reset();
    targets_.reset();
    file_ = Handle();
  }

  Index read_classes() const {
    constexpr Index most = std::numeric_limits<std::int32_t>::max();  // labels have 32 bits
    const Index classes = hdf5::read_whole_number(targets_->id(), "classes");
    if (classes < 1 || classes > most)
      fail("the attribute 'classes' of 'targets' is {}; it must be from 1 to {}", classes, most);
    return classes;
  }

  void read(const Array& array, Index sample, const Box& box, std::span<float> out) const {
    hdf5::explained("data set '" + path_ + "': cannot read sample " + std::to_string(sample),
                    [&] { array.read(sample, box, out); });
  }
  std::unique_ptr<Prefetch> prefetch(const Array& array, std::span<const Index> samples, const Box& box) const {
    return std::make_unique<Prefetch>(
        samples, array.samples(), static_cast<std::size_t>(box.dims() == 0 ? 1 : box.volume()),
        [this, &array, box](Index sample, std::span<float> out) { read(array, sample, box, out); });
  }

  std::string path_;
  Handle file_;
  std::optional<Array> samples_, targets_;
  Shape sample_, target_;
  Index classes_ = 0;
  Box box_, target_box_;
  std::unique_ptr<Prefetch> ahead_, targets_ahead_;
};

/// Returns all samples (or targets) of a data set, one after the other.
template <class Read>
std::vector<float> all_of(Index samples, const Box& box, Read&& read) {
  const auto size = static_cast<std::size_t>(box.dims() == 0 ? 1 : box.volume());
  std::vector<float> all(static_cast<std::size_t>(samples) * size);
  for (Index i = 0; i < samples; ++i) read(i, std::span(all).subspan(static_cast<std::size_t>(i) * size, size));
  return all;
}

template <class T>
Handle write(hdf5::OutputFile& file, const std::string& name, const Shape& one, const std::vector<T>& all,
             Index samples) {
  const Box box(one);
  Box whole = with_sample(0, box);
  whole[0] = {0, samples};
  Handle data =
      file.create_data(name, std::is_same_v<T, float> ? H5T_NATIVE_FLOAT : H5T_NATIVE_INT32, hdf5::dense_space(whole));
  file.write(data, std::as_bytes(std::span(all)));
  return data;
}

}  // namespace

std::unique_ptr<Dataset> open_volumes(const std::string& path) { return std::make_unique<Volumes>(path); }

void save_volumes(const std::string& path, Dataset& data) {
  const Box box(data.sample()), target_box(data.target());
  std::vector<Index> order(static_cast<std::size_t>(data.size()));
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<Index>(i);
  data.hold(order, box);
  data.hold_targets(order, target_box);
  // Before the session, since a data set that reads HDF5 itself needs one.
  const auto samples = all_of(data.size(), box, [&](Index i, std::span<float> out) { data.read(i, box, out); });
  const auto targets = all_of(data.size(), target_box,
                              [&](Index i, std::span<float> out) { read_checked_target(data, i, target_box, out); });
  hdf5::OutputFile file(path);
  const Session session;
  hdf5::explained("data set '" + path + "': cannot write it", [&] {
    file.create();
    static_cast<void>(write(file, "samples", data.sample(), samples, data.size()));
    if (data.classes() == 0) {
      static_cast<void>(write(file, "targets", data.target(), targets, data.size()));
    } else {
      const std::vector<std::int32_t> labels(targets.begin(), targets.end());
      const Handle array = write(file, "targets", data.target(), labels, data.size());
      const Handle space(H5Screate(H5S_SCALAR), H5Sclose);
      const Handle classes(H5Acreate2(array, "classes", H5T_NATIVE_INT32, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
      const auto count = static_cast<std::int32_t>(data.classes());
      check(H5Awrite(classes, H5T_NATIVE_INT32, &count));
    }
    file.finish();
    file.commit();
  });
}

}  // namespace partita
