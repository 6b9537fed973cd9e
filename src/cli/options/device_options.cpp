#include "src/cli/options/device_options.hpp"

#include "src/cli/options/option_values.hpp"

namespace partita::cli {

namespace po = boost::program_options;

namespace {

void add_card_options(po::options_description& group, DeviceOptions& device) {
  auto add = group.add_options();
  const auto check_name = [](const std::string& name) {
    naming_option("--device", name, [&] { check_device_name(name); });
  };
  add("device", po::value(&device.name)->default_value(device.name)->value_name("NAME")->notifier(check_name),
      "where ranks compute: cpu, cuda (the ranks of a host take its cards in turns) or cuda:N (all take card N)");
  add("tf32", po::bool_switch(&device.tf32), "let products of f32 on a GPU be rounded to TF32");
  const auto size = [](const std::string& text) -> Index {
    if (text == "auto") return 0;
    const Index bytes = parse_size("--workspace", text);
    if (bytes == 0) fail("--workspace 0: the kernels need some; leave it out, or give e.g. 512MiB");
    return bytes;
  };
  add("workspace", parsed("--workspace", device.workspace, size)->default_value("auto")->value_name("SIZE"),
      "memory of a GPU that the kernels of a rank may use besides tensors; auto: a 64th of the GPU's, from 256 MiB to "
      "2 GiB");
}

}  // namespace

void add_device_options(po::options_description& group, DeviceOptions& device) {
  add_card_options(group, device);
  group.add_options()(
      "transport", parsed("--transport", device.transport, parse_transport)->default_value("auto")->value_name("NAME"),
      "how tensors travel between GPUs: nccl (each rank has its own GPU), staged (through the CPU's memory), copies "
      "(from GPU to GPU; only with --ranks) or auto (copies with --ranks, else nccl where it can, else staged)");
}

void add_graph_option(po::options_description& group, bool& graphs) {
  group.add_options()("no-graph", po::bool_switch()->notifier([&graphs](bool off) { graphs = !off; }),
                      "with --device cuda: start every kernel of every step; do not repeat steps as CUDA graphs");
}

void add_explained_device(po::options_description& group, DeviceOptions& device) {
  add_card_options(group, device);
  group.add_options()("properties", po::value(&device.properties)->value_name("FILE"),
                      "with --device cuda: a file that describes a card as JSON, if this machine has none");
}

}  // namespace partita::cli
