#pragma once

#include "partita/base/box.hpp"
#include "partita/base/error.hpp"
#include "src/system/seekable.hpp"

#include <hdf5.h>
#include <sys/file.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace partita::hdf5 {

/// Every call of HDF5 must be in the scope of a session, because its C library is not thread-safe and ranks may be
/// threads. Do not communicate inside a session. HDF5 prints nothing during a session; its messages go into our errors.
class Session {
 public:
  Session() : lock_(mutex()) {
    // At the end of the program HDF5 would close files once more that it could not write, and crash.
    static const bool stays_open = H5dont_atexit() >= 0;
    static_cast<void>(stays_open);
    H5Eget_auto2(H5E_DEFAULT, &print_, &client_);
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  }
  ~Session() { H5Eset_auto2(H5E_DEFAULT, print_, client_); }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

 private:
  static std::mutex& mutex() {
    static std::mutex mutex;
    return mutex;
  }

  std::scoped_lock<std::mutex> lock_;
  H5E_auto2_t print_ = nullptr;
  void* client_ = nullptr;
};

/// Returns why the last call failed: the system's reason if there is one, else that the file is damaged, with HDF5's
/// innermost error message.
inline std::string reason() {
  std::string text;
  const auto deepest = [](unsigned, const H5E_error2_t* error, void* out) -> herr_t {
    auto& found = *static_cast<std::string*>(out);
    if (found.empty() && error->desc != nullptr) found = error->desc;
    return 0;
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, deepest, &text);
  if (text.find("unable to lock the file") == 0)
    return "the file system refuses the locks of HDF5; set HDF5_USE_FILE_LOCKING=FALSE in the environment";
  static constexpr std::string_view mark = "error message = '";
  const auto begin = text.find(mark);
  if (begin == std::string::npos)
    return fmt::format("the file is damaged, cut short or of another kind; copy it again or write it again (HDF5: {})",
                       text.empty() ? "no reason given" : text);
  return text.substr(begin + mark.size(), text.find('\'', begin + mark.size()) - begin - mark.size());
}

/// Throws Error with HDF5's reason if `status`, the result of a call, reports a failure.
template <class Status>
Status check(Status status) {
  if (status < 0) throw Error(reason());
  return status;
}

/// Owns an HDF5 identifier.
class Handle {
 public:
  Handle() = default;
  /// Takes the identifier that a call returned. Throws Error if the call failed.
  Handle(hid_t id, herr_t (*closer)(hid_t)) : id_(check(id)), close_(closer) {}
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(id_, other.id_);
    std::swap(close_, other.close_);
    return *this;
  }
  ~Handle() {
    if (id_ >= 0) close_(id_);
  }

  operator hid_t() const { return id_; }
  /// Closes the identifier now. Throws Error if that fails.
  void close() {
    if (id_ >= 0) check(close_(std::exchange(id_, -1)));
  }

 private:
  hid_t id_ = -1;
  herr_t (*close_)(hid_t) = nullptr;
};

/// Returns access to a file without locks of HDF5, which refuses every file where the file system has no locks. Only
/// HDF5_USE_FILE_LOCKING=TRUE in the environment takes them all the same; versions before 1.10.7 know nothing else.
inline Handle unlocked_access() {
  Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
#if H5_VERSION_GE(1, 12, 1) || (H5_VERSION_GE(1, 10, 7) && !H5_VERSION_GE(1, 12, 0))
  check(H5Pset_file_locking(access, false, true));
#endif
  return access;
}

/// Returns access to a file by ordinary system calls, even if HDF5 was built for MPI or the environment names a driver.
inline Handle serial_access() {
  Handle access = unlocked_access();
  check(H5Pset_fapl_sec2(access));
  return access;
}

/// Returns access to an open file by its name in /proc/self/fd, even if its real path is gone. The default driver asks
/// for the real path.
inline Handle descriptor_access() {
  Handle access = unlocked_access();
  check(H5Pset_fapl_stdio(access));
  return access;
}

