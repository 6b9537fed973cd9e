#include "partita/train/checkpoint/checkpoint.hpp"

#include "partita/base/error.hpp"
#include "src/system/open_locked.hpp"
#include "src/system/seekable.hpp"
#include "src/train/checkpoint/logical_order.hpp"
#include "src/train/checkpoint/written_rows.hpp"
#include "src/train/files/hdf5.hpp"
#include "src/train/files/long_work.hpp"
#include "src/train/files/output_file.hpp"

#include <sys/vfs.h>

#include <algorithm>
#include <array>
#include <future>
#include <optional>
#include <random>
#include <set>
#include <span>

namespace partita {

namespace {

using hdf5::check;
using hdf5::Handle;
using hdf5::Session;

constexpr const char* version_name = "partita_checkpoint";
constexpr int version = 2;  // version 1 had no checksums

/// Returns the box that a rank of the world owns; empty if the rank is outside the layout's grid.
Box owned(const Layout& layout, int rank) {
  const int inside = rank - layout.grid().first_rank();
  return inside < 0 || inside >= layout.grid().size() ? Box(layout.shape().dims()) : layout.owned(inside);
}

/// Checks the arguments before any communication. Every rank finds the same errors.
void check_tensors(const std::string& path, const std::vector<NamedTensor>& tensors, int rank) {
  std::set<std::string> names;
  for (const auto& [name, tensor] : tensors) {
    require(tensor.local.box() == owned(tensor.layout, rank), "a tensor's local part is the owned box");
    if (tensor.layout.partial() != 0)
      fail("checkpoint '{}': tensor '{}' [{}] is a pending sum; form the sum first", path, name, tensor.layout.print());
    if (!names.insert(name).second) fail("checkpoint '{}': tensor '{}' is named twice", path, name);
  }
}

/// Returns the HDF5 type of the elements that `to_logical` returns.
hid_t native(DType dtype) {
  dtype = stored(dtype);
  if (dtype == DType::f64) return H5T_NATIVE_DOUBLE;
  return dtype == DType::i32 ? H5T_NATIVE_INT32 : H5T_NATIVE_FLOAT;
}

/// The part of a tensor that a rank writes.
struct Rows {
  std::optional<Tensor> tensor;  // in the memory of the CPU
  off_t before = 0;              // bytes of the file that come before them, from the tensor's first element on
};

off_t bytes_before(const Box& rows, DType dtype) {
  return rows.dims() == 0 ? 0 : rows[0].lo * (rows.volume() / rows.extent(0)) * size_of(stored(dtype));
}

/// Returns rows with room for their elements, beside a tensor.
Rows make_rows(const DistTensor& tensor, const Box& box) {
  const Tensor& local = tensor.local;
  return {local.device().host() ? local.like(box, MemoryClass::workspace, Fill::none)
                                : Tensor(local.dtype(), local.names(), box),
          bytes_before(box, local.dtype())};
}

/// Returns the rows of a tensor that this rank writes. Collective: every rank of `world` calls it.
Rows exchange_rows(const DistTensor& tensor, Communicator& world) {
  const Layout& layout = tensor.layout;
  const int first = layout.grid().first_rank(), inside = world.rank() - first;
  const Tensor local = on_host(tensor.local, tensor.local.stream());
  RowsExchange plan;
  if (inside >= 0 && inside < layout.grid().size())
    plan = rows_exchange(layout, inside, size_of(stored(local.dtype())));
  auto& [sends, recvs, locals] = plan.transfer;
  for (auto* transfers : {&sends, &recvs})
    for (Transfer& transfer : *transfers) transfer.peer += first;
  Rows rows;
  if (plan.rows && *plan.rows == local.box()) {
    rows = {local, bytes_before(*plan.rows, local.dtype())};
  } else if (plan.rows) {
    rows = make_rows(tensor, *plan.rows);
    copy_box(local, *rows.tensor, intersect(local.box(), *plan.rows), {});
  }
  world.exchange_boxes({local, sends, rows.tensor ? *rows.tensor : local, recvs}, {}).wait();
  return rows;
}

/// A checkpoint that is being written.
class Writer {
 public:
  explicit Writer(const std::string& path) : path_(path), file_(path) {}

