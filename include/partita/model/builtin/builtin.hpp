#pragma once

#include "partita/model/model.hpp"

#include <string>
#include <vector>

namespace partita {

/// The size of a transformer. 0 stands for the published value.
struct TransformerSize {
  Index layers = 0;      ///< blocks of attention and of two linear layers
  Index hidden = 0;      ///< channels of each place
  Index heads = 0;       ///< heads of attention; must divide `hidden`
  Index sequence = 0;    ///< places of a sample
  Index vocabulary = 0;  ///< different tokens
  Index patch = 0;       ///< extent of the squares of an image that become places
  bool tied = false;     ///< the scores share the table of the embedding, as they do in gpt2-small anyway
  /// rate of dropout behind the embedding or patches, of what blocks add to their input, and of weights of attention
  double dropout = 0;
  /// two or more: they take the places of the two linear layers. A single chosen expert has its probability as gate
  /// (Fedus et al. 2022); the gates of several ones are normalized (Lepikhin et al. 2021)
  Experts experts = {.experts = 0, .balance = 0.01};
  /// of gpt, its presets and bert: a second input `segments`; a place sees only those with an equal number
  bool segments = false;
};

/// The size of a model with tables. 0 stands for the published value.
struct TablesSize {
  Index tables = 0;    ///< number of tables, which a sample has as many categories for
  Index rows = 0;      ///< of each table
  Index features = 0;  ///< of each row
  Index bag = 0;       ///< indices of each category
};

/// The size of a built-in model. 0 stands for the published value.
struct ModelSize {
  Index extent = 0;                ///< extent of each spatial dimension of the input
  Index channels = 0;              ///< channels of the input
  Index classes = 0;               ///< number of classes, or of predicted values
  double width = 1;                ///< factor for the channels and features of hidden layers; the products are rounded
  std::vector<Index> widths = {};  ///< widths of the hidden layers of `mlp`; empty: its default
  TransformerSize transformer = {};  ///< of gpt, its presets, bert and vit
  TablesSize tables = {};            ///< of dlrm
  BatchNorm batch_norm = {};         ///< how batch normalization layers compute their statistics
  CrossEntropy labels = {};          ///< how the labels of the loss count, of models that predict classes
};

// Each function throws Error for a size that the model cannot have, and says which layer has nothing left.

/// Two convolutions with batch normalization and two linear layers, for 28x28 gray images of 10 classes; 421,738
/// weights.
Model fashion_cnn(const ModelSize& size = {});
/// 28x28 gray images, 10 classes. Linear layers with fused ReLU; `widths` gives their number and widths (two of 1024).
Model mlp(const ModelSize& size = {});
/// 32x32 gray images, 10 classes; tanh and average pooling. LeCun et al. 1998.
Model lenet5(const ModelSize& size = {});
/// 224x224 RGB images, 1,000 classes, one tower. Krizhevsky 2014, without local response normalization.
Model alexnet(const ModelSize& size = {});
/// 224x224 RGB images, 1,000 classes. Simonyan and Zisserman 2015, configuration D.
Model vgg16(const ModelSize& size = {});
/// 224x224 RGB images, 1,000 classes; inception blocks with batch normalization. Szegedy et al. 2015, Ioffe and Szegedy
/// 2015.
Model googlenet(const ModelSize& size = {});
/// 224x224 RGB images, 1,000 classes. He et al. 2016, table 1.
Model resnet18(const ModelSize& size = {});
/// As resnet18, with bottleneck blocks. The stride is in their 3x3 convolution.
Model resnet50(const ModelSize& size = {});
/// 64^3 gray volumes, 3 classes of voxels; skip connections by concatenation. Cicek et al. 2016, with padding.
Model unet3d(const ModelSize& size = {});
/// 128^3 volumes of 4 channels, 4 cosmological parameters. Mathuriya et al. 2018, as in MLPerf HPC.
Model cosmoflow(const ModelSize& size = {});
/// 1024^2 meshes of 18 channels (for 2048^2, five convolutions per block instead of three), 2 classes per block of
/// 64x64. Dryden et al. 2019, who publish the filters of the first (128) and the last two (384, 128) of the six blocks;
/// we chose the others.
Model mesh_tangling(const ModelSize& size = {});

/// A decoder that predicts the next token at each place: learned positions, and blocks of causal attention and of a
/// linear layer of four times the width with GELU, each after a normalization and with a shortcut (Radford et al.
/// 2019). 4 blocks of 256 channels with 4 heads, 256 places, 256 tokens: bytes of text.
Model gpt(const ModelSize& size = {});
/// GPT-2 small: 12 blocks of 768 channels with 12 heads, 1,024 places, 50,257 tokens. The scores share the
/// embedding's table: 124,439,808 weights.
Model gpt2_small(const ModelSize& size = {});
/// The models of 22 and 175 billion weights of Korthikanti et al. 2022: 48 blocks of 6,144 channels with 64 heads, and
/// 96 blocks of 12,288 channels with 96 heads; 2,048 places, 51,200 tokens.
Model gpt_22b(const ModelSize& size = {});
Model gpt_175b(const ModelSize& size = {});

/// An encoder that guesses hidden tokens from both sides (mask_tokens): blocks of attention to all places and of a
/// linear layer of four times the width with GELU, each with a shortcut and a normalization behind it (Devlin et al.
/// 2019). 12 blocks of 768 channels with 12 heads, 512 places, 30,522 tokens. Labels of -100 count for nothing, unless
/// `labels` names another one. There are no pairs of sentences. The scores have weights of their own unless they are
/// `tied`, and always a bias.
Model bert(const ModelSize& size = {});

/// 224x224 RGB images, 1,000 classes, in patches of 16x16: the small vision transformer, 12 blocks of 384 channels with
/// 6 heads (Dosovitskiy et al. 2021, Touvron et al. 2021). The mean over all places is classified.
Model vit(const ModelSize& size = {});

/// 13 numbers and 26 categories, 2 classes: clicked or not. A perceptron of 512, 256, 64 and 16 features reads the
/// numbers, and each category one of 26 tables of 16 features. All products of two of these vectors go to a perceptron
/// of 512 and 256 (Naumov et al. 2019, for the data of Criteo Kaggle). Their tables have up to 10 million rows; ours
/// have 10,000 each.
Model dlrm(const ModelSize& size = {});

/// Names of the built-in models: "fashion-cnn", "mesh-tangling", ...
std::vector<std::string> builtin_models();
/// Returns the built-in model of that name. Throws Error with the nearest name if there is none.
Model builtin_model(const std::string& name, const ModelSize& size = {});

}  // namespace partita
