#include "src/cli/support/rank_options.hpp"

#include "partita/base/error.hpp"
#include "partita/base/launched_rank.hpp"
#include "partita/comm/mpi.hpp"
#include "src/cli/support/machine_files.hpp"
#include "src/cli/support/number_option.hpp"
#include "src/cli/support/text_file.hpp"

namespace partita::cli {

namespace po = boost::program_options;

namespace {

bool runs_on_ranks(const Options& o) {
  return o.verb == "train" || o.verb == "evaluate" || o.verb == "calibrate" || (o.verb == "compare" && o.measure);
}

/// Takes the number of ranks of `compare --measure`, whose --ranks otherwise asks for curves.
void take_measured(Options& o) {
  if (o.rank_counts.empty()) return;
  if (o.rank_counts.size() > 1)
    fail("--measure takes one number of --ranks: the ranks are threads of this process; `scale` measures several");
  if (o.weak) fail("--weak predicts curves, and cannot be combined with --measure");
  if (!o.csv.empty()) fail("--csv {}: it holds curves, and cannot be combined with --measure", o.csv);
  o.thread_ranks = o.rank_counts.front();
  o.rank_counts.clear();
}

void check_number(const Options& o) {
  constexpr int most = 1024;
  if (o.thread_ranks < 1) fail("--ranks {}: it must be 1 or more", o.thread_ranks);
  if (o.thread_ranks > most)
    fail("--ranks {}: one process has at most {} ranks; start processes with mpiexec -n {}", o.thread_ranks, most,
         o.thread_ranks);
}

}  // namespace

void add_rank_option(po::options_description& group, Options& o) {
  group.add_options()("ranks", number(&o.thread_ranks)->value_name("N"),
                      "run N ranks as threads of this one process, without MPI; the results are those of mpiexec -n N");
}

void settle_ranks(Options& o) {
  if (!runs_on_ranks(o)) return;
  if (o.verb == "compare") take_measured(o);
  const bool given = o.given.contains("ranks");
  if (given) check_number(o);
  if (const int processes = launched_processes().number; processes > 1) {
    if (given && launched_rank() != nullptr)
      fail(
          "--ranks {}: the ranks are threads of one process, but {} processes were started; start one, or leave out "
          "--ranks; with Slurm, srun --mpi=none starts processes that train independently",
          o.thread_ranks, processes);
    if (!have_mpi() && !given)
      fail(
          "this build has no MPI, but {} processes were started; start one with --ranks N, or build with -Dmpi=enabled",
          processes);
  }
  if (!have_mpi() && !given) o.thread_ranks = 1;
  check_readable_by_all(strategy_files(o));
  const bool threads = o.thread_ranks > 0;
  if (!threads && o.device.transport == CardTransport::copies)
    fail("--transport copies: cards copy to each other only if their ranks are threads of one process; give --ranks N");
  if (threads && o.device.transport == CardTransport::automatic) o.device.transport = CardTransport::copies;
  o.device.limit = std::chrono::seconds(o.timeout);
}

}  // namespace partita::cli
