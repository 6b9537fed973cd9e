#include "partita/train/data/dataset.hpp"

#include "partita/base/error.hpp"

#include <cmath>
#include <map>

namespace partita {

namespace {

std::map<std::string, DatasetFactory>& factories() {
  static std::map<std::string, DatasetFactory> table{
      {"fashion-mnist", open_fashion_mnist},
      {"hdf5", [](const std::string& folder, bool training) {
         return open_volumes((folder.empty() ? "" : folder + "/") + (training ? "training.h5" : "test.h5"));
       }}};
  return table;
}

}  // namespace

void Dataset::read_target(Index sample, const Box& box, std::span<float> out) const {
  if (box.dims() > 0 || out.size() != 1)
    fail("data set '{}': its targets have dimensions (target()), so its class must define read_target()", name_);
  out[0] = static_cast<float>(label(sample));
}

std::int32_t Dataset::label(Index) const {
  fail("data set '{}': its class must define label() for one label per sample, or target() and read_target()", name_);
}

void read_checked_target(const Dataset& data, Index sample, const Box& box, std::span<float> out) {
  data.read_target(sample, box, out);
  const Index classes = data.classes();
  if (classes == 0) return;
  for (const float label : out)
    if (!(label >= 0 && label < static_cast<float>(classes)) || label != std::floor(label))
      fail("data set '{}': sample {} has the label {}, but classes() is {}; labels are 0 to {}", data.name(),
           data.number(sample), label, classes, classes - 1);
}

std::string Dataset::label_beyond(Index) const { return ""; }

void register_dataset(const std::string& name, DatasetFactory factory) {
  if (!factory)
    fail("register_dataset(\"{}\", ...): the factory is empty; give it a function that opens the data set", name);
  if (name == "synthetic" || !factories().emplace(name, std::move(factory)).second)
    fail("register_dataset(\"{}\", ...): a data set of this name exists already; choose another name", name);
}

std::unique_ptr<Dataset> open_dataset(const std::string& name, const std::string& folder, bool training) {
  if (const auto found = factories().find(name); found != factories().end()) {
    auto data = found->second(folder, training);
    if (data == nullptr) fail("data set '{}': its factory returned a null pointer", name);
    if (data->name().empty()) data->set_name(name);
    return data;
  }
  std::vector<std::string> names{"synthetic"};
  for (const auto& [known, factory] : factories()) names.push_back(known);
  fail("there is no data set '{}'{}; there are {}", name, did_you_mean(name, names), quoted_list(names));
}

}  // namespace partita
