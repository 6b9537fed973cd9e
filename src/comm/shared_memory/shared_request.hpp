#pragma once

#include "src/comm/shared_memory/shared_memory.hpp"

#include <memory>
#include <utility>
#include <vector>

namespace partita {

/// An operation in shared memory. `Rank` knows how a rank waits: wait(shared, operation, missing) and progress().
template <class Rank>
class SharedRequest : public Request::State {
 public:
  /// `members` are the numbers in the world of the communicator's ranks.
  SharedRequest(std::shared_ptr<Rank> me, std::shared_ptr<const std::vector<int>> members,
                std::shared_ptr<SharedMemory> shared, std::shared_ptr<const SharedOperation> operation)
      : me_(std::move(me)),
        members_(std::move(members)),
        shared_(std::move(shared)),
        operation_(std::move(operation)) {}

  void wait(Stream) override {
    operation_->await();
    me_->wait(*shared_, *operation_, [this] {
      std::vector<int> missing;
      for (const int peer : shared_->missing(*operation_)) missing.push_back((*members_)[peer]);
      return missing;
    });
  }
  bool progress() override {
    me_->progress();
    return operation_->done();
  }

 private:
  std::shared_ptr<Rank> me_;
  std::shared_ptr<const std::vector<int>> members_;
  std::shared_ptr<SharedMemory> shared_;
  std::shared_ptr<const SharedOperation> operation_;
};

}  // namespace partita
