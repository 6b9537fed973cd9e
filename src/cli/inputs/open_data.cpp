#include "src/cli/inputs/open_data.hpp"

#include "partita/base/error.hpp"
#include "src/cli/options/option_values.hpp"
#include "src/model/operators.hpp"

#include <algorithm>

namespace partita::cli {

namespace {

constexpr Index most_in_data_set = Index{1} << 40;  // so that orders and positions can be counted

/// The shape of one sample: the batch's shape without N.
Shape one_of(const Shape& batch) {
  Shape one;
  for (int d = 0; d < batch.dims(); ++d)
    if (batch.name(d) != 'N') one.push_back({batch.name(d), batch.extent(d)});
  return one;
}

std::string print_target(const Shape& target, bool labels) {
  if (target.dims() == 0) return labels ? "one label per sample" : "one value per sample and 0 classes";
  return labels ? fmt::format("labels per sample, {}", target.print())
                : fmt::format("values per sample, {}, and 0 classes", target.print());
}

/// Throws Error for a data set with more classes than the model predicts.
[[noreturn]] void fail_classes(const Dataset& data, const std::string& name, Index predicted,
                               std::optional<Index> ignored) {
  const std::string sample = data.label_beyond(predicted, ignored);
  fail("{}, but the model predicts {} classes (labels 0 to {}); {}use a model that predicts {}",
       sample.empty() ? fmt::format("the data set '{}' has {} classes", name, data.classes()) : sample, predicted,
       predicted - 1, sample.empty() ? "" : "correct the label, or ", data.classes());
}

/// Throws Error unless the samples are tokens where the model's input takes them, and each is in its vocabulary.
void check_tokens(const Dataset& data, const std::string& name, const Model& model) {
  const Layer& input = model.layers().front();
  if ((data.vocabulary() > 0) != input.op->integers())
    fail("the samples of '{}' are {}, but the model's input '{}' takes {}", name,
         data.vocabulary() > 0 ? "tokens" : "values", input.name, input.op->integers() ? "tokens" : "values");
  for (const auto& layer : model.layers())
    if (const auto* embedding = dynamic_cast<const EmbeddingOperator*>(layer.op.get()))
      if (embedding->vocabulary() < data.vocabulary())
        fail("the data set '{}' has {} tokens, but the model's layer '{}' has a table of {}", name, data.vocabulary(),
             layer.name, embedding->vocabulary());
}

void check_data(const Dataset& data, const TrainOptions& options, const Model& model) {
  const auto shapes = model.shapes(1);
  const auto& loss = model.layers().back();
  const Shape &scores = shapes[loss.inputs[0]], sample = one_of(shapes[0]);
  const Target target = loss.op->target(scores);
  if (data.size() < 1 || data.size() > most_in_data_set)
    fail("the data set '{}' has {} samples (size()); it must have from 1 to 2^40", options.trainer.data, data.size());
  if (data.classes() < 0)
    fail("the data set '{}' has {} classes (classes()); 0 means values", options.trainer.data, data.classes());
  if (!(data.sample() == sample))
    fail("the samples of '{}' are {}, but the model's input '{}' takes {}", options.trainer.data, data.sample().print(),
         model.layers().front().name, sample.print());
  check_tokens(data, options.trainer.data, model);
  if (!(data.target() == one_of(target.shape)) || (data.classes() > 0) != target.labels)
    fail("the data set '{}' has {} (target(), classes()), but the loss '{}' needs {}", options.trainer.data,
         print_target(data.target(), data.classes() > 0), loss.name, print_target(one_of(target.shape), target.labels));
  const Index classes = target.ignored ? data.classes_beside(*target.ignored) : data.classes();
  if (target.labels && classes > scores['C']) fail_classes(data, options.trainer.data, scores['C'], target.ignored);
  const bool moves = options.trainer.augmentation.flip || options.trainer.augmentation.shift > 0;
  const Shape places = data.target();
  if (moves && std::any_of(places.names().begin(), places.names().end(), is_spatial))
    fail(
        "--flip and --shift move images but not their targets, and the targets of '{}' have spatial dimensions; leave "
        "these options out",
        options.trainer.data);
  for (int d = 0; d < sample.dims(); ++d)
    if (is_spatial(sample.name(d)) && options.trainer.augmentation.shift >= sample.extent(d))
      fail("--shift {}: an image's {} is {}, so nothing of the image would be left; give a smaller shift",
           options.trainer.augmentation.shift, sample.name(d), sample.extent(d));
}

}  // namespace

std::unique_ptr<Dataset> open_data(const TrainOptions& options, const Model& model, bool training,
                                   const std::function<void(Index done, Index all)>& encoding) {
  std::unique_ptr<Dataset> data;
  if (options.pairs && options.trainer.data != "text")
    fail("--tokenizer {}: it encodes --data text, not '{}'; leave it out", options.tokenizer, options.trainer.data);
  if (options.trainer.data == "synthetic") {
    if (!options.data_dir.empty())
      fail("--data-dir {}: the synthetic data set has no files; leave the option out", options.data_dir);
    const auto shapes = model.shapes(1);
    const Shape& scores = shapes[model.layers().back().inputs[0]];
    const Target target = model.layers().back().op->target(scores);
    const Index samples = options.samples > 0 ? options.samples : 1024;
    const int part = training ? 0 : 1;
    if (model.layers().front().op->integers())
      data = make_synthetic_tokens(shapes[0]['L'], scores['C'] - (options.mask_share() > 0 ? 1 : 0), samples,
                                   options.trainer.seed, part);
    else
      data = make_synthetic(one_of(shapes[0]), one_of(target.shape), samples, target.labels ? scores['C'] : 0,
                            options.trainer.seed, part);
  } else if (options.trainer.data == "text") {
    const Shape tokens = model.shapes(1)[0];
    if (!model.layers().front().op->integers() || !tokens.has('L'))
      fail("--data text: the model '{}' has no input of tokens; use a model of text, as gpt", model.name());
    if (options.data_dir.empty())
      fail("--data text: say with --data-dir which file, or which folder with training.txt and test.txt");
    data = naming_option("--data-dir", options.data_dir, [&] {
      return options.pairs ? open_text(options.data_dir, tokens['L'], training, *options.pairs, encoding)
                           : open_text(options.data_dir, tokens['L'], training);
    });
  } else {
    if (options.samples > 0)
      fail("--samples {}: only the synthetic data set has a size that you can choose; leave the option out",
           options.samples);
    data = naming_option("--data", options.trainer.data,
                         [&] { return open_dataset(options.trainer.data, options.data_dir, training); });
  }
  if (const double share = options.mask_share(); share != 0)
    data = naming_option("--mask-tokens", share,
                         [&] { return mask_tokens(std::move(data), {.share = share, .seed = options.trainer.seed}); });
  check_data(*data, options, model);
  return data;
}

}  // namespace partita::cli
