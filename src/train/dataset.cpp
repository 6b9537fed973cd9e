#include "partita/train/dataset.hpp"

#include "partita/base/error.hpp"

#include <map>

namespace partita {

namespace {

std::map<std::string, DatasetFactory>& factories() {
  static std::map<std::string, DatasetFactory> table{{"fashion-mnist", open_fashion_mnist}};
  return table;
}

}  // namespace

void register_dataset(const std::string& name, DatasetFactory factory) {
  if (name == "synthetic" || !factories().emplace(name, std::move(factory)).second)
    fail("there is a data set '{}' already", name);
}

std::unique_ptr<Dataset> open_dataset(const std::string& name, const std::string& folder, bool training) {
  if (const auto found = factories().find(name); found != factories().end()) return found->second(folder, training);
  std::vector<std::string> names{"synthetic"};
  for (const auto& [known, factory] : factories()) names.push_back(known);
  fail("there is no data set '{}'{}; there are {}", name, did_you_mean(name, names), quoted_list(names));
}

}  // namespace partita
