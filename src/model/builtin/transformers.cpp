#include "partita/base/error.hpp"
#include "src/model/builtin/parts.hpp"

#include <cmath>
#include <optional>

namespace partita {

namespace {

constexpr double small = 0.02;  // the standard deviation of initial weights (Radford et al. 2019)

/// The parts of a transformer's blocks (Vaswani et al. 2017), each normalized before it (Radford et al. 2019).
class Transformer {
 public:
  Transformer(const char* name, const TransformerSize& size) : m(name), size_(size) {
    if (size_.hidden % size_.heads != 0)
      fail("{} heads do not divide {} hidden channels; a head has as many channels as another", size_.heads,
           size_.hidden);
  }
  const TransformerSize& size() const { return size_; }

  /// The tokens, and the segments of their places if they are asked for.
  Value input() {
    const Input places{.length = size_.sequence, .tokens = true};
    const Value tokens = m.input("tokens", places);
    if (size_.segments) segments_ = m.input("segments", places);
    return tokens;
  }
  /// x + attention(norm(x)), then that + mlp(norm(that)). Layers that end a sum begin smaller, by their number.
  Value block(const std::string& name, Value x, bool causal) {
    Value t = norm(name + "_norm1", x);
    t = linear(name + "_qkv", t, 3 * size_.hidden);
    t = attention(name, t, causal);
    x = m.add(name + "_add1", x, dropout(name + "_drop1", linear(name + "_out", t, size_.hidden, residual())));
    t = norm(name + "_norm2", x);
    return m.add(name + "_add2", x, dropout(name + "_drop2", wide(name, t)));
  }
  /// norm(x + attention(x)), then norm(that + mlp(that)), as Vaswani et al. 2017.
  Value block_before_norm(const std::string& name, Value x) {
    Value t = linear(name + "_qkv", x, 3 * size_.hidden);
    t = attention(name, t, /*causal=*/false);
    t = dropout(name + "_drop1", linear(name + "_out", t, size_.hidden, residual()));
    x = norm(name + "_norm1", m.add(name + "_add1", x, t));
    return norm(name + "_norm2", m.add(name + "_add2", x, dropout(name + "_drop2", wide(name, x))));
  }
  Value attention(const std::string& name, const Value& x, bool causal) {
    const Attention heads{.heads = size_.heads, .causal = causal, .dropout = size_.dropout};
    return segments_ ? m.attention(name + "_attention", x, *segments_, heads)
                     : m.attention(name + "_attention", x, heads);
  }
  Value dropout(const std::string& name, const Value& x) {
    return size_.dropout == 0 ? x : m.dropout(name, x, {.rate = size_.dropout});
  }
  Value wide(const std::string& name, const Value& x) {
    return size_.experts.experts > 1 ? experts(name, x) : mlp(name, x, 1);
  }
  /// Two linear layers, or groups of them.
  Value mlp(const std::string& name, Value x, Index groups) {
    const auto linear = [&](const char* part, Value t, Index features, double deviation) {
      return m.linear(name + part, t,
                      {.features = groups * features, .per_place = true, .deviation = deviation, .groups = groups});
    };
    const Value t = m.gelu(name + "_gelu", linear("_up", x, 4 * size_.hidden, small));
    return linear("_down", t, size_.hidden, residual());
  }
  /// Each place in the linear layers of the experts that it chooses.
  Value experts(const std::string& name, Value x) {
    Experts experts = size_.experts;
    experts.normalized = experts.chosen > 1;
    const Value scores = linear(name + "_router", x, experts.experts, small, /*bias=*/false);
    const Value slots = m.dispatch(name + "_dispatch", x, scores, experts);
    return m.combine(name + "_combine", scores, mlp(name + "_expert", slots, experts.experts), experts);
  }
  Value norm(const std::string& name, Value x) { return m.layer_norm(name, x, {.per_place = true}); }
  /// The scores of all tokens, with weights of their own or with the embedding's table.
  Value scores(const Value& x, bool bias) {
    if (!size_.tied) return linear("scores", x, size_.vocabulary, small, bias);
    return m.linear("scores", x,
                    {.features = size_.vocabulary, .bias = bias, .per_place = true, .tied_to = "embedding"});
  }
  Value linear(const std::string& name, Value x, Index features, double deviation = small, bool bias = true) {
    return m.linear(name, x, {.features = features, .bias = bias, .per_place = true, .deviation = deviation});
  }

