#include "src/cli/support/device_options.hpp"

#include "src/cli/support/size.hpp"

namespace partita::cli {

namespace po = boost::program_options;

void add_device_options(po::options_description& group, DeviceOptions& device) {
  auto add = group.add_options();
  add("device", po::value(&device.name)->default_value(device.name)->value_name("NAME")->notifier(check_device_name),
      "where ranks compute: cpu, cuda (the ranks of a host take its cards in turns) or cuda:N (all take card N)");
  add("tf32", po::bool_switch(&device.tf32), "let products of f32 on a GPU be rounded to TF32");
  const auto set_transport = [&device](const std::string& name) { device.transport = parse_transport(name); };
  add("transport", po::value<std::string>()->value_name("NAME")->notifier(set_transport),
      "how tensors travel between GPUs: staged (through the CPU's memory), nccl (each rank has its own GPU) or copies "
      "(from GPU to GPU; only with --ranks, and then the default)");
  const auto set_workspace = [&device](const std::string& size) { device.workspace = parse_size("--workspace", size); };
  add("workspace", po::value<std::string>()->default_value("256MiB")->value_name("SIZE")->notifier(set_workspace),
      "memory of a GPU that the kernels of a rank may use besides tensors");
}

}  // namespace partita::cli
