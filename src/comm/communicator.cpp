#include "partita/comm/communicator.hpp"

#include "src/device/exception_message.hpp"
#include "src/device/profile.hpp"

#include <algorithm>
#include <cstring>
#include <exception>

namespace partita {

Request& Request::operator=(Request&& other) {  // NOLINT(performance-noexcept-move-constructor)
  if (this != &other) {
    wait(stream_);
    state_ = std::move(other.state_);
    stream_ = other.stream_;
  }
  return *this;
}

Request::~Request() {
  // While an exception unwinds, this rank has failed. Its peers may never send what it would wait for.
  if (state_ == nullptr || std::uncaught_exceptions() > 0) return;
  try {
    wait(stream_);
  } catch (const std::exception&) {
    // A destructor cannot report the failure. The next operation on the broken communicator does.
  }
}

void Request::wait(Stream stream) {
  const Timed timed(Profile::Part::wait);
  if (const auto state = std::move(state_)) state->wait(stream);
}

bool Request::progress() {
  const Timed timed(Profile::Part::exchange);
  return state_ == nullptr || state_->progress();
}

void agree_or_throw(Communicator& comm, const std::function<void()>& f) {
  std::string message;
  try {
    f();
  } catch (const CommunicationError&) {
    throw;
  } catch (const DeviceError&) {
    throw;
  } catch (...) {
    message = message_of_exception();
  }
  message = agree(comm, message);
  if (!message.empty()) throw AgreedError(message);
}

std::string agree(Communicator& comm, const std::string& message) {
  const std::vector<double> lengths = gather_numbers(comm, static_cast<double>(message.size()));
  const auto first = std::find_if(lengths.begin(), lengths.end(), [](double n) { return n > 0; });
  if (first == lengths.end()) return "";

  // There is no dtype for bytes, so the text travels as 32-bit integers.
  std::vector<std::int32_t> words((static_cast<std::size_t>(*first) + 3) / 4);
  const auto root = static_cast<int>(first - lengths.begin());
  if (comm.rank() == root) std::memcpy(words.data(), message.data(), message.size());
  comm.broadcast(words.data(), static_cast<Index>(words.size()), DType::i32, root, {}).wait();
  return {reinterpret_cast<const char*>(words.data()), static_cast<std::size_t>(*first)};
}

std::vector<double> gather_numbers(Communicator& comm, double mine) {
  std::vector<double> all(static_cast<std::size_t>(comm.size()));
  comm.all_gather(&mine, all.data(), std::vector<Index>(all.size(), 1), DType::f64, {}).wait();
  return all;
}

}  // namespace partita
