#include "partita/tensor/exchange.hpp"

#include "partita/base/error.hpp"
#include "src/device/profile.hpp"

namespace partita {

Exchange::Exchange(const TransferPlan& plan, const Tensor& from, const Tensor& to, Communicator& comm, Stream stream)
    : stream_(stream) {
  require(from.dtype() == to.dtype(), "an exchange must keep the dtype");
  const Timed timed(Profile::Part::exchange);
  request_ = comm.exchange_boxes({from, plan.sends, to, plan.recvs}, stream);
  for (const auto& local : plan.locals) copy_box(from, to, local.box, stream);
}

Exchange Exchange::adjoint(const TransferPlan& plan, const Tensor& from, const Tensor& to, Communicator& comm,
                           Stream stream) {
  require(from.dtype() == to.dtype(), "an exchange must keep the dtype");
  const Timed timed(Profile::Part::exchange);
  Exchange back(stream);
  back.request_ = comm.exchange_boxes({from, plan.recvs, to, plan.sends, /*add=*/true}, stream);
  for (const auto& local : plan.locals) add_box(from, to, local.box, stream);
  return back;
}

void Exchange::finish() {
  const Timed timed(Profile::Part::exchange);
  request_.wait(stream_);
}

}  // namespace partita
