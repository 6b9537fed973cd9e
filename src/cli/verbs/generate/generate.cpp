#include "partita/train/trainer/generator.hpp"

#include "partita/base/error.hpp"
#include "partita/strategies/plan/bind.hpp"
#include "partita/train/checkpoint/checkpoint.hpp"
#include "src/cli/files/json.hpp"
#include "src/cli/files/text_file.hpp"
#include "src/cli/inputs/model_and_strategy.hpp"
#include "src/cli/inputs/settle_strategy.hpp"
#include "src/cli/options/number_option.hpp"
#include "src/cli/options/option_values.hpp"
#include "src/cli/options/train_options.hpp"
#include "src/cli/output/memory_fit.hpp"
#include "src/cli/version.hpp"
#include "src/system/clock.hpp"
#include "src/train/trainer/run_memory.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>
#include <utility>

namespace partita::cli {

namespace {

namespace po = boost::program_options;

/// The options of `generate`. The batch is the number of continuations.
struct GenerateOptions : TrainOptions {
  std::string prompt;
  Index tokens = 64;
  Sampling sampling;
};

po::options_description generate_options(GenerateOptions& o) {
  po::options_description group = rank_options(o);
  add_thread_ranks(group, o);
  add_dtype(group, o);
  auto add = group.add_options();
  add("load", po::value(&o.load)->value_name("FILE"),
      "the checkpoint with the weights; it may have been saved under another strategy");
  add_tokenizer(group, o.tokenizer);
  add("prompt", po::value(&o.prompt)->value_name("TEXT"), "the text to continue");
  add("tokens", number(&o.tokens)->default_value(o.tokens)->value_name("N"), "number of tokens to add");
  add("temperature", number(&o.sampling.temperature)->default_value(0, "0")->value_name("T"),
      "draw each token from softmax(scores / T); 0: take the token with the largest score");
  add("top-k", number(&o.sampling.most)->value_name("K"), "draw from the K tokens with the largest scores only");
  add("seed", number(&o.sampling.seed)->default_value(o.sampling.seed)->value_name("N"), "seed of the draws");
  add("json", po::value(&o.json)->value_name("FILE"), "write texts, tokens and times to FILE as JSON");
  return group;
}

void check_numbers(const GenerateOptions& o) {
  if (o.load.empty()) fail("generate needs the weights of a trained model: --load FILE");
  if (o.prompt.empty()) fail("--prompt: give a text to continue, of one byte or more");
  if (o.tokens < 1) fail("--tokens {}: it must be 1 or more", o.tokens);
  if (!(o.sampling.temperature >= 0)) fail("--temperature {}: it must be 0 or more", o.sampling.temperature);
  if (o.sampling.most < 0) fail("--top-k {}: it must be 0 (all) or more", o.sampling.most);
  if (o.sampling.most > 0 && o.sampling.temperature == 0)
    fail("--top-k {}: tokens are drawn only with a --temperature above 0, e.g. 0.8", o.sampling.most);
}

/// What a rank sets up before the first token.
struct Setup {
  Model model;
  Strategy strategy;
  std::optional<CheckpointFile> checkpoint;
  std::unique_ptr<CudaDevice> device;  // null: the rank computes on the CPU
  std::vector<std::int32_t> prompt;
};

/// The tokens of the prompt. Throws Error unless the model can read it and has places for all tokens.
std::vector<std::int32_t> prompt_of(const GenerateOptions& o, const Model& model) {
  static_cast<void>(model.at_places(1));  // throws Error unless the model continues texts
  const auto shapes = model.shapes(1);
  const Index places = shapes[0]['L'], classes = shapes[model.layers().back().inputs[0]]['C'];
  if (const Index known = o.pairs ? o.pairs->size() : 256; classes > known)
    fail("the model '{}' has {} tokens, but {} {}; {}", model.name(), classes,
         o.pairs ? fmt::format("--tokenizer {} has", o.tokenizer) : "bytes are", known,
         o.pairs ? "give the file with which the model was trained" : "give its vocabulary with --tokenizer");
  std::vector<std::int32_t> tokens;
  if (o.pairs)
    tokens = o.pairs->encode(o.prompt);
  else
    for (const char c : o.prompt) tokens.push_back(static_cast<unsigned char>(c));
  const auto beyond = std::find_if(tokens.begin(), tokens.end(), [&](std::int32_t token) { return token >= classes; });
  if (beyond != tokens.end())
    fail("--prompt: its token {} is {}, but the model '{}' knows the tokens 0 to {}", beyond - tokens.begin() + 1,
         *beyond, model.name(), classes - 1);
  const Index count = std::ssize(tokens);
  if (count >= places)
    fail("--prompt: it has {}, but the model '{}' has {} places, of which one or more are for new tokens",
         counted(count, "token"), model.name(), places);
  if (o.tokens > places - count)
    fail("--tokens {}: with the {} of the prompt these are more than the {} places of the model '{}'; give {} or fewer",
         o.tokens, counted(count, "token"), places, model.name(), places - count);
  return tokens;
}

/// The places that the run computes: nothing follows from the last token.
Index places_of(const GenerateOptions& o, const Setup& setup) { return std::ssize(setup.prompt) + o.tokens - 1; }

/// Collective: every rank of `world` calls it.
Setup set_up(GenerateOptions& o, const ModelFactory& factory, Communicator& world) {
  Setup setup;
  setup.device = make_rank_device(o.device, world);
  const MessageMemory messages = setup.device ? message_memory(*setup.device, o.device, o.trainer.overlap, world)
                                              : message_memory(world, o.trainer.overlap);
  agree_or_throw(world, [&] {
    setup.model = make_model(o, factory);
    setup.checkpoint.emplace(o.load);
    setup.prompt = prompt_of(o, setup.model);
    const Model pass = setup.model.at_places(std::ssize(setup.prompt));
    const Strategy given = make_strategy(o, world.size());
    check_ranks(given, world.size());
    const MachineFiles files = load_machine(o);
    setup.strategy = settle_strategy(o, pass, given, files).strategy;
    const Plan plan = bind(pass, setup.strategy, make_workload(o));
    check_fits(plan, pass, given, files, limit_of(o, files.machine), [&](int rank) {
      MemoryUse held = state_memory(plan, rank);
      held[MemoryClass::activations] += kept_memory(plan, rank, places_of(o, setup));
      return peak_memory(plan, rank, held, messages);
    });
    naming_option("--backend", o.trainer.backend,
                  [&] { make_backend(o.trainer.backend, o.trainer.dtype, o.trainer.threads); });
    if (world.rank() == 0) {
      check_writable({{"--json", o.json, FileKind::json}}, strategy_files(o));
      check_writable({{"--json", o.json}}, {{"--load", o.load}});
    }
  });
  return setup;
}

/// The bytes of some tokens.
std::string text_of(const GenerateOptions& o, std::span<const std::int32_t> tokens) {
  std::string text;
  for (const std::int32_t token : tokens)
    text += o.pairs ? o.pairs->bytes(token) : std::string(1, static_cast<char>(static_cast<unsigned char>(token)));
  return text;
}

/// One run of `generate`.
class Generation {
 public:
  Generation(const GenerateOptions& options, Setup setup, Communicator& world)
      : options_(options),
        setup_(std::move(setup)),
        world_(world),
        generator_(setup_.model, setup_.strategy, options.trainer, world, processor(), places_of(options, setup_)),
        continuations_(static_cast<std::size_t>(options.trainer.batch)) {}