  /// Throws Error if the path names a file that somebody else wrote.
  void check_replaceable() const;

  void create(const std::map<std::string, std::string>& attributes) {
    const Session session;
    hdf5::explained(in("cannot create '" + file_.partial() + "'"), [&] { file_.create(); });
    hdf5::explained(in("cannot write its attributes"), [&] {
      const Handle space(H5Screate(H5S_SCALAR), H5Sclose);
      const Handle number(H5Acreate2(file_.id(), version_name, H5T_NATIVE_INT32, space, H5P_DEFAULT, H5P_DEFAULT),
                          H5Aclose);
      check(H5Awrite(number, H5T_NATIVE_INT32, &version));
      for (const auto& [name, text] : attributes) hdf5::write_text(file_.id(), name, text);
    });
  }

  /// Makes the array of a tensor. Returns where its elements are in the file.
  off_t place(const NamedTensor& named) {
    const Session session;
    return hdf5::explained(in("cannot write tensor '" + named.name + "'"), [&] {
      const DType dtype = named.tensor.local.dtype();
      const Box all(named.tensor.layout.shape());
      const Handle data = file_.create_data(named.name, native(dtype), hdf5::dense_space(all));
      hdf5::write_text(data, "dimensions", std::string(named.tensor.local.names()));
      hdf5::write_text(data, "layout", named.tensor.layout.print());
      hdf5::write_text(data, "dtype", std::string(name(dtype)));
      return file_.place(data, all.volume() * size_of(stored(dtype)));
    });
  }
  hdf5::OutputFile& file() { return file_; }

  /// Throws Error if the path is where a file is mounted, as containers do: no other can take its place.
  void check_place() const {
    struct statx there {};
    if (statx(AT_FDCWD, real_path(path_).c_str(), 0, STATX_TYPE, &there) == 0 &&
        (there.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0)
      fail("{}: a file is mounted there, so no new one can replace it; mount its folder, or save to another name",
           in("cannot rename '" + file_.partial() + "' to it"));
  }

  /// After commit(): the identity of what was written, even if another file has its name now.
  std::uint64_t identity() const { return file_.identity(); }

  void commit() {
    const Session session;
    hdf5::explained(in("cannot finish '" + file_.partial() + "'"), [&] { file_.finish(); });
    hdf5::explained(in("cannot rename '" + file_.partial() + "' to it"), [&] { file_.commit(); });
  }

 private:
  std::string in(const std::string& what) const { return "checkpoint '" + path_ + "': " + what; }

  std::string path_;
  hdf5::OutputFile file_;
};

/// The file of a checkpoint, into which all ranks write elements at once. Ranks that do not find it, since they share
/// no folder with rank 0, send it what they would write.
class SharedFile {
 public:
  /// `made`: on rank 0 the file, else null. Collective: every rank of `world` calls this and the functions below.
  SharedFile(const std::string& path, hdf5::OutputFile* made, Communicator& world)
      : path_(path), made_(made), world_(world) {
    // Rank 0 writes a number at the start, where the structures of HDF5 come later: whoever reads it has the same file.
    std::array<std::int32_t, 2> drawn{};
    agree_or_throw(world, [&] {
      if (made_ == nullptr) return;
      std::random_device random;
      for (auto& half : drawn) half = static_cast<std::int32_t>(random() >> 1U);
      hdf5::explained(in("cannot write '" + made_->partial() + "'"), [&] {
        write_all(made_->disk(), std::as_bytes(std::span(drawn)), 0);
        hdf5::synchronize(made_->disk());
      });
    });
    world.broadcast(drawn.data(), 2, DType::i32, 0, {}).wait();
    if (made_ == nullptr && !opens(drawn)) own_.reset();
    std::int32_t apart = made_ != nullptr || own_ ? 0 : 1;
    world.all_reduce(&apart, 1, DType::i32, ReduceOp::max, {}).wait();
    apart_ = apart != 0;
  }

