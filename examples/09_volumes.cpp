// Volumes from disk: writes a small data set to two HDF5 files, training.h5 and test.h5. A segmentation network then
// trains on it, sharded over depth and rows. Each rank reads its own box of every volume and its labels ahead in the
// background.
//
// $ build/examples/09_volumes build/volumes
// training.h5  24 volumes C=4 D=16 H=16 W=16, labels D=16 H=16 W=16, 3 classes
// test.h5      8 volumes C=4 D=16 H=16 W=16, labels D=16 H=16 W=16, 3 classes
// $ build/mpiexec -n 4 build/partita train --model unet3d --size 16 --channels 4 --width 0.125 --data hdf5 --data-dir build/volumes --strategy examples/strategies/unet3d-spatial.toml --dtype f64 --batch 4 --epochs 3 --optimizer adam --rate 0.01
// model      unet3d (299043 weights)
// strategy   examples/strategies/unet3d-spatial.toml, grid "d=2 h=2"
// workload   batch 4, f64, adam rate 0.01 beta1 0.9 beta2 0.999 epsilon 1e-08
// ranks      4 (rank:pid 0:22437 1:22438 2:22439 3:22440)
// epoch 1    loss 1.2591  accuracy 38.80%  0.6 s  39 images/s
// epoch 2    loss 1.0219  accuracy 48.51%  0.6 s  43 images/s
// epoch 3    loss 0.9581  accuracy 53.91%  0.6 s  41 images/s
// ...
// moved      8552 messages, 255554304 bytes by all ranks (predicted 8552, 255554304)
// memory     19.7 MiB at most on a rank (predicted 19.7 MiB)
#include <partita/partita.hpp>

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>

using namespace partita;

int main(int argc, char** argv) try {
  if (argc != 2) {
    fmt::print(stderr, "usage: {} FOLDER\n", argv[0]);
    return 2;
  }
  const std::filesystem::path folder = argv[1];
  std::filesystem::create_directories(folder);
  const Shape volume{{'C', 4}, {'D', 16}, {'H', 16}, {'W', 16}}, labels{{'D', 16}, {'H', 16}, {'W', 16}};
  for (const bool training : {true, false}) {
    const auto data = make_synthetic(volume, labels, training ? 24 : 8, 3, 1, training ? 0 : 1);
    const char* name = training ? "training.h5" : "test.h5";
    save_volumes((folder / name).string(), *data);
    const auto stored = open_volumes((folder / name).string());
    fmt::print("{:<12} {} volumes {}, labels {}, {} classes\n", name, stored->size(), stored->sample().print(),
               stored->target().print(), stored->classes());
  }
  return 0;
} catch (const std::exception& error) {
  fmt::print(stderr, "09_volumes: {}\n", error.what());
  return 2;
}
