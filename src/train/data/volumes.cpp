#include "partita/train/data/dataset.hpp"
#include "src/train/data/fail_label.hpp"
#include "src/train/data/prefetch.hpp"
#include "src/train/files/output_file.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <variant>

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

/// A number in the type in which a set keeps what it has read of a file. Its value has no meaning.
using Number = std::variant<std::int8_t, std::uint8_t, std::int16_t, std::uint16_t, std::int32_t, std::uint32_t,
                            std::int64_t, std::uint64_t, float, double>;

/// Returns the type of HDF5 for a number in memory.
hid_t native_type(const Number& number) {
  const std::array types{H5T_NATIVE_INT8,   H5T_NATIVE_UINT8, H5T_NATIVE_INT16,  H5T_NATIVE_UINT16, H5T_NATIVE_INT32,
                         H5T_NATIVE_UINT32, H5T_NATIVE_INT64, H5T_NATIVE_UINT64, H5T_NATIVE_FLOAT,  H5T_NATIVE_DOUBLE};
  static_assert(std::variant_size_v<Number> == types.size());
  return types[number.index()];
}

/// Returns the smallest type that holds every number of a type of HDF5; double for the types that are more exact.
Number smallest(hid_t type) {
  const std::size_t size = H5Tget_size(type);
  if (H5Tget_class(type) == H5T_FLOAT) return size <= sizeof(float) ? Number(float{}) : Number(double{});
  const bool has_sign = H5Tget_sign(type) != H5T_SGN_NONE;
  if (size == 1) return has_sign ? Number(std::int8_t{}) : Number(std::uint8_t{});
  if (size == 2) return has_sign ? Number(std::int16_t{}) : Number(std::uint16_t{});
  if (size <= 4) return has_sign ? Number(std::int32_t{}) : Number(std::uint32_t{});
  return has_sign ? Number(std::int64_t{}) : Number(std::uint64_t{});
}

/// One array of the file; its first dimension counts the samples.
class Array {
 public:
  Array(hid_t file, const std::string& name)
      : data_(hdf5::open_data(file, name)), extents_(hdf5::extents_of(data_, name)) {
    const Handle type = hdf5::number_type(data_, name);
    if (extents_.empty()) fail("'{}' has no dimension for samples", name);
    whole_numbers_ = H5Tget_class(type) == H5T_INTEGER;
    number_ = smallest(type);
  }
  Index samples() const { return extents_[0]; }
  /// The extents without the first.
  std::span<const Index> extents() const { return std::span(extents_).subspan(1); }
  bool whole_numbers() const { return whole_numbers_; }
  hid_t id() const { return data_; }

  /// Returns the bytes of a box of a sample in memory.
  Index bytes(const Box& box) const {
    return box.volume() * std::visit([](auto number) { return Index{sizeof(number)}; }, number_);
  }
  /// Reads the bytes of a box of a sample. Throws Error with HDF5's reason if that fails.
  void read(Index sample, const Box& box, std::span<std::byte> out) const {
    const Session session;
    const Box part = with_sample(sample, box);
    check(H5Dread(data_, native_type(number_), hdf5::dense_space(part), hdf5::selected_space(data_, part), H5P_DEFAULT,
                  out.data()));
  }
  /// Calls use(numbers) with the numbers of bytes that were read, in their type.
  template <class Use>
  auto numbers(std::span<const std::byte> bytes, Use&& use) const {
    return std::visit(
        [&](auto number) {
          const auto* first = reinterpret_cast<const decltype(number)*>(bytes.data());
          return use(std::span(first, bytes.size() / sizeof(number)));
        },
        number_);
  }

 private:
  Handle data_;
  std::vector<Index> extents_;
  bool whole_numbers_ = false;
  Number number_;
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

/// Returns a function that rounds numbers to the type of `out`.
template <class T>
auto rounding(std::span<T> out) {
  return [out](auto numbers) {
    std::transform(numbers.begin(), numbers.end(), out.begin(), [](auto each) { return static_cast<T>(each); });
  };
}

/// For H5Lvisit: adds the name of what is no group to the vector that `names` points to.
herr_t add_name(hid_t group, const char* name, const H5L_info_t*, void* names) {
  const hid_t object = H5Oopen(group, name, H5P_DEFAULT);
  const bool holds_others = object >= 0 && H5Iget_type(object) == H5I_GROUP;
  if (object >= 0) H5Oclose(object);
  if (!holds_others) static_cast<std::vector<std::string>*>(names)->emplace_back(name);
  return 0;
}

/// One input of the samples in a file.
struct VolumeInput {
  SampleInput is;
  Array array;
  Box box;                          // that was announced
  std::unique_ptr<Prefetch> ahead;  // reads it
};

class Volumes final : public DatasetOfInputs {
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
    for (auto& input : inputs_) input.ahead.reset();
    targets_ahead_.reset();
    const Session session;
    close();
  }

