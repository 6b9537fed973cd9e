#pragma once

#include "partita/model/model.hpp"

#include <string>
#include <vector>

namespace partita {

/// How large a built-in model is; 0 stands for what it was published with.
struct ModelSize {
  Index extent = 0;                ///< of each spatial dimension of the input
  Index channels = 0;              ///< of the input
  Index classes = 0;               ///< or values that it predicts
  double width = 1;                ///< factor for the channels and features in between, which are rounded
  std::vector<Index> widths = {};  ///< of the hidden layers of a model that has nothing else; none: its own
};

// Each throws Error for a size that it cannot have, saying what leaves nothing.

/// Two convolutions with batch normalisation and two linear layers for 28x28 grey images of 10 classes; 421,738
/// weights.
Model fashion_cnn(const ModelSize& size = {});
/// 28x28 grey images, 10 classes; linear layers with fused ReLU, as many and as wide as `widths` says (two of 1024).
Model mlp(const ModelSize& size = {});
/// 32x32 grey images, 10 classes; tanh and average pooling. LeCun et al. 1998.
Model lenet5(const ModelSize& size = {});
/// 224x224 RGB images, 1,000 classes, of one tower. Krizhevsky 2014, without local response normalisation.
Model alexnet(const ModelSize& size = {});
/// 224x224 RGB images, 1,000 classes. Simonyan and Zisserman 2015, configuration D.
Model vgg16(const ModelSize& size = {});
/// 224x224 RGB images, 1,000 classes: inception blocks with batch normalisation. Szegedy et al. 2015, Ioffe and Szegedy 2015.
Model googlenet(const ModelSize& size = {});
/// 224x224 RGB images, 1,000 classes. He et al. 2016, table 1.
Model resnet18(const ModelSize& size = {});
/// The same with bottlenecks, whose 3x3 convolution has the stride.
Model resnet50(const ModelSize& size = {});
/// 64^3 grey volumes, 3 classes of voxels; skip connections by concatenation. Cicek et al. 2016, with padding.
Model unet3d(const ModelSize& size = {});
/// 128^3 volumes of 4 channels, 4 cosmological parameters. Mathuriya et al. 2018, in the form of MLPerf HPC.
Model cosmoflow(const ModelSize& size = {});
/// 1024^2 meshes (2048^2: five convolutions a block instead of three) of 18 channels, 2 classes of blocks of 64x64. Dryden
/// et al. 2019; of the six blocks' filters they give the first (128) and the last two (384, 128), the others are ours.
Model mesh_tangling(const ModelSize& size = {});

/// Names of the built-in models: "fashion-cnn", "mesh-tangling", ...
std::vector<std::string> builtin_models();
/// The built-in model of that name; throws Error, with the nearest name, if there is none.
Model builtin_model(const std::string& name, const ModelSize& size = {});

}  // namespace partita
