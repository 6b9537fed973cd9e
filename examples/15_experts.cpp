// A transformer in which each place takes two of eight experts. Four ranks divide the samples, and in between the
// experts: an all-to-all takes the places to the ranks of their experts, another one takes them back.
//
// $ build/mpiexec -n 4 build/examples/15_experts train --data synthetic --samples 512 --dtype f64 --batch 32 --epochs 2 --optimizer adamw --rate 0.003
// model      experts (39264 weights)
// strategy   declared, grid "data=4"
// workload   batch 32, f64, adamw rate 0.003 beta1 0.9 beta2 0.999 epsilon 1e-08
// ranks      4 (rank:pid 0:1808 1:1809 2:1810 3:1811)
// epoch 1    loss 2.2897  accuracy 49.44%  perplexity 9.87  0.2 s  2757 images/s
// epoch 2    loss 0.9938  accuracy 85.69%  perplexity 2.70  0.2 s  3085 images/s
// test  2    loss 0.8969  accuracy 87.24%  top-5 89.54%  perplexity 2.45  0.1 s  6939 images/s
// moved      2240 messages, 101026816 bytes by all ranks (predicted 2240, 101026816)
// memory     7.2 MiB at most on a rank (predicted 7.2 MiB)
#include <partita/partita.hpp>

using namespace partita;

constexpr Index vocabulary = 32, width = 32, count = 8;

Value linear(Model& m, const std::string& name, Value x, Index features, Index groups = 1) {
  return m.linear(name, x, {.features = features, .bias = false, .per_place = true, .groups = groups});
}

Model experts() {
  const Experts routing{.experts = count, .chosen = 2, .capacity = 1.5, .normalized = true, .balance = 0.01};
  Model m("experts");
  Value t = m.input("tokens", {.length = 32, .tokens = true});
  Value x = m.embedding("embedding", t, {.vocabulary = vocabulary, .features = width, .deviation = 1});
  t = m.attention("attention", linear(m, "qkv", m.rms_norm("norm1", x), 3 * width), {.heads = 4, .causal = true});
  x = m.add("sum1", x, linear(m, "out", t, width));
  t = m.rms_norm("norm2", x);
  const Value scores = linear(m, "router", t, count);
  t = m.dispatch("dispatch", t, scores, routing);  // for each expert a slot of `width` channels
  t = m.silu("expert_silu", linear(m, "expert_up", t, count * 2 * width, count));
  t = m.combine("combine", scores, linear(m, "expert_down", t, count * width, count), routing);
  x = m.add("sum2", x, t);
  m.softmax_cross_entropy("loss", linear(m, "scores", m.rms_norm("norm3", x), vocabulary));
  return m;
}

Strategy experts_over_ranks() {
  Strategy s("data=4");
  s.layer("*", {.output = "N@data"}).layer("expert_*", {.output = "C@data"});
  return s;
}

int main(int argc, char** argv) { return partita::main(argc, argv, experts, experts_over_ranks); }
