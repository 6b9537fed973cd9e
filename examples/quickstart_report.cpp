// The last step of examples/quickstart.sh: compares the results of its four runs and prints a table.
//   build/examples/quickstart_report FOLDER RESULT.json SECONDS
#include <partita/partita.hpp>
#include <src/base/plain_text.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <fstream>

using namespace partita;
using Json = nlohmann::ordered_json;

namespace {

Json read_json(const std::string& path) {
  std::ifstream in(path);
  if (!in) throw std::runtime_error("cannot read " + path);
  return Json::parse(in);
}

/// The whole weights of a checkpoint, which any grid may have written.
std::vector<Tensor> weights_of(const std::string& path) {
  std::vector<Tensor> weights;
  run_thread_ranks(1, {}, [&](Communicator& comm) {
    TrainerOptions options;
    options.dtype = DType::f64;
    Trainer trainer(fashion_cnn(), Strategy(), options, comm);
    trainer.load(path, false);
    for (const auto& weight : trainer.weights()) weights.push_back(weight.tensor.local);
  });
  return weights;
}

/// The larger of two numbers. NaN counts as the largest.
double larger(double a, double b) { return b <= a ? a : b; }

double largest_difference(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    for (Index j = 0; j < a[i].volume(); ++j) largest = larger(largest, std::abs(a[i].get(j) - b[i].get(j)));
  return largest;
}

/// The largest relative difference between the losses of a step.
double largest_loss_difference(const Json& a, const Json& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a["losses"].size(); ++i) {
    const double x = a["losses"][i], y = b["losses"].at(i);
    largest = larger(largest, std::abs(x - y) / std::abs(x));
  }
  return largest;
}

void print_table(const Json& serial, const Json& hybrid, const Json& result) {
  const auto row = [](const char* what, const std::string& one, const std::string& two) {
    fmt::print("{:<36}{:>14}{:>14}\n", what, one, two);
  };
  const auto percent = [](double x) { return fmt::format("{:.2f} %", 100 * x); };
  const auto last = [](const Json& run, const char* key) { return run["epochs"].back()[key].get<double>(); };
  row("fashion-cnn, 2 epochs, f32", "serial", "hybrid");
  row("ranks", "1", result["ranks"].dump());
  row("grid", "", result["grid"]);
  row("test accuracy", percent(result["serial_accuracy"]), percent(result["hybrid_accuracy"]));
  row("test loss", fmt::format("{:.4f}", result["serial_loss"].get<double>()),
      fmt::format("{:.4f}", result["hybrid_loss"].get<double>()));
  row("images/s, training", fmt::format("{:.0f}", last(serial, "images_per_second")),
      fmt::format("{:.0f}", last(hybrid, "images_per_second")));
  row("bytes moved, predicted", serial["predicted_bytes"].dump(), hybrid["predicted_bytes"].dump());
  row("bytes moved, measured", serial["measured_bytes"].dump(), hybrid["measured_bytes"].dump());
  fmt::print("the same, 50 steps in f64\n");
  fmt::print("{:<36}{:>28.1e}\n", "largest difference of a loss", result["f64_max_loss_difference"].get<double>());
  fmt::print("{:<36}{:>28.1e}\n", "largest difference of a weight", result["f64_max_weight_difference"].get<double>());
}

/// True if the runs agree as they should. Prints each condition that does not hold.
bool holds(const Json& result) {
  const auto number = [&](const char* key) { return result[key].get<double>(); };
  const std::pair<const char*, bool> promises[]{
      {"both accuracies are 90 % or more", number("serial_accuracy") >= 0.9 && number("hybrid_accuracy") >= 0.9},
      {"the accuracies differ by one percentage point or less",
       std::abs(number("serial_accuracy") - number("hybrid_accuracy")) <= 0.01},
      {"losses in f64 differ by 1e-9 or less", number("f64_max_loss_difference") <= 1e-9},
      {"weights in f64 differ by 1e-8 or less", number("f64_max_weight_difference") <= 1e-8},
      {"the bytes moved equal those predicted", result["predicted_bytes"] == result["measured_bytes"]},
  };
  bool all = true;
  for (const auto& [promise, kept] : promises) {
    if (!kept) fmt::print(stderr, "quickstart_report: this condition does not hold: {}\n", promise);
    all = all && kept;
  }
  return all;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 4) throw std::runtime_error("usage: quickstart_report FOLDER RESULT.json SECONDS");
  const std::string folder = argv[1];
  const Json serial = read_json(folder + "/serial-f32.json"), hybrid = read_json(folder + "/hybrid-f32.json");
  const Json serial64 = read_json(folder + "/serial-f64.json"), hybrid64 = read_json(folder + "/hybrid-f64.json");
  const Json result{
      {"serial_accuracy", serial["test"]["accuracy"]},
      {"hybrid_accuracy", hybrid["test"]["accuracy"]},
      {"serial_loss", serial["test"]["loss"]},
      {"hybrid_loss", hybrid["test"]["loss"]},
      {"f64_max_loss_difference", largest_loss_difference(serial64, hybrid64)},
      {"f64_max_weight_difference",
       largest_difference(weights_of(folder + "/serial-f64.h5"), weights_of(folder + "/hybrid-f64.h5"))},
      {"predicted_bytes", hybrid["predicted_bytes"]},
      {"measured_bytes", hybrid["measured_bytes"]},
      {"ranks", hybrid["ranks"]},
      {"grid", hybrid["grid"]},
      {"seconds", parse_number<double>(argv[3]).value_or(0)},
  };
  print_table(serial, hybrid, result);
  std::ofstream(argv[2]) << result.dump(2) << "\n";
  return holds(result) ? 0 : 1;
} catch (const std::exception& error) {
  fmt::print(stderr, "quickstart_report: {}\n", error.what());
  return 1;
}