  /// Writes this rank's rows of a tensor, whose elements begin at byte `place`.
  void write(const NamedTensor& named, off_t place, const Rows& rows) {
    if (!apart_) return write_here(named, place, rows);
    const Layout& layout = named.tensor.layout;
    for (int inside = 0; inside < layout.grid().size(); ++inside)
      if (written_rows(layout, inside, size_of(stored(named.tensor.local.dtype()))))
        write_here(named, place, bring(named.tensor, inside, rows));
  }

  /// Makes what this rank has written durable, and gives rank 0 the checksums of all.
  void finish() {
    agree_on_long_work(world_, [&] {
      if (own_) hdf5::explained(in("cannot finish '" + partial() + "'"), [&] { hdf5::synchronize(*own_); });
    });
    using Array = Checksums::Array;
    const std::vector<double> counts = gather_numbers(world_, made_ != nullptr ? 0.0 : std::ssize(sums_.arrays()));
    std::vector<std::vector<Array>> all(made_ != nullptr ? counts.size() : 0);
    std::vector<Recv> in;
    std::vector<Send> out;
    for (std::size_t r = 0; r < all.size(); ++r) {
      all[r].resize(static_cast<std::size_t>(counts[r]));
      if (!all[r].empty()) in.push_back({static_cast<int>(r), std::as_writable_bytes(std::span(all[r]))});
    }
    if (made_ == nullptr && !sums_.arrays().empty()) out.push_back({0, std::as_bytes(std::span(sums_.arrays()))});
    world_.exchange(out, in, {}).wait();
    for (const auto& arrays : all) made_->checksums().add(arrays);
  }

 private:
  std::string in(const std::string& what) const { return "checkpoint '" + path_ + "': " + what; }
  std::string partial() const { return hdf5::OutputFile::partial_of(path_); }

  /// Opens the file of rank 0. Returns false if there is none here, or another one. So it does on network file systems
  /// whose hosts write whole pages: two that write to one page would overwrite each other.
  bool opens(const std::array<std::int32_t, 2>& drawn) {
    constexpr std::array<std::uint32_t, 4> of_pages{0x6969, 0x517B, 0xFF534D42, 0xFE534D42};  // NFS, SMB, CIFS, SMB2
    std::string path;
    try {
      path = partial();
    } catch (const Error&) {  // links in a circle
      return false;
    }
    const int file = open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (file < 0) return false;
    own_.emplace(file);
    struct statfs system {};
    std::array<std::int32_t, 2> found{};
    return fstatfs(file, &system) == 0 &&
           std::count(of_pages.begin(), of_pages.end(), static_cast<std::uint32_t>(system.f_type)) == 0 &&
           pread(file, found.data(), sizeof found, 0) == sizeof found && found == drawn;
  }

  void write_here(const NamedTensor& named, off_t place, const Rows& rows) {
    agree_on_long_work(world_, [&] {
      if (!rows.tensor) return;
      hdf5::explained(in("cannot write tensor '" + named.name + "'"), [&] {
        std::vector<std::byte> room;
        hdf5::write_elements(made_ != nullptr ? made_->disk() : *own_, place + rows.before,
                             to_logical(*rows.tensor, room), made_ != nullptr ? made_->checksums() : sums_);
      });
    });
  }