  int operator()() {
    generator_.load(*setup_.checkpoint);
    const bool streams = world_.rank() == 0 && continuations_.size() == 1;
    if (streams) show(options_.prompt);
    std::vector<std::int32_t> next;
    for (std::size_t i = 0; i < continuations_.size(); ++i)
      next.insert(next.end(), setup_.prompt.begin(), setup_.prompt.end());
    const double began = now();
    for (Index i = 0; i < options_.tokens; ++i) {
      next = generator_.next(next, [&](Index sequence, std::span<const double> scores) {
        return choose_token(options_.sampling, sequence, i, scores);
      });
      if (i == 0) first_seconds_ = now() - began;
      for (std::size_t n = 0; n < next.size(); ++n) continuations_[n].push_back(next[n]);
      if (streams) show(text_of(options_, next));
    }
    more_seconds_ = now() - began - first_seconds_;
    if (streams) show("\n");
    finish();
    return 0;
  }

 private:
  Processor processor() const {
    const TrainerOptions& trainer = options_.trainer;
    if (setup_.device) return make_processor(*setup_.device, options_.device, trainer.dtype, world_);
    return cpu_processor(world_, make_backend(trainer.backend, trainer.dtype, trainer.threads));
  }

  /// Prints a text at once, whatever bytes it has.
  static void show(const std::string& text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  }

