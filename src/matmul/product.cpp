#include "partita/matmul/product.hpp"

#include "partita/base/error.hpp"
#include "partita/tensor/exchange.hpp"
#include "partita/tensor/redistribute.hpp"

#include <algorithm>
#include <optional>

namespace partita {

namespace {

/// A box of a tensor as a matrix in memory. Its rows are the first dimension.
struct Matrix {
  Tensor holder;
  std::byte* data = nullptr;
  Index row = 0;  // distance between rows, in elements
};

bool has_rows(const Tensor& tensor, const Box& box) { return has_rows(tensor.names(), tensor.box(), box); }

/// Returns the matrix in place if possible, else a copy.
Matrix matrix_of(const Tensor& tensor, const Box& box, Stream stream) {
  if (box.empty()) return {};
  if (!has_rows(tensor, box)) {
    const Tensor copy = extract(tensor, box, MemoryClass::workspace, stream);
    return {copy, copy.data(), copy.stride(0)};
  }
  std::array<Index, max_dims> corner{};
  for (int d = 0; d < box.dims(); ++d) corner[d] = box[d].lo;
  return {tensor, tensor.data() + tensor.offset(corner) * size_of(tensor.dtype()), tensor.stride(0)};
}

}  // namespace

/// A or B while a product runs. Some parts are gathered from other ranks, others are used in place.
class Product::Operand {
 public:
  Operand(const std::vector<Part>& parts, bool cut, const Tensor& own, Communicator& comm, Stream stream)
      : parts_(parts),
        cut_(cut),
        own_(own),
        comm_(comm),
        stream_(stream),
        buffers_(parts.size()),
        under_way_(parts.size()) {
    if (!cut_) start_part(0);
  }
  void start(std::size_t slab) {
    if (cut_) start_part(slab);
  }
  /// True if a slab needs nothing from other ranks.
  bool here(std::size_t slab) const { return parts_[at(slab)].gathered.empty(); }
  const Box& used(std::size_t slab) const { return parts_[at(slab)].used; }
  void progress() {
    for (auto& exchange : under_way_)
      if (exchange) exchange->progress();
  }
  void finish(std::size_t slab) {
    auto& exchange = under_way_[at(slab)];
    if (exchange) exchange->finish();
    exchange.reset();
  }
  Matrix matrix(std::size_t slab) {
    if (!here(slab)) finish(slab);
    return matrix_of(here(slab) ? own_ : buffers_[at(slab)], used(slab), stream_);
  }
  /// Frees the slab's buffer. Waits first until other ranks have received what they asked for.
  void release(std::size_t slab) {
    if (!cut_) return;
    finish(slab);
    buffers_[slab] = {};
  }
  void finish() {
    for (std::size_t i = 0; i < parts_.size(); ++i) finish(i);
  }

 private:
  std::size_t at(std::size_t slab) const { return cut_ ? slab : 0; }
  void start_part(std::size_t i) {
    const Part& part = parts_[i];
    if (part.transfer.sends.empty() && part.gathered.empty()) return;
    buffers_[i] = own_.like(part.gathered, MemoryClass::workspace, Fill::none);
    under_way_[i].emplace(part.transfer, own_, buffers_[i], comm_, stream_);
  }