  std::vector<SampleInput> inputs() const override {
    std::vector<SampleInput> all;
    for (const auto& input : inputs_) all.push_back(input.is);
    return all;
  }
  Index size() const override { return targets_->samples(); }
  Index classes() const override { return classes_; }
  Shape target() const override { return target_; }

  void hold_input(int input, std::span<const Index> samples, const Box& box) override {
    VolumeInput& held = inputs_[input];
    held.ahead.reset();
    held.box = box;
    if (!box.empty()) held.ahead = prefetch(held.array, samples, box);
  }
  void hold_targets(std::span<const Index> samples, const Box& box) override {
    targets_ahead_.reset();
    target_box_ = box;
    if (box.dims() == 0 || !box.empty()) targets_ahead_ = prefetch(*targets_, samples, box);
  }

  Index held_bytes() const override {
    Index bytes = targets_ahead_ ? targets_ahead_->bytes() : 0;
    for (const auto& input : inputs_) bytes += input.ahead ? input.ahead->bytes() : 0;
    return bytes;
  }
  Index bytes_to_hold(Index samples, const Box& box, Index targets, const Box& target_box) const override {
    const SampleShare only{samples, box};
    return bytes_to_hold_inputs({&only, 1}, targets, target_box);
  }
  Index bytes_to_hold_inputs(std::span<const SampleShare> inputs, Index targets, const Box& target_box) const override {
    const bool none = target_box.dims() > 0 && target_box.empty();
    Index bytes = none ? 0 : Prefetch::bytes(targets, size(), targets_->bytes(target_box));
    for (std::size_t i = 0; i < inputs.size(); ++i)
      if (const auto& [samples, box] = inputs[i]; !box.empty())
        bytes += Prefetch::bytes(samples, size(), inputs_[i].array.bytes(box));
    return bytes;
  }

  void read_input(int input, Index sample, const Box& box, std::span<double> out) const override {
    const VolumeInput& of = inputs_[input];
    show(of.array, of.ahead.get(), of.box, sample, box, rounding(out));
  }
  void read_input_f32(int input, Index sample, const Box& box, std::span<float> out) const override {
    const VolumeInput& of = inputs_[input];
    show(of.array, of.ahead.get(), of.box, sample, box, rounding(out));
  }
  void read_target(Index sample, const Box& box, std::span<double> out) const override {
    show(*targets_, targets_ahead_.get(), target_box_, sample, box, rounding(out));
  }
  void read_labels(Index sample, const Box& box, std::span<std::int32_t> out) const override {
    show(*targets_, targets_ahead_.get(), target_box_, sample, box, [&](auto numbers) {
      for (std::size_t i = 0; i < out.size(); ++i) {
        out[i] = static_cast<std::int32_t>(numbers[i]);
        if (static_cast<decltype(+numbers[i])>(out[i]) != numbers[i] || (out[i] < 0) != (numbers[i] < 0))
          fail_label(*this, sample, box, static_cast<Index>(i), std::to_string(numbers[i]));
      }
    });
  }
  std::int32_t label(Index sample) const override {
    if (classes_ == 0 || target_.dims() > 0) return Dataset::label(sample);
    require(sample >= 0 && sample < size(), "the data set has the sample");
    std::int32_t label = 0;
    read_labels(sample, Box(0), std::span(&label, 1));
    return label;
  }