  /// Prints what the run took, and writes the results. Collective: every rank of the world calls it.
  void finish() {
    const Trainer& trainer = generator_.trainer();
    const Traffic predicted = trainer.predicted(), measured = trainer.measured();
    std::array sums{predicted.messages, predicted.bytes, measured.messages, measured.bytes};
    std::array most{generator_.kept_bytes(), trainer.predicted_memory().total, trainer.peak_memory().total};
    reduce(sums, ReduceOp::sum);
    reduce(most, ReduceOp::max);
    if (world_.rank() != 0) return;
    if (continuations_.size() > 1)
      for (std::size_t n = 0; n < continuations_.size(); ++n)
        show(fmt::format("text {}\n{}{}\n", n + 1, options_.prompt, text_of(options_, continuations_[n])));
    const Index more = options_.tokens - 1;
    fmt::print("generated  {} in {:.2f} s, the first after {:.2f} s; keys and values take {} on a rank\n",
               counted(options_.tokens, "token"), first_seconds_ + more_seconds_, first_seconds_, print_bytes(most[0]));
    if (options_.json.empty()) return;
    Json json{{"subject", "generate"},
              {"version", version},
              {"model", setup_.model.name()},
              {"strategy", options_.strategy},
              {"grid", trainer.plan().grid().print()},
              {"ranks", world_.size()},
              {"batch", options_.trainer.batch},
              {"dtype", partita::name(options_.trainer.dtype)},
              {"backend", trainer.backend()},
              {"temperature", options_.sampling.temperature},
              {"top_k", options_.sampling.most},
              {"seed", options_.sampling.seed},
              {"prompt", options_.prompt},
              {"prompt_tokens", setup_.prompt}};
    for (const auto& tokens : continuations_)
      json["continuations"].push_back({{"text", text_of(options_, tokens)}, {"tokens", tokens}});
    json["first_seconds"] = first_seconds_;
    json["seconds_per_token"] = more > 0 ? Json(more_seconds_ / static_cast<double>(more)) : Json();
    json["kept_bytes"] = most[0];
    json["predicted_messages"] = sums[0];
    json["measured_messages"] = sums[2];
    json["predicted_bytes"] = sums[1];
    json["measured_bytes"] = sums[3];
    json["predicted_memory"] = most[1];
    json["measured_memory"] = most[2];
    write_text("--json", options_.json, print_json(json));
  }

  template <std::size_t count>
  void reduce(std::array<Index, count>& numbers, ReduceOp op) {
    std::array<double, count> all{};
    std::copy(numbers.begin(), numbers.end(), all.begin());
    world_.all_reduce(all.data(), count, DType::f64, op, {}).wait();
    std::transform(all.begin(), all.end(), numbers.begin(), [](double value) { return static_cast<Index>(value); });
  }

  const GenerateOptions& options_;
  Setup setup_;
  Communicator& world_;
  Generator generator_;
  std::vector<std::vector<std::int32_t>> continuations_;
  double first_seconds_ = 0, more_seconds_ = 0;  // until the first token, and of the others
};

class Generate final : public ModelCommand<GenerateOptions> {
 public:
  explicit Generate(const Program& program) : ModelCommand(program) {
    options_.verb = "generate";
    options_.trainer.batch = 1;
    options_.trainer.training = false;
  }
  void add_options(po::options_description& all) override {
    all.add(model_options(options_, program_, {.machine = false})).add(generate_options(options_));
  }
  void check(const CommandLine& line) override {
    settle_on_ranks(options_, program_, line);
    check_numbers(options_);
    options_.read_tokenizer();
  }
  int run(Communicator* world) const override {
    GenerateOptions options = options_;
    Setup setup = set_up(options, program_.model, *world);
    return Generation(options, std::move(setup), *world)();
  }
};

}  // namespace

extern const VerbEntry generate_verb{"generate", "continues a text with a trained model of text, token by token",
                                     "{0} generate --model gpt --load w.h5 --prompt \"Once\"", make<Generate>,
                                     VerbEntry::Ranks::always};

}  // namespace partita::cli