  const std::vector<Part>& parts_;
  bool cut_;
  Tensor own_;
  Communicator& comm_;
  Stream stream_;
  std::vector<Tensor> buffers_;
  std::vector<std::optional<Exchange>> under_way_;
};

/// One run of the loop over panels.
class Product::Run {
 public:
  Run(const Product& product, Backend& backend, const ProcessGrid& grid, const Tensor& a, const Tensor& b,
      const Tensor& c, Write write, const Epilogue& epilogue, Stream stream)
      : product_(product),
        plan_(product.plan_),
        backend_(backend),
        grid_(grid),
        stream_(stream),
        a_(product.a_, plan_.cut_dim(plan_.a) >= 0, a, grid.world(), stream),
        b_(product.b_, plan_.cut_dim(plan_.b) >= 0, b, grid.world(), stream),
        c_(c),
        write_(write),
        epilogue_(epilogue),
        in_place_(!plan_.sums_slabs && plan_.redistribute_c.empty()),
        cuts_c_(plan_.cut_dim(plan_.c) >= 0) {
    const bool adds_to_c = write == Write::add && plan_.redistribute_c.empty();
    total_ = plan_.redistribute_c.empty() ? c : workspace(plan_.redistribute_c.front().from.owned(grid.rank()));
    if (plan_.sums_slabs && !adds_to_c) total_.zero(stream);
    if (makes_slabs()) return;
    made_ = plan_.sums_slabs ? workspace(product.made_) : total_;
    if (plan_.sums_slabs || (product.k_is_empty_ && !adds_to_c)) made_.zero(stream);
  }

  // C[m@M n@N sum@K] = sum over slabs of A[m@M k@K] B[k@K n@N]. One panel of slabs travels while another is multiplied.
  void run() {
    std::size_t first = 0, next = start_panel(0, 0);
    for (std::size_t p = 0; p < product_.panels_.size(); ++p) {
      const std::size_t end = first + product_.panels_[p];
      if (p + 1 < product_.panels_.size()) next = start_panel(p + 1, next);
      multiply_panel(first, end);
      for (std::size_t slab = first; slab < end; ++slab) release(slab);
      if (makes_slabs()) sum_panel();
      first = end;
    }
    finish();
  }

 private:
  struct Sum {
    Tensor part;
    Exchange exchange;
  };

  /// True if every slab makes its own part of C, which is sent to its owners at once.
  bool makes_slabs() const { return plan_.sums_slabs && cuts_c_; }
  /// True if one product computes all of C where it lies.
  bool multiplies_once() const {
    return in_place_ && write_ == Write::over && product_.c_.size() == 1 && product_.c_.front() == c_.box();
  }
  Tensor workspace(const Box& box) const { return c_.like(box, MemoryClass::workspace, Fill::none); }

  std::size_t start_panel(std::size_t panel, std::size_t first) {
    const std::size_t end = first + product_.panels_[panel];
    for (std::size_t slab = first; slab < end; ++slab) {
      a_.start(slab);
      b_.start(slab);
    }
    return end;
  }

  /// Multiplies first the slabs that need nothing from other ranks.
  void multiply_panel(std::size_t first, std::size_t end) {
    for (const bool here : {true, false})
      for (std::size_t slab = first; slab < end; ++slab)
        if ((a_.here(slab) && b_.here(slab)) == here) {
          multiply(slab);
          a_.progress();
          b_.progress();
        }
  }

  void multiply(std::size_t slab) {
    const Matrix a = a_.matrix(slab), b = b_.matrix(slab);
    const Box& box = product_.c_[slab];
    if (makes_slabs()) {
      slabs_.emplace_back(slab, workspace(box));
      if (product_.k_is_empty_) slabs_.back().second.zero(stream_);
    }
    if (a.data == nullptr || b.data == nullptr || box.empty()) return;
    const Tensor& target = makes_slabs() ? slabs_.back().second : made_;
    require(has_rows(target, box), "a slab of C must be a block of its rows");
    const Matrix c = matrix_of(target, box, stream_);
    const Index m = box.extent(0), n = box.volume() / m, k = a_.used(slab).volume() / m;
    const bool transpose_a = plan_.a.indices == "km", transpose_b = plan_.b.indices == "nk";
    if (multiplies_once()) {
      fused_ = true;
      return backend_.fused_gemm(transpose_a, transpose_b, m, n, k, a.data, a.row, b.data, b.row, epilogue_, c_,
                                 stream_);
    }
    const bool adds = (in_place_ && write_ == Write::add) || (!cuts_c_ && !std::exchange(fresh_, false));
    backend_.gemm(c_.dtype(), transpose_a, transpose_b, m, n, k, 1, a.data, a.row, b.data, b.row, adds ? 1 : 0, c.data,
                  c.row, stream_);
  }

