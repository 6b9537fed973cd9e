#include "partita/train/data/dataset.hpp"

#include "partita/base/error.hpp"

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
  require(box.dims() == 0 && out.size() == 1, "one label per sample");
  out[0] = static_cast<float>(label(sample));
}

std::int32_t Dataset::label(Index) const { broken("this data set does not have one label per sample"); }

std::string Dataset::label_beyond(Index) const { return ""; }

void register_dataset(const std::string& name, DatasetFactory factory) {
  if (name == "synthetic" || !factories().emplace(name, std::move(factory)).second)
    fail("a data set '{}' exists already", name);
}

std::unique_ptr<Dataset> open_dataset(const std::string& name, const std::string& folder, bool training) {
  if (const auto found = factories().find(name); found != factories().end()) return found->second(folder, training);
  std::vector<std::string> names{"synthetic"};
  for (const auto& [known, factory] : factories()) names.push_back(known);
  fail("there is no data set '{}'{}; there are {}", name, did_you_mean(name, names), quoted_list(names));
}

}  // namespace partita
