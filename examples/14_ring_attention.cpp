// A transformer whose sequence is cut over four ranks. All heads of queries share one head of keys and one of values,
// so that heads cannot be divided: instead keys and values travel around the ranks while these compute with them.
//
// $ build/mpiexec -n 4 build/examples/14_ring_attention train --data synthetic --samples 512 --dtype f64 --batch 32 --epochs 2 --optimizer adamw --rate 0.003
// model      long-sequence (4672 weights)
// strategy   declared, grid "l=4"
// workload   batch 32, f64, adamw rate 0.003 beta1 0.9 beta2 0.999 epsilon 1e-08
// ranks      4 (rank:pid 0:28521 1:28522 2:28523 3:28524)
// epoch 1    loss 3.1264  accuracy 22.86%  perplexity 22.79  0.3 s  1488 images/s
// epoch 2    loss 1.6443  accuracy 69.93%  perplexity 5.18  0.4 s  1381 images/s
// test  2    loss 1.2421  accuracy 84.06%  top-5 88.36%  perplexity 3.46  0.1 s  5168 images/s
// moved      992 messages, 70847488 bytes by all ranks (predicted 992, 70847488)
// memory     6.8 MiB at most on a rank (predicted 6.8 MiB)
#include <partita/partita.hpp>

using namespace partita;

constexpr Index vocabulary = 32, width = 32;

Value linear(Model& m, const std::string& name, Value x, Index features) {
  return m.linear(name, x, {.features = features, .bias = false, .per_place = true});
}

Model transformer() {
  Model m("long-sequence");
  Value t = m.input("tokens", {.length = 96, .tokens = true});
  const Value x = m.embedding("embedding", t, {.vocabulary = vocabulary, .features = width, .deviation = 1});
  t = linear(m, "qkv", m.rms_norm("norm1", x), 8 * (4 + 1 + 1));  // heads of 8 channels: four, one and one
  t = m.rotary("rotary", t, {.heads = 4, .groups = 1});
  t = m.attention("attention", t, {.heads = 4, .groups = 1, .causal = true});
  t = m.add("sum", x, linear(m, "out", t, width));
  m.softmax_cross_entropy("loss", linear(m, "scores", m.rms_norm("norm2", t), vocabulary));
  return m;
}

Strategy places() {
  Strategy s("l=4");
  s.layer("*", {.output = "L@l"}).layer("attention", {.algorithm = Algorithm::ring});
  return s;
}

int main(int argc, char** argv) { return partita::main(argc, argv, transformer, places); }
