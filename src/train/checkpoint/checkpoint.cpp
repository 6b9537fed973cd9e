#include "partita/train/checkpoint/checkpoint.hpp"

#include "partita/base/error.hpp"
#include "src/system/open_locked.hpp"
#include "src/system/seekable.hpp"
#include "src/train/checkpoint/logical_order.hpp"
#include "src/train/files/hdf5.hpp"
#include "src/train/files/long_work.hpp"
#include "src/train/files/output_file.hpp"

#include <algorithm>
#include <array>
#include <future>
#include <optional>
#include <set>

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

/// Returns true for the rank of the grid that sends its box to the file: the lowest rank that owns this box.
bool sends(const Layout& layout, int rank) {
  for (int axis = 0; axis < layout.grid().axes(); ++axis)
    if ((layout.replicated() >> axis & 1U) != 0 && layout.grid().coordinate(rank, axis) != 0) return false;
  return !layout.owned(rank).empty();
}

/// Returns the whole tensor on rank 0 of the world, and an empty tensor on other ranks.
Tensor collect(const DistTensor& tensor, Communicator& world) {
  const Layout& layout = tensor.layout;
  const Tensor local = on_host(tensor.local, tensor.local.stream());
  std::vector<Send> out;
  std::vector<Recv> in;
  std::vector<Tensor> boxes;
  const auto bytes = [](const Tensor& box) { return std::span(box.data(), static_cast<std::size_t>(box.bytes())); };
  for (int inside = 0; inside < layout.grid().size(); ++inside) {
    const int rank = layout.grid().first_rank() + inside;
    if (rank == 0 || (world.rank() != 0 && world.rank() != rank) || !sends(layout, inside)) continue;
    if (world.rank() == rank) {
      out.push_back({0, bytes(local)});
    } else {
      boxes.push_back(local.like(layout.owned(inside), MemoryClass::workspace));
      in.push_back({rank, bytes(boxes.back())});
    }
  }
  world.exchange(out, in, {}).wait();
  const Box all(layout.shape());
  if (world.rank() != 0) return {};
  if (local.box() == all) return local;
  boxes.push_back(local);
  Tensor whole = local.like(all, MemoryClass::workspace);
  for (const auto& box : boxes) copy_box(box, whole, box.box(), {});
  return whole;
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

  void write(const NamedTensor& named, const Tensor& whole) {
    const Session session;
    hdf5::explained(in("cannot write tensor '" + named.name + "'"), [&] {
      const Handle data = file_.create_data(named.name, native(whole.dtype()), hdf5::dense_space(whole.box()));
      hdf5::write_text(data, "dimensions", std::string(whole.names()));
      hdf5::write_text(data, "layout", named.tensor.layout.print());
      hdf5::write_text(data, "dtype", std::string(name(whole.dtype())));
      std::vector<std::byte> room;
      file_.write(data, to_logical(whole, room));
    });
  }

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
  std::optional<Writer> writer;  // rank 0 writes
  if (world.rank() == 0) writer.emplace(path);
  agree_or_throw(world, [&] {
    if (writer) writer->check_replaceable();
    if (writer) writer->create(attributes);
    if (writer && check) check();
  });
  for (const auto& named : tensors) {
    const Tensor whole = collect(named.tensor, world);
    agree_on_long_work(world, [&] {
      if (writer) writer->write(named, whole);
    });
  }
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
