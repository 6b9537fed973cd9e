// Your own model, trained on four ranks under a strategy from a file.
//
// $ build/mpiexec -n 4 build/examples/01_first_model train --strategy examples/strategies/first.toml --data synthetic --dtype f64 --batch 60 --epochs 2 --rate 0.002
// model      small-cnn (63114 weights)
// strategy   examples/strategies/first.toml, grid "data=2 y=2"
// workload   batch 60, f64, sgd rate 0.002 momentum 0.9
// ranks      4 (rank:pid 0:25560 1:25561 2:25562 3:25563)
// epoch 1    loss 1.5050  accuracy 65.23%  0.7 s  1548 images/s
// epoch 2    loss 0.0031  accuracy 100.00%  0.7 s  1571 images/s
// test  2    loss 0.0006  accuracy 100.00%  top-5 100.00%  0.3 s  3150 images/s
// moved      1368 messages, 38624640 bytes by all ranks (predicted 1368, 38624640)
// memory     23.1 MiB at most on a rank (predicted 23.1 MiB)
#include <partita/partita.hpp>

using namespace partita;

Model small_cnn() {  // names and shapes only: a model knows no ranks and no devices
  Model m("small-cnn");
  auto t = m.input("image", {.channels = 1, .spatial = {28, 28}});
  t = m.conv("conv1", t, {.filters = 32, .kernel = 3, .padding = 1});
  t = m.batch_norm("bn1", t);
  t = m.relu("relu1", t);
  t = m.max_pool("pool1", t, {.window = 2});
  t = m.linear("fc", t, {.features = 10});
  m.softmax_cross_entropy("loss", t);
  return m;
}

int main(int argc, char** argv) { return partita::main(argc, argv, small_cnn); }
