#include "partita/train/data/dataset.hpp"

#include "partita/base/error.hpp"
#include "src/train/data/fail_label.hpp"

#include <algorithm>
#include <map>

namespace partita {

namespace {

std::map<std::string, DatasetFactory>& dataset_factories() {
  static std::map<std::string, DatasetFactory> table{
      {"fashion-mnist", open_fashion_mnist},
      {"hdf5", [](const std::string& folder, bool training) {
         return open_volumes((folder.empty() ? "" : folder + "/") + (training ? "training.h5" : "test.h5"));
       }}};
  return table;
}

}  // namespace

void Dataset::read_f32(Index sample, const Box& box, std::span<float> out) const {
  std::vector<double> values(out.size());
  read(sample, box, values);
  std::transform(values.begin(), values.end(), out.begin(), [](double value) { return static_cast<float>(value); });
}

std::vector<SampleInput> Dataset::inputs() const { return {{"", sample(), vocabulary()}}; }

void Dataset::hold_input(int, std::span<const Index> samples, const Box& box) { hold(samples, box); }

void Dataset::read_input(int, Index sample, const Box& box, std::span<double> out) const { read(sample, box, out); }

void Dataset::read_input_f32(int, Index sample, const Box& box, std::span<float> out) const {
  read_f32(sample, box, out);
}

Index Dataset::bytes_to_hold_inputs(std::span<const SampleShare> inputs, Index targets, const Box& target_box) const {
  return bytes_to_hold(inputs[0].samples, inputs[0].box, targets, target_box);
}

void DatasetOfInputs::read_input_f32(int input, Index sample, const Box& box, std::span<float> out) const {
  std::vector<double> values(out.size());
  read_input(input, sample, box, values);
  std::transform(values.begin(), values.end(), out.begin(), [](double value) { return static_cast<float>(value); });
}

Index DatasetOfInputs::bytes_to_hold_inputs(std::span<const SampleShare>, Index, const Box&) const {
  return held_bytes();
}

std::vector<int> match_inputs(const Dataset& data, std::span<const std::string> model_inputs) {
  const std::vector<SampleInput> own = data.inputs();
  const std::vector<std::string> wanted(model_inputs.begin(), model_inputs.end());
  if (own.size() == 1 && wanted.size() == 1) return {0};
  if (own.size() == 1)
    fail("the samples of the data set '{}' have one input, but the model reads {}: {}; use a data set with these",
         data.name(), wanted.size(), quoted_list(wanted));
  std::vector<std::string> names;
  for (const SampleInput& input : own) names.push_back(input.name);
  const auto has = [](const std::vector<std::string>& all, const std::string& name) {
    return std::find(all.begin(), all.end(), name) != all.end();
  };
  for (const std::string& name : wanted)
    if (!has(names, name))
      fail("the data set '{}' has no input '{}', which the model reads{}; it has {}", data.name(), name,
           did_you_mean(name, names), quoted_list(names));
  for (const std::string& name : names)
    if (!has(wanted, name))
      fail("the model does not read the input '{}' of the data set '{}'; it reads {}", name, data.name(),
           quoted_list(wanted));
  std::vector<int> numbers;
  for (const std::string& name : wanted)
    numbers.push_back(static_cast<int>(std::find(names.begin(), names.end(), name) - names.begin()));
  return numbers;
}

void Dataset::read_target(Index, const Box&, std::span<double>) const {
  fail("data set '{}': its targets are values (classes() is 0), so its class must define read_target()", name_);
}

void Dataset::read_labels(Index sample, const Box& box, std::span<std::int32_t> out) const {
  if (box.dims() > 0)
    fail("data set '{}': its labels have dimensions (target()), so its class must define read_labels()", name_);
  out[0] = label(sample);
}

std::int32_t Dataset::label(Index) const {
  fail("data set '{}': its class must define label() for one label per sample, or target() and read_labels()", name_);
}

void read_checked_labels(const Dataset& data, Index sample, const Box& box, std::span<std::int32_t> out,
                         std::optional<Index> ignored) {
  data.read_labels(sample, box, out);
  const Index classes = data.classes();
  if (classes == 0)
    fail("data set '{}': the loss takes labels, but classes() is 0; return the number of classes", data.name());
  const auto beyond = std::find_if(
      out.begin(), out.end(), [&](std::int32_t label) { return (label < 0 || label >= classes) && label != ignored; });
  if (beyond != out.end()) fail_label(data, sample, box, beyond - out.begin(), std::to_string(*beyond));
}

std::string Dataset::label_beyond(Index, std::optional<Index>) const { return ""; }

void register_dataset(const std::string& name, DatasetFactory factory) {
  if (!factory)
    fail("register_dataset(\"{}\", ...): the factory is empty; give it a function that opens the data set", name);
  if (name == "synthetic" || name == "text" || !dataset_factories().emplace(name, std::move(factory)).second)
    fail("register_dataset(\"{}\", ...): a data set of this name exists already; choose another name", name);
}

std::unique_ptr<Dataset> open_dataset(const std::string& name, const std::string& folder, bool training) {
  if (const auto found = dataset_factories().find(name); found != dataset_factories().end()) {
    auto data = found->second(folder, training);
    if (data == nullptr) fail("data set '{}': its factory returned a null pointer", name);
    if (data->name().empty()) data->set_name(name);
    return data;
  }
  std::vector<std::string> names{"synthetic", "text"};
  for (const auto& [known, factory] : dataset_factories()) names.push_back(known);
  fail("there is no data set '{}'{}; there are {}", name, did_you_mean(name, names), quoted_list(names));
}

}  // namespace partita
