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

std::vector<std::string> names_of_inputs(const Model& model) {
  std::vector<std::string> names;
  for (const int input : model.inputs()) names.push_back(model.layers()[input].name);
  return names;
}

/// The number of tokens that a layer which reads them knows.
Index known_tokens(const Model& model, const Layer& layer) {
  return layer.op->weights(model.inputs_of(model.find(layer.name), model.shapes()))[0].shape['V'];
}

/// Throws Error unless the samples have the shape of an input of the model, are tokens where it takes them, and each
/// token is in the vocabulary of its readers.
void check_input(const SampleInput& own, const std::string& name, const Model& model, int input) {
  const Layer& layer = model.layers()[input];
  const Shape sample = one_of(model.shapes(1)[input]);
  const std::string of = own.name.empty() ? "" : fmt::format("input '{}' of the ", own.name);
  if (!(own.shape == sample))
    fail("the {}samples of '{}' are {}, but the model's input '{}' takes {}", of, name, own.shape.print(), layer.name,
         sample.print());
  if ((own.vocabulary > 0) != layer.op->integers())
    fail("the {}samples of '{}' are {}, but the model's input '{}' takes {}", of, name,
         own.vocabulary > 0 ? "tokens" : "values", layer.name, layer.op->integers() ? "tokens" : "values");
  for (const auto& reader : model.layers())
    if (own.vocabulary > 0 && !reader.inputs.empty() && reader.inputs[0] == input)
      if (const Index known = known_tokens(model, reader); known < own.vocabulary)
        fail("the data set '{}' has {} tokens, but the model's layer '{}' has a table of {}", name, own.vocabulary,
             reader.name, known);
}

void check_data(const Dataset& data, const TrainOptions& options, const Model& model) {
  const auto shapes = model.shapes(1);
  const auto& loss = model.layers().back();
  const Shape& scores = shapes[loss.inputs[0]];
  const Target target = loss.op->target(scores);
  if (data.size() < 1 || data.size() > most_in_data_set)
    fail("the data set '{}' has {} samples (size()); it must have from 1 to 2^40", options.trainer.data, data.size());
  if (data.classes() < 0)
    fail("the data set '{}' has {} classes (classes()); 0 means values", options.trainer.data, data.classes());
  const std::vector<int> inputs = model.inputs(), numbers = match_inputs(data, names_of_inputs(model));
  const std::vector<SampleInput> own = data.inputs();
  for (std::size_t i = 0; i < inputs.size(); ++i) check_input(own[numbers[i]], options.trainer.data, model, inputs[i]);
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
  if (moves && inputs.size() > 1)
    fail("--flip and --shift move images, but the model reads {} inputs ({}); leave these options out", inputs.size(),
         quoted_list(names_of_inputs(model)));
  const Shape sample = one_of(shapes[0]);
  for (int d = 0; d < sample.dims(); ++d)
    if (is_spatial(sample.name(d)) && options.trainer.augmentation.shift >= sample.extent(d))
      fail("--shift {}: an image's {} is {}, so nothing of the image would be left; give a smaller shift",
           options.trainer.augmentation.shift, sample.name(d), sample.extent(d));
}

std::unique_ptr<Dataset> make_synthetic_inputs(const Model& model, const Target& target, Index samples,
                                               std::uint64_t seed, int part) {
  if (!target.labels || target.shape.dims() > 1)
    fail("--data synthetic: a model of several inputs needs one label per sample, but the loss '{}' takes {}",
         model.layers().back().name, print_target(one_of(target.shape), target.labels));
  const auto shapes = model.shapes(1);
  std::vector<SampleInput> inputs;
  for (const int input : model.inputs()) {
    Index vocabulary = 0;
    for (const auto& reader : model.layers())
      if (model.layers()[input].op->integers() &&
          std::find(reader.inputs.begin(), reader.inputs.end(), input) != reader.inputs.end()) {
        constexpr Index segments = 2;
        const Index known = reader.op->kind() == "attention" ? segments : known_tokens(model, reader);
        vocabulary = vocabulary == 0 ? known : std::min(vocabulary, known);
      }
    inputs.push_back({model.layers()[input].name, one_of(shapes[input]), vocabulary});
  }
  return make_synthetic(std::move(inputs), samples, shapes[model.layers().back().inputs[0]]['C'], seed, part);
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
    if (model.inputs().size() > 1 && !options.separates())
      data = make_synthetic_inputs(model, target, samples, options.trainer.seed, part);
    else if (model.layers().front().op->integers())
      data = make_synthetic_tokens(shapes[0]['L'], scores['C'] - (options.mask_share() > 0 ? 1 : 0), samples,
                                   options.trainer.seed, part);
    else
      data = make_synthetic(one_of(shapes[0]), one_of(target.shape), samples, target.labels ? scores['C'] : 0,
                            options.trainer.seed, part);
  } else if (options.trainer.data == "text") {
    const Shape tokens = model.shapes(1)[0];
    const std::vector<int> inputs = model.inputs();
    const auto reads_tokens = [&](int input) { return model.layers()[input].op->integers(); };
    if (!std::all_of(inputs.begin(), inputs.end(), reads_tokens) || !tokens.has('L'))
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
  if (data->name().empty()) data->set_name(options.trainer.data);
  if (options.separates())
    data = naming_option("--separator", options.separator,
                         [&] { return separate_documents(std::move(data), options.separator); });
  if (const double share = options.mask_share(); share != 0)
    data = naming_option("--mask-tokens", share, [&] {
      const Layer& loss = model.layers().back();
      const Target target = loss.op->target(model.shapes(1)[loss.inputs[0]]);
      if (!target.ignored)
        fail("the loss '{}' ignores no label, but most tokens are not to be guessed; give --ignore-label -100",
             loss.name);
      const auto ignored = static_cast<std::int32_t>(*target.ignored);
      return mask_tokens(std::move(data), {.share = share, .ignored = ignored, .seed = options.trainer.seed});
    });
  check_data(*data, options, model);
  return data;
}

}  // namespace partita::cli
