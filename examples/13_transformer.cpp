// A transformer of your own, with grouped queries, rotary positions and SwiGLU, on four ranks: samples are cut over two
// of them, heads and channels over the others.
//
// $ build/mpiexec -n 4 build/examples/13_transformer train --data synthetic --samples 512 --dtype f64 --batch 32 --epochs 4 --optimizer adamw --rate 0.003 --clip-norm 1
// model      transformer (26784 weights)
// strategy   declared, grid "data=2 t=2"
// workload   batch 32, f64, adamw rate 0.003 beta1 0.9 beta2 0.999 epsilon 1e-08 clip 1
// ranks      4 (rank:pid 0:28569 1:28570 2:28571 3:28572)
// epoch 1    loss 2.3630  accuracy 47.45%  perplexity 10.62  0.3 s  1847 images/s
// epoch 2    loss 0.9669  accuracy 86.17%  perplexity 2.63  0.2 s  2126 images/s
// epoch 3    loss 0.8099  accuracy 87.76%  perplexity 2.25  0.3 s  1927 images/s
// epoch 4    loss 0.7410  accuracy 87.87%  perplexity 2.10  0.3 s  2039 images/s
// test  4    loss 0.7584  accuracy 87.90%  top-5 89.53%  perplexity 2.13  0.1 s  5283 images/s
// moved      3136 messages, 256185344 bytes by all ranks (predicted 3136, 256185344)
// memory     11.1 MiB at most on a rank (predicted 11.1 MiB)
#include <partita/partita.hpp>

using namespace partita;

constexpr Index vocabulary = 32, width = 32, layers = 2;

Value linear(Model& m, const std::string& name, Value x, Index features) {
  return m.linear(name, x, {.features = features, .bias = false, .per_place = true});
}

/// Heads of 8 channels: four of queries, two of keys and two of values.
Value block(Model& m, const std::string& name, Value x) {
  Value t = linear(m, name + "_qkv", m.rms_norm(name + "_norm1", x), 8 * (4 + 2 + 2));
  t = m.rotary(name + "_rotary", t, {.heads = 4, .groups = 2});
  t = m.attention(name + "_attention", t, {.heads = 4, .groups = 2, .causal = true});
  x = m.add(name + "_add1", x, linear(m, name + "_out", t, width));
  t = linear(m, name + "_up", m.rms_norm(name + "_norm2", x), 2 * 3 * width);
  t = m.gated(name + "_swiglu", t);
  return m.add(name + "_add2", x, linear(m, name + "_down", t, width));
}

Model transformer() {
  Model m("transformer");
  Value t = m.input("tokens", {.length = 24, .tokens = true});
  t = m.embedding("embedding", t, {.vocabulary = vocabulary, .features = width, .deviation = 1});
  for (Index i = 1; i <= layers; ++i) t = block(m, "block" + std::to_string(i), t);
  m.softmax_cross_entropy("loss", linear(m, "scores", m.rms_norm("norm", t), vocabulary));
  return m;
}

/// Columns, then rows: each pair of linear layers takes one all-reduce in each direction.
Strategy columns_rows() {
  Strategy s("data=2 t=2");
  s.layer("*", {.output = "N@data"});
  for (const char* cut : {"*_qkv", "*_rotary", "*_attention", "*_up", "*_swiglu"})
    s.layer(cut, {.output = "N@data C@t"});
  return s;
}

int main(int argc, char** argv) { return partita::main(argc, argv, transformer, columns_rows); }