/// Takes the lock that HDF5 takes to read a file, until it is closed. Throws Error if another program is writing the
/// file. A file system without locks lets nobody hold one, so it needs none.
/// @pre The file was opened with serial_access().
inline void lock_to_read(hid_t file) {
  void* descriptor = nullptr;
  check(H5Fget_vfd_handle(file, H5P_DEFAULT, &descriptor));
  if (flock(*static_cast<const int*>(descriptor), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    fail("another program is writing it; try again when that has ended");
}

/// Calls f. Prefixes an Error that it throws with `context`.
template <class F>
auto explained(const std::string& context, F&& f) {
  try {
    return f();
  } catch (const Error& error) {
    fail("{}: {}", context, error.what());
  }
}

/// Returns the extents of a box in HDF5's type.
inline std::array<hsize_t, max_dims> extents(const Box& box) {
  std::array<hsize_t, max_dims> extents{};
  for (int d = 0; d < box.dims(); ++d) extents[d] = static_cast<hsize_t>(box.extent(d));
  return extents;
}

/// Returns the data space of a dense array with the box's extents.
inline Handle dense_space(const Box& box) {
  return {H5Screate_simple(box.dims(), extents(box).data(), nullptr), H5Sclose};
}

/// Returns the data set's space with the box selected.
inline Handle selected_space(hid_t data, const Box& box) {
  Handle space(H5Dget_space(data), H5Sclose);
  std::array<hsize_t, max_dims> start{};
  for (int d = 0; d < box.dims(); ++d) start[d] = static_cast<hsize_t>(box[d].lo);
  if (box.dims() > 0)
    check(H5Sselect_hyperslab(space, H5S_SELECT_SET, start.data(), nullptr, extents(box).data(), nullptr));
  return space;
}

inline Handle text_type() {
  Handle type(H5Tcopy(H5T_C_S1), H5Tclose);
  check(H5Tset_size(type, H5T_VARIABLE));
  check(H5Tset_cset(type, H5T_CSET_UTF8));
  return type;
}

inline void write_text(hid_t object, const std::string& name, const std::string& text) {
  const Handle type = text_type();
  const Handle space(H5Screate(H5S_SCALAR), H5Sclose);
  const Handle attribute(H5Acreate2(object, name.c_str(), type, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
  const char* start = text.c_str();
  check(H5Awrite(attribute, type, &start));
}

/// Opens the attribute `name` of an object. Throws Error unless it holds exactly one value of the class `wanted`: a
/// reader has memory for one, and HDF5 writes as many values as the file holds.
inline Handle open_single_value(hid_t object, const std::string& name, H5T_class_t wanted) {
  Handle attribute(H5Aopen(object, name.c_str(), H5P_DEFAULT), H5Aclose);
  const Handle space(H5Aget_space(attribute), H5Sclose), type(H5Aget_type(attribute), H5Tclose);
  if (const auto values = check(H5Sget_simple_extent_npoints(space)); values != 1)
    fail("the attribute '{}' holds {} values; it must hold one", name, values);
  const bool text = wanted == H5T_STRING;
  if (H5Tget_class(type) != wanted || (text && check(H5Tis_variable_str(type)) == 0))
    fail("the attribute '{}' is not {}", name, text ? "a text of variable length" : "a whole number");
  return attribute;
}

/// Returns the value of an attribute that holds one whole number; HDF5 clamps it to 64 bits. Throws Error if there is
/// no such attribute.
inline Index read_whole_number(hid_t object, const std::string& name) {
  static_assert(sizeof(long long) == sizeof(Index));
  const Handle attribute = open_single_value(object, name, H5T_INTEGER);
  Index value = 0;
  check(H5Aread(attribute, H5T_NATIVE_LLONG, &value));
  return value;
}

/// Returns the value of an attribute that holds one text. Throws Error if there is no such attribute.
inline std::string read_text(hid_t object, const std::string& name) {
  const Handle attribute = open_single_value(object, name, H5T_STRING), type = text_type();
  const Handle space(H5Aget_space(attribute), H5Sclose);
  char* start = nullptr;
  check(H5Aread(attribute, type, &start));
  std::string text = start == nullptr ? "" : start;
  H5Dvlen_reclaim(type, space, H5P_DEFAULT, &start);
  return text;
}

/// Opens a file to read it. Throws Error if any of its links leads to another file, or is of a kind that programs
/// define: a file says nothing about the files around it.
inline Handle open_to_read(const std::string& path, const Handle& access) {
  check_seekable(path);
  Handle file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access), H5Fclose);
  std::string outside;
  const auto find_outside = [](hid_t, const char* name, const H5L_info_t* link, void* found) -> herr_t {
    if (link->type == H5L_TYPE_HARD || link->type == H5L_TYPE_SOFT) return 0;
    *static_cast<std::string*>(found) = name;
    return 1;
  };
  check(H5Lvisit(file, H5_INDEX_NAME, H5_ITER_NATIVE, find_outside, &outside));
  if (!outside.empty()) fail("its link '{}' leads out of the file; copy what it names into the file", outside);
  return file;
}

/// Throws Error if HDF5 lacks a filter that a data set with these properties needs.
inline void check_filters(hid_t creation, const std::string& name) {
  const int count = check(H5Pget_nfilters(creation));
  for (int i = 0; i < count; ++i) {
    unsigned flags = 0;
    std::size_t values = 0;
    std::array<char, 64> text{};
    const auto filter = check(H5Pget_filter2(creation, static_cast<unsigned>(i), &flags, &values, nullptr,
                                             text.size() - 1, text.data(), nullptr));
    if (H5Zfilter_avail(filter) > 0) continue;
    fail(
        "'{}' is compressed by the filter {}{}, which this HDF5 does not have; install its plugin and set "
        "HDF5_PLUGIN_PATH to the folder, or write the file with gzip where the filter is: h5repack -f GZIP=1 OLD NEW",
        name, filter, text[0] == '\0' ? "" : fmt::format(" ('{}')", text.data()));
  }
}

/// Opens a data set. Throws Error if there is something else under the name, if its elements are in other files, or if
/// HDF5 lacks a filter to read them.
inline Handle open_data(hid_t file, const std::string& name) {
  if (H5Oexists_by_name(file, name.c_str(), H5P_DEFAULT) == 0)
    fail("its link '{}' leads nowhere; put the array there", name);
  {
    const Handle object(H5Oopen(file, name.c_str(), H5P_DEFAULT), H5Oclose);
    if (const auto type = H5Iget_type(object); type != H5I_DATASET)
      fail("'{}' is {}, not an array", name, type == H5I_GROUP ? "a group" : "a type");
  }
  Handle data(H5Dopen2(file, name.c_str(), H5P_DEFAULT), H5Dclose);
  const Handle creation(H5Dget_create_plist(data), H5Pclose);
  check_filters(creation, name);
  if (H5Pget_layout(creation) == H5D_VIRTUAL || check(H5Pget_external_count(creation)) > 0)
    fail("the elements of '{}' are in other files; copy them into the file", name);
  return data;
}

/// Returns the type of a data set's numbers; of an enumeration, such as h5py's Booleans, the type of whole numbers that
/// it is based on. Throws Error if the data set does not hold numbers.
inline Handle number_type(hid_t data, const std::string& name) {
  Handle type(H5Dget_type(data), H5Tclose);
  if (H5Tget_class(type) == H5T_ENUM) type = Handle(H5Tget_super(type), H5Tclose);
  if (const auto kind = H5Tget_class(type); kind != H5T_INTEGER && kind != H5T_FLOAT)
    fail("'{}' does not hold numbers; store it as whole or floating-point numbers", name);
  return type;
}

/// Returns the extents of a data set. Throws Error if they are more than a tensor may have, or too large to count.
inline std::vector<Index> extents_of(hid_t data, const std::string& name) {
  const Handle space(H5Dget_space(data), H5Sclose);
  const int dims = check(H5Sget_simple_extent_ndims(space));
  if (dims > max_dims) fail("'{}' has {} dimensions; it can have at most {}", name, dims, max_dims);
  std::array<hsize_t, max_dims> all{};
  check(H5Sget_simple_extent_dims(space, all.data(), nullptr));
  std::vector<Index> extents;
  double elements = 1;  // with a zero extent there are none, but the other extents must be countable too
  for (int d = 0; d < dims; ++d) {
    elements *= static_cast<double>(std::max<hsize_t>(all[d], 1));
    if (elements > 0x1p48) fail("'{}' has more than 2^48 elements", name);
    extents.push_back(static_cast<Index>(all[d]));
  }
  return extents;
}

}  // namespace partita::hdf5
