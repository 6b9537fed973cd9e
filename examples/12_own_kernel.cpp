// A layer of your own whose kernels run on the CPU and on GPUs: each is a functor, written once (12_own_kernel.hpp).
// In a build with CUDA, nvcc compiles this file; then `--device cuda` trains on a GPU.
//
// $ build/mpiexec -n 4 build/examples/12_own_kernel train --strategy examples/strategies/first.toml --data synthetic --dtype f64 --batch 60 --epochs 2 --rate 0.001
// model      own-kernel-net (15906 weights)
// strategy   examples/strategies/first.toml, grid "data=2 y=2"
// workload   batch 60, f64, sgd rate 0.001 momentum 0.9
// ...
// epoch 1    loss 1.5392  accuracy 53.22%  0.2 s  6474 images/s
// epoch 2    loss 0.0671  accuracy 99.90%  0.2 s  6792 images/s
// test  2    loss 0.0214  accuracy 100.00%  top-5 100.00%  0.1 s  9064 images/s
// ...
#include "examples/12_own_kernel.hpp"

using namespace partita;

static Model own_kernel_net() {
  Model m("own-kernel-net");
  auto t = m.input("image", {.channels = 1, .spatial = {28, 28}});
  t = m.conv("conv", t, {.filters = 8, .kernel = 5, .stride = 2, .padding = 2});
  t = m.layer("learned", std::make_shared<own_kernel::LearnedRelu>(), {t});
  t = m.linear("fc", t, {.features = 10});
  m.softmax_cross_entropy("loss", t);
  return m;
}

int main(int argc, char** argv) { return partita::main(argc, argv, own_kernel_net); }
