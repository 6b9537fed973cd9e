#pragma once

// Arrays in HDF5 files, written by the library itself and not by our code.

#include <hdf5.h>

#include <string>
#include <vector>

namespace partita::test {

/// An array of a file: its type in the file, its extents, and whether the file begins with it.
struct Hdf5Array {
  std::string name;
  hid_t type;
  std::vector<hsize_t> extents;
  bool fresh = false;
  long long classes = 0;         ///< the attribute, unless it is 0
  hid_t creation = H5P_DEFAULT;  ///< properties
};

/// Writes an array of `elements`, which are of HDF5's type `memory`. Returns false if HDF5 refuses it.
template <class T>
bool write_array(const std::string& path, const Hdf5Array& array, hid_t memory, const std::vector<T>& elements) {
  const hid_t file = array.fresh ? H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT)
                                 : H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  const hid_t space = H5Screate_simple(static_cast<int>(array.extents.size()), array.extents.data(), nullptr);
  const hid_t data = H5Dcreate2(file, array.name.c_str(), array.type, space, H5P_DEFAULT, array.creation, H5P_DEFAULT);
  bool written = data >= 0 && H5Dwrite(data, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, elements.data()) >= 0;
  if (array.classes != 0) {
    const hid_t one = H5Screate(H5S_SCALAR);
    const hid_t classes = H5Acreate2(data, "classes", H5T_NATIVE_LLONG, one, H5P_DEFAULT, H5P_DEFAULT);
    written = written && H5Awrite(classes, H5T_NATIVE_LLONG, &array.classes) >= 0;
    H5Aclose(classes);
    H5Sclose(one);
  }
  if (data >= 0) H5Dclose(data);
  H5Sclose(space);
  H5Fclose(file);
  return written;
}

}  // namespace partita::test
