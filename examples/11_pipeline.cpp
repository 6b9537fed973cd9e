// A pipeline of three stages, each on a grid of its own: prints the tensors that go from stage to stage, the schedules,
// and the memory of ranks. A batch of 32 samples goes through in eight microbatches. The bubble rate assumes that every
// action takes one unit of time.
//
// $ build/examples/11_pipeline
// pool1 goes from stage 0 as "N C H@y W@x" to stage 1 as "N C H W"
// pool1 goes from stage 0 as "N C H@y W@x" to stage 2 as "N C H W"
// relu2 goes from stage 1 as "N C@c H W" to stage 2 as "N C H W"
//
// gpipe: bubble rate 0.200; ranks 0, 4 and 6 hold 1.9 MiB, 1.8 MiB and 3.2 MiB
//     0 |FFFFFFFF......BBBBBBBBBBBBBBBB|
//     1 |.FFFFFFFF...BBBBBBBBBBBBBBBB..|
//     2 |..FFFFFFFFBBBBBBBBBBBBBBBB....|
//
// 1f1b: bubble rate 0.200; ranks 0, 4 and 6 hold 855.3 KiB, 822.5 KiB and 1.8 MiB
//     0 |FFF....BBFBBFBBFBBFBBFBB.BB.BB|
//     1 |.FF..BBFBBFBBFBBFBBFBBFBB.BB..|
//     2 |..FBBFBBFBBFBBFBBFBBFBBFBB....|
//
// zb-h1: bubble rate 0.077; ranks 0, 4 and 6 hold 887.3 KiB, 886.5 KiB and 2.4 MiB
//     0 |FFF..IWFIWFIWFIWFIWFIWIWIW|
//     1 |.FF.IFIWFIWFIWFIWFIWFIWIWW|
//     2 |..FIFIFIWFIWFIWFIWFIWFIWWW|
#include <partita/partita.hpp>

using namespace partita;

namespace {

Model model() {
  Model m("small");
  Value t = m.input("image", {.channels = 3, .spatial = {32, 32}});
  t = m.relu("relu1", m.conv("conv1", t, {.filters = 32, .kernel = 3, .padding = 1}));
  const Value skip = m.max_pool("pool1", t, {.window = 2});
  t = m.relu("relu2", m.conv("conv2", skip, {.filters = 32, .kernel = 3, .padding = 1}));
  t = m.add("add", m.conv("conv3", t, {.filters = 32, .kernel = 3, .padding = 1}), skip);
  m.softmax_cross_entropy("loss", m.linear("fc", t, {.features = 10}));
  return m;
}

Strategy stages(ScheduleKind schedule) {
  Strategy s;
  s.group({"image", "pool1", Grid::parse("y=2 x=2")})  // rows and columns over four ranks
      .group({"conv2", "relu2", Grid::parse("c=2")})   // channels over two
      .group({"conv3", "loss"})                        // one rank
      .schedule(schedule, 8)
      .layer("*", {.output = "C@c H@y W@x"});
  return s;
}

}  // namespace

int main() {
  const Workload workload{.batch = 32, .optimizer = {}};
  const Plan plan = bind(model(), stages(ScheduleKind::one_f_one_b), workload);
  for (const auto& layer : plan.layers)
    for (const auto& boundary : layer.sends_to_stages)
      fmt::print("{} goes from stage {} as \"{}\" to stage {} as \"{}\"\n", layer.name, layer.group,
                 boundary.from.print(), boundary.group, boundary.to.print());
  for (const ScheduleKind kind : {ScheduleKind::gpipe, ScheduleKind::one_f_one_b, ScheduleKind::zb_h1}) {
    const Plan each = bind(model(), stages(kind), workload);
    const Simulation run = simulate(each.schedule, graph_of(each), equal_times(3, 1, {}, 0));
    fmt::print("\n{}: bubble rate {:.3f}; ranks 0, 4 and 6 hold {}, {} and {}\n{}", name(kind), run.bubble_rate(),
               print_bytes(peak_memory(each, 0).total), print_bytes(peak_memory(each, 4).total),
               print_bytes(peak_memory(each, 6).total), draw_timeline(run, 100));
  }
  return 0;
}