  /// Returns, on rank 0, the rows of a rank of the grid, and on other ranks nothing.
  Rows bring(const DistTensor& tensor, int inside, const Rows& mine) const {
    const int from = tensor.layout.grid().first_rank() + inside;
    if (from == 0) return world_.rank() == 0 ? mine : Rows();
    std::vector<Send> out;
    std::vector<Recv> in;
    Rows rows;
    const auto box = written_rows(tensor.layout, inside, size_of(stored(tensor.local.dtype())));
    const auto bytes = [](const Tensor& all) { return std::span(all.data(), static_cast<std::size_t>(all.bytes())); };
    if (world_.rank() == from && mine.tensor) out.push_back({0, bytes(*mine.tensor)});
    if (world_.rank() == 0 && box) {
      rows = make_rows(tensor, *box);
      in.push_back({from, bytes(*rows.tensor)});
    }
    world_.exchange(out, in, {}).wait();
    return rows;
  }

  std::string path_;
  hdf5::OutputFile* made_;
  Communicator& world_;
  std::optional<Descriptor> own_;  // of the other ranks
  Checksums sums_;
  bool apart_ = false;  // some rank has no access
};

/// A checkpoint that is being read. It must be created and used inside one session.
class Reader {
 public:
  /// Reads the open file `bytes`. `path` is its name for messages.
  /// @pre `bytes` outlives the reader.
  Reader(const std::string& path, const Descriptor& bytes) : path_(path), bytes_(bytes) {
    const std::string name = "/proc/self/fd/" + std::to_string(bytes);
    const htri_t is_hdf5 = hdf5::explained(in("cannot read it"), [&] { return check(H5Fis_hdf5(name.c_str())); });
    if (is_hdf5 == 0) fail("checkpoint '{}' is not an HDF5 file", path);
    hdf5::explained(in("it is damaged"), [&] {
      checksums_ = Checksums::read(bytes_);
      file_ = hdf5::open_to_read(name, hdf5::descriptor_access());
      check(H5Lvisit(file_, H5_INDEX_NAME, H5_ITER_INC, add_name, &names_));
    });
    check_version();
  }

  std::uint64_t identity() const { return checksums_.identity(); }

  /// Returns the shape of each tensor.
  std::map<std::string, std::string> shapes() const {
    std::map<std::string, std::string> shapes;
    for (const auto& name : names_)
      hdf5::explained(in("cannot read tensor '" + name + "'"),
                      [&] { shapes[name] = shape_of(hdf5::open_data(file_, name), name); });
    return shapes;
  }

  std::map<std::string, std::string> attributes() const {
    std::map<std::string, std::string> texts;
    hdf5::explained(in("cannot read its attributes"), [&] {
      H5O_info_t root{};
      check(H5Oget_info(file_, &root));
      for (hsize_t i = 0; i < root.num_attrs; ++i) {
        const Handle attribute(H5Aopen_by_idx(file_, ".", H5_INDEX_NAME, H5_ITER_INC, i, H5P_DEFAULT, H5P_DEFAULT),
                               H5Aclose);
        const Handle type(H5Aget_type(attribute), H5Tclose);
        if (check(H5Tis_variable_str(type)) == 0) continue;
        std::string name(static_cast<std::size_t>(check(H5Aget_name(attribute, 0, nullptr))) + 1, '\0');
        check(H5Aget_name(attribute, name.size(), name.data()));
        name.pop_back();
        texts[name] = hdf5::read_text(file_, name);
      }
    });
    return texts;
  }

  /// Throws Error unless the file has the tensor with the same shape and the same kind of numbers.
  void check_tensor(const NamedTensor& named) const {
    const std::string& name = named.name;
    const Tensor& local = named.tensor.local;
    if (std::find(names_.begin(), names_.end(), name) == names_.end())
      fail("checkpoint '{}' has no tensor '{}'{}", path_, name, did_you_mean(name, names_));
    hdf5::explained(in("cannot read tensor '" + name + "'"), [&] {
      const Handle data = hdf5::open_data(file_, name);
      const auto expected = named.tensor.layout.shape().print(), found = shape_of(data, name);
      if (found != expected) fail("the file has {}, expected {}", found, expected);
      const Handle type(H5Dget_type(data), H5Tclose);
      if (H5Tget_class(type) != H5Tget_class(native(local.dtype())))
        fail("the file does not hold {} numbers", local.dtype() == DType::i32 ? "integer" : "floating-point");
    });
  }

