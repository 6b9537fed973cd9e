#pragma once

#include "partita/base/box.hpp"
#include "partita/base/error.hpp"

#include <hdf5.h>

#include <array>
#include <mutex>
#include <string>
#include <utility>

namespace partita::hdf5 {

/// Every call of HDF5 must be in the scope of a session, because its C library is not thread-safe and ranks may be
/// threads. Do not communicate inside a session. HDF5 prints nothing during a session; its messages go into our errors.
class Session {
 public:
  Session() : lock_(mutex()) {
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

/// Returns access to a file by ordinary system calls, even if HDF5 was built for MPI or the environment names a driver.
inline Handle serial_access() {
  Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  check(H5Pset_fapl_sec2(access));
  return access;
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
  for (int d = 0; d < box.dims(); ++d) extents[static_cast<std::size_t>(d)] = static_cast<hsize_t>(box.extent(d));
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
  for (int d = 0; d < box.dims(); ++d) start[static_cast<std::size_t>(d)] = static_cast<hsize_t>(box[d].lo);
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

inline std::string read_text(hid_t attribute) {
  const Handle type = text_type();
  const Handle space(H5Aget_space(attribute), H5Sclose);
  char* start = nullptr;
  check(H5Aread(attribute, type, &start));
  std::string text = start == nullptr ? "" : start;
  H5Dvlen_reclaim(type, space, H5P_DEFAULT, &start);
  return text;
}

}  // namespace partita::hdf5