  Model m;

 private:
  double residual() const { return small / std::sqrt(2 * static_cast<double>(size_.layers)); }
  TransformerSize size_;
  std::optional<Value> segments_;
};

/// The sizes that are asked for, else the published ones.
TransformerSize sizes_of(const TransformerSize& asked, TransformerSize size) {
  const auto take = [](Index from, Index& to) {
    if (from != 0) to = from;
  };
  take(asked.layers, size.layers);
  take(asked.hidden, size.hidden);
  take(asked.heads, size.heads);
  take(asked.sequence, size.sequence);
  take(asked.vocabulary, size.vocabulary);
  take(asked.patch, size.patch);
  size.dropout = asked.dropout;
  size.experts = asked.experts;
  size.segments = asked.segments;
  size.tied |= asked.tied;
  return size;
}

Model decoder(const char* name, const ModelSize& asked, const TransformerSize& published) {
  Transformer d(name, sizes_of(asked.transformer, published));
  const TransformerSize& size = d.size();
  Value t = d.m.embedding("embedding", d.input(), {.vocabulary = size.vocabulary, .features = size.hidden});
  t = d.dropout("drop", d.m.positions("positions", t));
  for (Index i = 1; i <= size.layers; ++i) t = d.block(fmt::format("block{}", i), t, /*causal=*/true);
  t = d.scores(d.norm("norm", t), /*bias=*/false);
  d.m.softmax_cross_entropy("loss", t, asked.labels);
  return d.m;
}

}  // namespace

Model vit(const ModelSize& asked) {
  const Draft sizes("vit", asked, {.extent = 224, .channels = 3, .classes = 1000});
  Transformer d("vit", sizes_of(asked.transformer, {.layers = 12, .hidden = 384, .heads = 6, .patch = 16}));
  const TransformerSize& size = d.size();
  if (sizes.size.extent % size.patch != 0)
    fail("patches of {} do not divide images of {}x{}", size.patch, sizes.size.extent, sizes.size.extent);
  Value t = d.m.input("image", {.channels = sizes.size.channels, .spatial = {sizes.size.extent, sizes.size.extent}});
  t = d.m.conv("patches", t, {.filters = size.hidden, .kernel = size.patch, .stride = size.patch});
  t = d.dropout("drop", d.m.positions("positions", d.m.places("places", t)));
  for (Index i = 1; i <= size.layers; ++i) t = d.block(fmt::format("block{}", i), t, /*causal=*/false);
  t = d.m.global_average_pool("mean", d.norm("norm", t));
  d.m.softmax_cross_entropy("loss", d.m.linear("scores", t, {.features = sizes.size.classes, .deviation = small}),
                            sizes.size.labels);
  return d.m;
}

Model bert(const ModelSize& asked) {
  Transformer d("bert", sizes_of(asked.transformer, {12, 768, 12, 512, 30522}));
  const TransformerSize& size = d.size();
  Value t = d.m.embedding("embedding", d.input(), {.vocabulary = size.vocabulary, .features = size.hidden});
  t = d.dropout("drop", d.norm("norm", d.m.positions("positions", t)));
  for (Index i = 1; i <= size.layers; ++i) t = d.block_before_norm(fmt::format("block{}", i), t);
  t = d.norm("scores_norm", d.m.gelu("scores_gelu", d.linear("scores_hidden", t, size.hidden)));
  t = d.scores(t, /*bias=*/true);
  CrossEntropy labels = asked.labels;
  if (!labels.ignored) labels.ignored = -100;
  d.m.softmax_cross_entropy("loss", t, labels);
  return d.m;
}

Model gpt(const ModelSize& size) { return decoder("gpt", size, {4, 256, 4, 256, 256}); }
Model gpt2_small(const ModelSize& size) { return decoder("gpt2-small", size, {12, 768, 12, 1024, 50257, 0, true}); }
Model gpt_22b(const ModelSize& size) { return decoder("gpt-22b", size, {48, 6144, 64, 2048, 51200}); }
Model gpt_175b(const ModelSize& size) { return decoder("gpt-175b", size, {96, 12288, 96, 2048, 51200}); }

}  // namespace partita