  void release(std::size_t slab) {
    a_.release(slab);
    b_.release(slab);
  }

  /// Sends the panel's parts of C in the order of slabs, which is the same on all ranks.
  void sum_panel() {
    auto before = std::move(sums_);
    sums_.clear();
    std::sort(slabs_.begin(), slabs_.end(), [](const auto& x, const auto& y) { return x.first < y.first; });
    for (const auto& [slab, part] : slabs_) start_sum(slab, part);
    slabs_.clear();
    for (auto& sum : before) sum.exchange.finish();
  }

  void start_sum(std::size_t part, const Tensor& made) {
    sums_.push_back({made, Exchange::adjoint(product_.sums_[part], made, total_, grid_.world(), stream_)});
  }

  void finish() {
    a_.finish();
    b_.finish();
    if (plan_.sums_slabs && !cuts_c_) start_sum(0, made_);
    for (auto& sum : sums_) sum.exchange.finish();
    if (!plan_.redistribute_c.empty()) redistribute_c();
    if (!fused_) backend_.apply(epilogue_, c_, stream_);
  }

  void redistribute_c() {
    DistTensor now;
    now.layout = plan_.redistribute_c.front().from;
    now.local = total_;
    now = redistribute(now, plan_.redistribute_c, grid_, stream_);
    write_ == Write::add ? add(now.local, c_, stream_) : copy_box(now.local, c_, c_.box(), stream_);
  }

  const Product& product_;
  const ProductPlan& plan_;
  Backend& backend_;
  const ProcessGrid& grid_;
  Stream stream_;
  Operand a_, b_;
  Tensor c_;
  Write write_;
  Epilogue epilogue_;
  bool in_place_, cuts_c_;
  bool fused_ = false;  // the product has applied epilogue_
  bool fresh_ = true;   // nothing has been multiplied into made_ yet
  Tensor made_, total_;
  std::vector<std::pair<std::size_t, Tensor>> slabs_;  // parts of C made in the current panel
  std::vector<Sum> sums_;
};

Product::Product(ProductPlan plan, int rank)
    : plan_(std::move(plan)),
      made_(plan_.c_made.owned(rank)),
      k_is_empty_(plan_.a_used.owned(rank).empty() || plan_.b_used.owned(rank).empty()) {
  a_ = parts(plan_.a, plan_.a_used, rank);
  b_ = parts(plan_.b, plan_.b_used, rank);
  for (const auto& panel : plan_.panels) {
    panels_.push_back(panel.size());
    for (const Interval slab : panel) c_.push_back(plan_.part(plan_.c, plan_.c_made, rank, slab));
  }
  if (plan_.sums_slabs)
    for (const Interval slab : plan_.slabs(plan_.c)) sums_.push_back(plan_.sum(rank, slab));
}

std::vector<Product::Part> Product::parts(const ProductOperand& operand, const Layout& used, int rank) const {
  std::vector<Part> all;
  for (const Interval slab : plan_.slabs(operand))
    all.push_back({plan_.part(operand, used, rank, slab), plan_.gathered(operand, used, rank, slab),
                   plan_.gather(operand, used, rank, slab)});
  return all;
}

void Product::run(Backend& backend, const ProcessGrid& grid, const Tensor& a, const Tensor& b, const Tensor& c,
                  Write write, Stream stream) const {
  Run(*this, backend, grid, a, b, c, write, {}, stream).run();
}

void Product::run(Backend& backend, const ProcessGrid& grid, const Tensor& a, const Tensor& b, const Tensor& c,
                  const Epilogue& epilogue, Stream stream) const {
  Run(*this, backend, grid, a, b, c, Write::over, epilogue, stream).run();
}

}  // namespace partita
