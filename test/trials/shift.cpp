// Prints the loss of a step in f64 or f32 for a normalization of mean + deviation * noise, by mean and grid. Arguments:
// the kind of normalization, the deviation, the data type, and the means. The type "rounded" is f64 for inputs that are
// rounded to f32. numerics.py knows the right values: the loss does not depend on the mean.
#include "partita/partita.hpp"
#include "src/base/plain_text.hpp"

#include <fmt/format.h>

using namespace partita;

namespace {

Model normalized(const std::string& kind) {
  Model m("shift");
  auto t = m.input("image", {.channels = 1, .spatial = {32, 32}});
  if (kind == "batch") t = m.batch_norm("norm", t);
  if (kind == "layer") t = m.layer_norm("norm", t);
  if (kind == "group") t = m.group_norm("norm", t, {.groups = 1});
  if (kind == "instance") t = m.instance_norm("norm", t);
  t = m.linear("fc", t, {.features = 1});
  m.mean_squared_error("loss", t);
  return m;
}

double number(const char* text) { return parse_number<double>(text).value(); }

}  // namespace

int main(int argc, char** argv) {
  const Model model = normalized(argv[1]);
  const double deviation = number(argv[2]);
  const bool rounded = std::string_view(argv[3]) == "rounded";
  for (int i = 4; i < argc; ++i)
    for (const char* grid : {"", "y=4", "data=2 x=3"}) {
      Strategy strategy(grid);
      strategy.layer("*", {.output = *grid == '\0' ? "N" : *grid == 'y' ? "H@y" : "N@data W@x"});
      run_thread_ranks(strategy.ranks(), {}, [&](Communicator& comm) {
        TrainerOptions options;
        options.batch = 4;
        options.dtype = parse_dtype(rounded ? "f64" : argv[3]);
        Trainer trainer(model, strategy, options, comm);
        const LocalBatch batch = trainer.make_batch(4);
        fill(batch.images[0].tensor, batch.images[0].shape, [&](Index at) {
          const double value = number(argv[i]) + deviation * Random(1, 1).normal(at);
          return rounded ? static_cast<float>(value) : value;
        });
        const double loss = trainer.step(batch).loss;
        if (comm.rank() == 0) fmt::print("{} \"{}\" {:.15g}\n", argv[i], grid, loss);
      });
    }
}