  /// Throws Error if the elements that `rank` checks are damaged; `ranks` ranks share the work. Calls no HDF5 function.
  void verify(int rank, int ranks) const {
    hdf5::explained(in("it is damaged"), [&] {
      checksums_.verify(bytes_, static_cast<std::size_t>(rank), static_cast<std::size_t>(ranks));
    });
  }

  void read(const NamedTensor& named) const {
    const Tensor& target = named.tensor.local;
    if (target.box().empty()) return;
    const Tensor local = target.device().host() ? target : Tensor(target.dtype(), target.names(), target.box());
    hdf5::explained(in("cannot read tensor '" + named.name + "'"), [&] {
      const Handle data = hdf5::open_data(file_, named.name);
      from_logical(local, [&](std::byte* place) {
        check(H5Dread(data, native(local.dtype()), hdf5::dense_space(local.box()),
                      hdf5::selected_space(data, local.box()), H5P_DEFAULT, place));
      });
    });
    from_host(local, target, target.stream());
  }

 private:
  std::string in(const std::string& what) const { return "checkpoint '" + path_ + "': " + what; }

  void check_version() const {
    const Index found = hdf5::explained(in("it is not a checkpoint of Partita"),
                                        [&] { return hdf5::read_whole_number(file_, version_name); });
    if (found != version) fail("checkpoint '{}' has version {}; this program reads version {}", path_, found, version);
  }

  /// For H5Lvisit: adds a data set's name to the vector that `names` points to. Ignores a broken link.
  static herr_t add_name(hid_t group, const char* name, const H5L_info_t*, void* names) {
    const hid_t object = H5Oopen(group, name, H5P_DEFAULT);
    if (object < 0) return 0;
    if (H5Iget_type(object) == H5I_DATASET) static_cast<std::vector<std::string>*>(names)->emplace_back(name);
    return H5Oclose(object);
  }

  /// Returns the data set's shape in the format of Shape::print().
  static std::string shape_of(hid_t data, const std::string& name) {
    const std::string names = hdf5::read_text(data, "dimensions");
    const std::vector<Index> extents = hdf5::extents_of(data, name);
    if (names.size() != extents.size()) fail("the file has {} extents named \"{}\"", extents.size(), names);
    Shape shape;
    for (std::size_t d = 0; d < extents.size(); ++d) shape.push_back({names[d], extents[d]});
    return shape.print();
  }

  std::string path_;
  const Descriptor& bytes_;
  Checksums checksums_;
  Handle file_;
  std::vector<std::string> names_;
};

/// Opens a checkpoint's file. Throws Error if it cannot.
int open_file(const std::string& path) {
  if (!is_seekable(path)) fail("checkpoint '{}' is not seekable; give a regular file", path);
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) hdf5::explained("checkpoint '" + path + "': cannot open it", [] { fail_system(); });
  return file;
}

void Writer::check_replaceable() const {
  struct stat there {};
  if (stat(path_.c_str(), &there) != 0 || !S_ISREG(there.st_mode) || there.st_size == 0) return;
  try {
    static_cast<void>(CheckpointFile(path_));
  } catch (const Error& error) {
    fail("'{}' is not a checkpoint of Partita, so it is not replaced; save to another name, or remove it ({})", path_,
         error.what());
  }
}

}  // namespace

std::string hdf5_version() {
  const Session session;
  unsigned major = 0, minor = 0, release = 0;
  return H5get_libversion(&major, &minor, &release) < 0 ? "unknown" : fmt::format("{}.{}.{}", major, minor, release);
}

struct CheckpointFile::Opened {
  explicit Opened(const std::string& name) : path(name), bytes(open_file(name)) {
    const Session session;
    const Reader reader(path, bytes);
    attributes = reader.attributes();
    tensors = reader.shapes();
    identity = reader.identity();
  }