 private:
  void open() {
    file_ = hdf5::open_to_read(path_, hdf5::serial_access());
    hdf5::lock_to_read(file_);
    if (check(H5Lexists(file_, "inputs", H5P_DEFAULT)) > 0) {
      std::vector<std::string> names;
      const Handle group(H5Gopen2(file_, "inputs", H5P_DEFAULT), H5Gclose);
      check(H5Lvisit(group, H5_INDEX_NAME, H5_ITER_INC, add_name, &names));
      if (names.empty()) fail("its group 'inputs' is empty; put an array for each input into it");
      for (const auto& name : names) add_input(name, "inputs/" + name);
    } else {
      require_array(file_, "samples");
      add_input("", "samples");
    }
    require_array(file_, "targets");
    targets_.emplace(file_, "targets");
    for (const auto& input : inputs_)
      if (targets_->samples() != input.array.samples())
        fail("it has {} samples{}, but {} targets", input.array.samples(),
             input.is.name.empty() ? "" : fmt::format(" of '{}'", input.is.name), targets_->samples());
    const bool labels = targets_->whole_numbers();
    if (targets_->extents().size() > (labels ? 3U : 4U) || (!labels && targets_->extents().empty()))
      fail("'targets' has {} dimensions; labels need N, values N and C, both with up to three spatial dimensions",
           targets_->extents().size() + 1);
    target_ = shape_of(targets_->extents(), !labels);
    if (labels) require_classes(targets_->id());
    if (labels) classes_ = read_classes();
  }
  /// Adds an array as an input. One of whole numbers with the attribute "vocabulary" is tokens.
  void add_input(const std::string& name, const std::string& path) {
    VolumeInput& made = inputs_.emplace_back(VolumeInput{{name, {}, 0}, Array(file_, path), {}, nullptr});
    const auto extents = made.array.extents();
    const bool tokens = made.array.whole_numbers() && check(H5Aexists(made.array.id(), "vocabulary")) > 0;
    const std::size_t most = tokens ? 2 : 4;
    if (extents.empty() || extents.size() > most)
      fail("'{}' has {} dimensions; it needs N, C and {}", path, extents.size() + 1,
           tokens ? "L, or N and C" : "up to three spatial dimensions");
    if (!tokens) {
      made.is.shape = shape_of(extents, true);
      return;
    }
    made.is.shape = {{'C', extents[0]}};
    if (extents.size() > 1) made.is.shape.push_back({'L', extents[1]});
    made.is.vocabulary = hdf5::read_whole_number(made.array.id(), "vocabulary");
    if (made.is.vocabulary < 1)
      fail("the attribute 'vocabulary' of '{}' is {}; it must be 1 or more", path, made.is.vocabulary);
  }
  void close() {
    inputs_.clear();
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

  /// Shows a box of a sample to `use`: takes it from what is read ahead of boxes `held`, or reads it.
  template <class Use>
  void show(const Array& array, Prefetch* ahead, const Box& held, Index sample, const Box& box, const Use& use) const {
    const auto use_bytes = [&](std::span<const std::byte> bytes) { array.numbers(bytes, use); };
    if (ahead != nullptr && box == held && ahead->take(sample, use_bytes)) return;
    std::vector<std::byte> bytes(static_cast<std::size_t>(array.bytes(box)));
    read_bytes(array, sample, box, bytes);
    use_bytes(bytes);
  }
  void read_bytes(const Array& array, Index sample, const Box& box, std::span<std::byte> out) const {
    hdf5::explained("data set '" + path_ + "': cannot read sample " + std::to_string(sample),
                    [&] { array.read(sample, box, out); });
  }
  std::unique_ptr<Prefetch> prefetch(const Array& array, std::span<const Index> samples, const Box& box) const {
    return std::make_unique<Prefetch>(
        samples, array.samples(), array.bytes(box),
        [this, &array, box](Index sample, std::span<std::byte> out) { read_bytes(array, sample, box, out); });
  }

  std::string path_;
  Handle file_;
  std::deque<VolumeInput> inputs_;  // which stay where they are
  std::optional<Array> targets_;
  Shape target_;
  Index classes_ = 0;
  Box target_box_;
  std::unique_ptr<Prefetch> targets_ahead_;
};

/// Returns all samples (or targets) of a data set, one after the other.
template <class T, class Read>
std::vector<T> all_of(Index samples, const Box& box, Read&& read) {
  const auto size = static_cast<std::size_t>(box.volume());
  std::vector<T> all(static_cast<std::size_t>(samples) * size);
  for (Index i = 0; i < samples; ++i) read(i, std::span(all).subspan(static_cast<std::size_t>(i) * size, size));
  return all;
}

template <class T>
Handle write(hdf5::OutputFile& file, const std::string& name, const Shape& one, const std::vector<T>& all,
             Index samples) {
  const Box box(one);
  Box whole = with_sample(0, box);
  whole[0] = {0, samples};
  Handle data = file.create_data(name, native_type(T{}), hdf5::dense_space(whole));
  file.write(data, std::as_bytes(std::span(all)));
  return data;
}

constexpr int targets_instead = -1;

/// Returns all samples of an input or, with `targets_instead`, all targets that are values. T is the type of the file.
template <class T>
std::vector<T> all_values(const Dataset& data, const Box& box, int input) {
  return all_of<T>(data.size(), box, [&](Index i, std::span<T> out) {
    std::vector<double> values(out.size());
    input == targets_instead ? data.read_target(i, box, values) : data.read_input(input, i, box, values);
    std::transform(values.begin(), values.end(), out.begin(), [&](double value) {
      const T held = static_cast<T>(value);
      if (std::isfinite(value) && !std::isfinite(held))
        fail("data set '{}': {} {} has the value {:g}, beyond the range of f32; save it in f64", data.name(),
             input == targets_instead ? "the target of sample" : "sample", i, value);
      return held;
    });
  });
}

/// Gives an array an attribute that is one whole number.
void write_number(hid_t array, const char* name, Index number) {
  const Handle space(H5Screate(H5S_SCALAR), H5Sclose);
  const Handle of(H5Acreate2(array, name, H5T_NATIVE_INT32, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
  const auto value = static_cast<std::int32_t>(number);
  check(H5Awrite(of, H5T_NATIVE_INT32, &value));
}

template <class T>
void save_all(const std::string& path, Dataset& data) {
  const Box target_box(data.target());
  const std::vector<SampleInput> inputs = data.inputs();
  // Before the session, since a data set that reads HDF5 itself needs one.
  std::vector<std::vector<T>> samples;
  for (int i = 0; i < std::ssize(inputs); ++i) samples.push_back(all_values<T>(data, Box(inputs[i].shape), i));
  const Index classes = data.classes();
  const std::vector<T> targets = classes == 0 ? all_values<T>(data, target_box, targets_instead) : std::vector<T>();
  std::vector<std::int32_t> labels;
  if (classes > 0)
    labels = all_of<std::int32_t>(data.size(), target_box, [&](Index i, std::span<std::int32_t> out) {
      read_checked_labels(data, i, target_box, out);
    });
  hdf5::OutputFile file(path);
  const Session session;
  hdf5::explained("data set '" + path + "': cannot write it", [&] {
    file.create();
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const auto& [input, shape, vocabulary] = inputs[i];
      if (vocabulary > 0 && inputs.size() > 1) {
        const std::vector<std::int32_t> tokens(samples[i].begin(), samples[i].end());
        write_number(write(file, "inputs/" + input, shape, tokens, data.size()), "vocabulary", vocabulary);
      } else {
        static_cast<void>(
            write(file, inputs.size() > 1 ? "inputs/" + input : "samples", shape, samples[i], data.size()));
      }
    }
    if (classes == 0) {
      static_cast<void>(write(file, "targets", data.target(), targets, data.size()));
    } else {
      write_number(write(file, "targets", data.target(), labels, data.size()), "classes", classes);
    }
    file.finish();
    file.commit();
  });
}

}  // namespace

std::unique_ptr<Dataset> open_volumes(const std::string& path) { return std::make_unique<Volumes>(path); }

void save_volumes(const std::string& path, Dataset& data, DType values) {
  if (values != DType::f32 && values != DType::f64)
    fail("data set '{}': values are saved in f32 or f64, not in {}", path, name(values));
  std::vector<Index> order(static_cast<std::size_t>(data.size()));
  std::iota(order.begin(), order.end(), Index{0});
  const std::vector<SampleInput> inputs = data.inputs();
  for (int i = 0; i < std::ssize(inputs); ++i) data.hold_input(i, order, Box(inputs[i].shape));
  data.hold_targets(order, Box(data.target()));
  values == DType::f64 ? save_all<double>(path, data) : save_all<float>(path, data);
}

}  // namespace partita
