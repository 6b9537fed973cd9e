#include "src/train/trainer/memory_account.hpp"

#include "partita/base/error.hpp"

namespace partita {

MemoryAccount::MemoryAccount(const TrainerOptions& options, int rank, std::shared_ptr<Allocator> tensors,
                             const std::shared_ptr<Allocator>& samples, const MessageMemory& messages,
                             RunMemory::PlanOf plan_of)
    : rank_(rank),
      limit_(options.memory_limit),
      tensors_(std::move(tensors)),
      run_(options.batch, options.training, options.may_skip(), std::move(plan_of), messages),
      data_(samples) {}

void MemoryAccount::check_step(const Plan& plan, Index workspace) const {
  check_memory(plan, limit_, [&](int rank) {
    MemoryUse held = state_memory(plan, rank);
    held[MemoryClass::workspace] += workspace;
    return run_.step_peak(plan, held, rank);
  });
}

void MemoryAccount::check_pass(Index samples, bool training) const {
  if (limit_ == 0) return;
  const MemoryPeak peak = run_.pass_peak(samples, training, held(), rank_, !on_cpu());
  if (peak.total > limit_)
    fail(
        "rank {} would hold up to {} ({}), {} more than the memory limit of {}; shard samples or space over more "
        "ranks, or set recompute = true for some layers",
        rank_, print_bytes(peak.total), peak.each.print(), print_bytes(peak.total - limit_), print_bytes(limit_));
}

void MemoryAccount::hold_state(const Plan& plan, Index workspace) {
  const Index shared = held_[MemoryClass::shared];
  held_ = state_memory(plan, rank_);
  held_[MemoryClass::shared] = shared;
  held_[MemoryClass::workspace] += workspace;
  workspace_ = Allocator::account(tensors_, workspace, MemoryClass::workspace);
  peak_.include(holding(held()));
}

void MemoryAccount::hold_shared(Index bytes) {
  shared_.reset();
  held_[MemoryClass::shared] = bytes;
  shared_ = Allocator::account(tensors_, bytes, MemoryClass::shared);
  peak_.include(holding(held()));
}

void MemoryAccount::add_step(const Plan& plan, StepPeak& last, bool in_pass) {
  if (const MemoryUse held = run_.in_step(plan, this->held(), rank_, in_pass && !on_cpu());
      last.held != held || last.memory.total == 0)
    last = {held, run_.step_peak(plan, held, rank_)};
  peak_.include(last.memory);
}

void MemoryAccount::add_checkpoint(const Plan& plan, bool optimizer, bool saved) {
  MemoryUse held = this->held();
  held[MemoryClass::workspace] += run_.checkpoint_bytes(plan, rank_, optimizer, saved && on_cpu());
  peak_.include(holding(held));
}

void MemoryAccount::add_announcement(const Dataset& data, const DataShare& share) {
  if (!on_cpu()) return;
  MemoryUse held = this->held();
  held[MemoryClass::data] += RunMemory::list_bytes(data, share);
  peak_.include(holding(held));
}

/// What the rank holds now, with data sets where they lie beside the tensors.
MemoryUse MemoryAccount::held() const {
  MemoryUse held = held_;
  held[MemoryClass::data] = on_cpu() ? held_[MemoryClass::data] + data_.predicted() : 0;
  return held;
}

}  // namespace partita