  std::string path;
  Descriptor bytes;
  std::map<std::string, std::string> attributes, tensors;
  std::uint64_t identity = 0;
};

CheckpointFile::CheckpointFile(const std::string& path) : opened_(std::make_unique<const Opened>(path)) {}
CheckpointFile::~CheckpointFile() = default;
CheckpointFile::CheckpointFile(CheckpointFile&&) noexcept = default;
CheckpointFile& CheckpointFile::operator=(CheckpointFile&&) noexcept = default;
const std::string& CheckpointFile::path() const { return opened_->path; }
const std::map<std::string, std::string>& CheckpointFile::attributes() const { return opened_->attributes; }
const std::map<std::string, std::string>& CheckpointFile::tensors() const { return opened_->tensors; }
std::uint64_t CheckpointFile::identity() const { return opened_->identity; }

void CheckpointFile::load(const std::vector<NamedTensor>& tensors, Communicator& world) const {
  check_tensors(path(), tensors, world.rank());
  std::array<double, 2> extremes{static_cast<double>(identity() & 0xFFFFFFFFU), 0};
  extremes[1] = -extremes[0];
  world.all_reduce(extremes.data(), 2, DType::f64, ReduceOp::max, {}).wait();
  if (extremes[0] != -extremes[1])
    throw AgreedError(
        fmt::format("checkpoint '{}': the ranks opened different files of this name; load it again when no run is "
                    "saving to it, and from a folder that all nodes share",
                    path()));
  agree_on_long_work(world, [&] {
    const Session session;
    const Reader reader(path(), opened_->bytes);
    for (const auto& named : tensors) reader.check_tensor(named);
    auto verified = std::async(std::launch::async, [&] { reader.verify(world.rank(), world.size()); });
    for (const auto& named : tensors) reader.read(named);
    verified.get();
  });
}

std::uint64_t save_checkpoint(const std::string& path, const std::vector<NamedTensor>& tensors,
                              const std::map<std::string, std::string>& attributes, Communicator& world,
                              const std::function<void()>& check) {
  check_tensors(path, tensors, world.rank());
  std::optional<Writer> writer;  // of rank 0, which makes the file
  if (world.rank() == 0) writer.emplace(path);
  std::vector<double> places(tensors.size());
  agree_or_throw(world, [&] {
    if (!writer) return;
    writer->check_replaceable();
    writer->create(attributes);
    if (check) check();
    for (std::size_t i = 0; i < tensors.size(); ++i) places[i] = static_cast<double>(writer->place(tensors[i]));
  });
  world.broadcast(places.data(), std::ssize(places), DType::f64, 0, {}).wait();
  SharedFile file(path, writer ? &writer->file() : nullptr, world);
  for (std::size_t i = 0; i < tensors.size(); ++i)
    file.write(tensors[i], static_cast<off_t>(places[i]), exchange_rows(tensors[i].tensor, world));
  file.finish();
  agree_on_long_work(world, [&] {
    if (writer) writer->commit();
  });
  return writer ? writer->identity() : 0;
}

void check_saving(const std::string& path) {
  Writer writer(path);
  writer.check_replaceable();
  writer.check_place();
  try {
    writer.create({});
  } catch (const Error& error) {
    if (std::string_view(error.what()).find(being_written) == std::string_view::npos) throw;
  }
}

void load_checkpoint(const std::string& path, const std::vector<NamedTensor>& tensors, Communicator& world) {
  std::optional<CheckpointFile> file;
  agree_or_throw(world, [&] { file.emplace(path); });
  file->load(tensors, world);
}

std::map<std::string, std::string> checkpoint_attributes(const std::string& path) {
  return CheckpointFile(path).attributes();
}

}  // namespace partita
