// The main function of tests that run under MPI. Every rank runs every test. Rank 0 reports the progress, and every
// rank reports its own failures. A fatal failure ends the job, because the other ranks would wait forever for a rank
// that leaves a test in the middle.

#include "partita/comm/mpi.hpp"
#include "test/support/mpi_world.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <exception>

namespace partita::test {

namespace {

MpiSession* session = nullptr;

class RankPrinter : public testing::EmptyTestEventListener {
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed()) return;
    const auto text = fmt::format("{}:{}: failure\n{}", result.file_name() == nullptr ? "" : result.file_name(),
                                  result.line_number(), result.message());
    if (result.fatally_failed()) session->abort(text, 1);
    if (session->world()->rank() == 0) return;  // gtest prints it
    const auto line = fmt::format("rank {}: {}\n", session->world()->rank(), text);
    std::fputs(line.c_str(), stderr);
  }
};

/// Sets the options that must be equal on all ranks, and removes the output that only rank 0 may write.
void configure(int rank) {
  testing::GTEST_FLAG(catch_exceptions) = false;
  testing::GTEST_FLAG(shuffle) = false;
  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  listeners.Append(new RankPrinter);
  if (rank == 0) return;
  delete listeners.Release(listeners.default_result_printer());
  delete listeners.Release(listeners.default_xml_generator());
}

/// Runs the tests. Returns 1 on every rank if a test failed on any rank, else 0.
int run_tests(Communicator& world) {
  std::int32_t failed = RUN_ALL_TESTS();
  world.all_reduce(&failed, 1, DType::i32, ReduceOp::max, {}).wait();
  return failed;
}

}  // namespace

std::shared_ptr<Communicator> mpi_world() { return session->world(); }

}  // namespace partita::test

int main(int argc, char** argv) {
  partita::MpiSession session(argc, argv);
  partita::test::session = &session;
  testing::InitGoogleTest(&argc, argv);
  partita::test::configure(session.world()->rank());
  try {
    return session.returns(partita::test::run_tests(*session.world()));
  } catch (const std::exception& e) {
    session.abort(e.what(), 1);
  } catch (...) {
    session.abort("unknown exception", 1);
  }
}
