// The three products of a linear layer. First: how each product runs if every tensor is sharded over a 2x2 grid. In a
// product C = A B, the layout after "as" is the part that a rank multiplies; the elements that it lacks arrive in
// panels. Then: what rank 0 sends and holds for the layer in a training step, under six strategies for eight ranks.
// Of small batches, panels of x move less than weights in shards. 2.5D pays off on many ranks, because it gathers less.
//
// $ build/examples/10_product
// y = x w'     summa-b  A "N C@r" as "N C@r", B "F@c C@r" as "F@c C@r", C "N C@c sum@r" to "N@r C@c"
// dx = dy w    summa-b  A "N@r C@c" as "N C@c", B "F@c C@r" as "F@c C@r", C "N C@r sum@c" to "N@r C@c"
// dw = dy' x   summa-c  A "N@r C@c" as "N C@c", B "N C@r" as "N C@r", C "F@c C@r" to "F@c C@r"
//
// fc on 8 ranks            messages       sent       held
// samples                         1   64.0 MiB  194.0 MiB
// samples, w in shards            3  192.0 MiB   26.0 MiB
// samples, w in panels           29   12.8 MiB   30.0 MiB
// columns                         8    7.5 MiB   30.0 MiB
// 2D                              8   10.0 MiB   28.0 MiB
// 2.5D                           12   20.0 MiB   27.0 MiB
#include <partita/partita.hpp>

using namespace partita;

namespace {

Model model() {
  Model m("one-layer");
  Value t = m.input("x", {.channels = 4096, .spatial = {1, 1}});
  t = m.linear("before", t, {.features = 2048});  // so that fc has a dx
  t = m.linear("fc", t, {.features = 8192, .bias = false});
  m.mean_squared_error("loss", t);
  return m;
}

Plan plan_of(const char* grid, const char* layout, const char* weights, const char* algorithm = "auto") {
  Strategy strategy(grid);
  strategy.layer("*", {.output = layout});
  strategy.layer("fc", {.weights = weights, .algorithm = algorithm});
  return bind(model(), strategy, {.batch = 512, .optimizer = {}});
}

void show(const ProductPlan& p, const char* algebra) {
  fmt::print("{:<12} {:<8} A \"{}\" as \"{}\", B \"{}\" as \"{}\", C \"{}\" to \"{}\"\n", algebra, name(p.algorithm),
             p.a.layout.print(), p.a_used.print(), p.b.layout.print(), p.b_used.print(), p.c_made.print(),
             p.c.layout.print());
}

}  // namespace

int main() {
  const Plan summa = plan_of("r=2 c=2", "N@r C@c", "F@c C@r");
  const auto& products = summa.layer("fc")->at.products;
  show(products[0], "y = x w'");
  show(products[1], "dx = dy w");
  show(products[2], "dw = dy' x");

  struct Case {
    const char *name, *grid, *layout, *weights, *algorithm = "auto";
  };
  const int fc = model().find("fc");
  fmt::print("\n{:<22} {:>10} {:>10} {:>10}\n", "fc on 8 ranks", "messages", "sent", "held");
  for (const Case& c :
       {Case{"samples", "p=8", "N@p", "F"}, Case{"samples, w in shards", "p=8", "N@p", "F@p"},
        Case{"samples, w in panels", "p=8", "N@p", "F@p", "auto/auto/auto"}, Case{"columns", "p=8", "C@p", "F@p"},
        Case{"2D", "r=2 c=4", "N@r C@c", "F@c C@r"}, Case{"2.5D", "r=2 c=2 l=2", "N@r C@(c,l)", "F@c C@(l,r)"}}) {
    const Plan plan = plan_of(c.grid, c.layout, c.weights, c.algorithm);
    Traffic sent;
    for (const auto& item : layer_traffic(plan, fc, 0)) sent += item.traffic;
    fmt::print("{:<22} {:>10} {:>10} {:>10}\n", c.name, sent.messages, print_bytes(sent.bytes),
               print_bytes(layer_memory(plan, fc, 0).total()));
  }
  return 0;
}
