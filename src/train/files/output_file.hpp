#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <future>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "src/system/open_locked.hpp"
#include "src/system/real_path.hpp"
#include "src/system/system_file.hpp"
#include "src/train/files/checksums.hpp"
#include "src/train/files/hdf5.hpp"

namespace partita::hdf5 {

/// Copies bytes [begin, end).
inline void copy(int from, int to, off_t begin, off_t end) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(end - begin));
  require(pread(from, bytes.data(), bytes.size(), begin) == end - begin, "a file in memory has the bytes that it says");
  write_all(to, bytes, begin);
}

/// Makes the data written to a file or folder durable.
inline void synchronize(int file) {
  if (fsync(file) != 0 && errno != EINVAL) fail_system();  // EINVAL: the file system cannot synchronize folders
}

/// Writes elements of a data set from byte `begin` of a file on, and adds their checksums.
inline void write_elements(int file, off_t begin, std::span<const std::byte> elements, Checksums& checksums) {
  if (elements.empty()) return;
  constexpr std::size_t piece = std::size_t{4} << 20;
  auto summed = std::async([&checksums, begin, elements] { checksums.add(begin, elements); });
  while (!elements.empty()) {
    const auto now = elements.first(std::min(piece, elements.size()));
    write_all(file, now, begin);
    sync_file_range(file, begin, static_cast<off_t>(now.size()), SYNC_FILE_RANGE_WRITE);
    begin += static_cast<off_t>(now.size());
    elements = elements.subspan(now.size());
  }
  summed.get();
}

/// An HDF5 file that appears under its path only when it is complete. Until then it is written beside the path, and it
/// is removed unless it is committed.
///
/// HDF5 1.10 cannot close a file after a failed write: the file stays open in the library, which crashes the process at
/// exit. So HDF5 writes only its own structures, and only to a file in memory. We write the elements of the data sets
/// to disk ourselves, at the offsets that HDF5 gave them, and copy the structures when HDF5 has finished. The file in
/// memory uses no memory for the elements.
class OutputFile {
 public:
  /// If the path is a link, the file that it names is written, not the link.
  explicit OutputFile(const std::string& path) : path_(real_path(path)), partial_(partial_of(path)) {}
  /// The path of the file while it is written.
  static std::string partial_of(const std::string& path) { return real_path(path) + ".partial"; }
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile() {
    if (file_ >= 0) {
      const Session session;
      file_ = Handle();
    }
    if (disk_ && !committed_) unlink(partial_.c_str());
  }

  const std::string& partial() const { return partial_; }
  hid_t id() const { return file_; }

  /// Creates the file. Call this and the functions below in a session.
  void create() {
    open_alone();
    memory_.emplace(memfd_create("partita", MFD_CLOEXEC));
    const std::string name = "/proc/self/fd/" + std::to_string(*memory_);
    const Handle root(H5Pcreate(H5P_FILE_CREATE), H5Pclose);
    check(H5Pset_obj_track_times(root, false));  // equal content gives equal files
    file_ = Handle(H5Fcreate(name.c_str(), H5F_ACC_TRUNC, root, descriptor_access()), H5Fclose);
  }

  /// Creates a data set, and the groups in its name.
  Handle create_data(const std::string& name, hid_t type, hid_t space) const {
    const Handle groups(H5Pcreate(H5P_LINK_CREATE), H5Pclose);
    check(H5Pset_create_intermediate_group(groups, 1));
    const Handle placed(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
    check(H5Pset_obj_track_times(placed, false));
    check(H5Pset_alloc_time(placed, H5D_ALLOC_TIME_EARLY));
    check(H5Pset_fill_time(placed, H5D_FILL_TIME_NEVER));
    return {H5Dcreate2(file_, name.c_str(), type, space, groups, placed, H5P_DEFAULT), H5Dclose};
  }

  /// Writes all elements of a data set that `create_data` created.
  void write(hid_t data, std::span<const std::byte> elements) {
    write_elements(*disk_, place(data, static_cast<off_t>(elements.size())), elements, checksums_);
  }
  /// Returns where the file has the elements of a data set, of `bytes` bytes. The caller, or another process, writes
  /// them there with write_elements() before the file is finished, and the caller adds their checksums().
  off_t place(hid_t data, off_t bytes) {
    if (bytes == 0) return 0;
    const haddr_t at = H5Dget_offset(data);
    if (at == HADDR_UNDEF) throw Error(reason());
    const auto begin = static_cast<off_t>(at);
    elements_[begin] = begin + bytes;
    return begin;
  }
  Checksums& checksums() { return checksums_; }
  /// The open file on disk.
  int disk() const { return *disk_; }

  /// Completes the file and makes it durable.
  /// @pre Every data set is closed.
  void finish() {
    file_.close();
    off_t at = 0;
    for (const auto& [begin, end] : elements_) {
      copy(*memory_, *disk_, at, begin);
      at = end;
    }
    const off_t size = lseek(*memory_, 0, SEEK_END);
    require(size >= at, "the file reaches to the end of its elements");
    copy(*memory_, *disk_, at, size);
    checksums_.seal(*disk_, size);
    synchronize(*disk_);
  }

  /// Returns the identity of the complete file.
  /// @pre finish() was called.
  std::uint64_t identity() const { return Checksums::read(*disk_).identity(); }

  /// Renames the file to its path.
  void commit() {
    if (rename(partial_.c_str(), path_.c_str()) != 0) fail_system();
    committed_ = true;
    const auto folder = std::filesystem::path(path_).parent_path().string();
    synchronize(Descriptor(open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_CLOEXEC)));
  }

 private:
  /// Opens the partial file and locks it. Removes what a killed writer left. Gives it the permissions of the file that
  /// it will replace, before it has any content. Throws Error if another process is writing, or if the partial file is
  /// a link: it would change another file.
  void open_alone() {
    struct stat there {};
    const bool exists = stat(path_.c_str(), &there) == 0;
    if (exists && !S_ISREG(there.st_mode) && !S_ISDIR(there.st_mode))
      throw Error("its path names something that is not a regular file");
    const bool replaces = exists && S_ISREG(there.st_mode);
    const auto open_once = [&] { return replaces ? open_locked(partial_, S_IRUSR | S_IWUSR) : open_locked(partial_); };
    int file = open_once();
    for (int tries = 0; file < 0 && errno == EWOULDBLOCK && tries < 20; ++tries) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));  // another run may only be checking that it can write
      file = open_once();
    }
    if (file < 0 && errno == EWOULDBLOCK) throw Error(std::string(being_written));
    if (file < 0 && errno == ELOOP) throw Error("it is a symbolic link; remove it");
    disk_.emplace(file);
    if (replaces && fchmod(*disk_, there.st_mode & 07777) != 0) fail_system();
    if (ftruncate(*disk_, 0) != 0) fail_system();
  }

  std::string path_, partial_;
  std::optional<Descriptor> memory_, disk_;
  Checksums checksums_;
  std::map<off_t, off_t> elements_;  // byte ranges of the data sets' elements: begin -> end
  Handle file_;
  bool committed_ = false;
};

}  // namespace partita::hdf5
