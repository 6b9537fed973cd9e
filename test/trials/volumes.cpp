// Writes data sets for the trials: f64 targets that f32 cannot hold, and a mask of the type that h5py makes of bool.
// Arguments: "targets" or "mask", and the folder.
#include <hdf5.h>

#include <cstdint>
#include <string>
#include <vector>

namespace {

/// Writes a data set. `classes` is the number of classes of labels; 0 for what is no label.
void write(hid_t file, const char* name, hid_t type, const std::vector<hsize_t>& extents, const void* data,
           std::int32_t classes = 0) {
  const hid_t space = H5Screate_simple(static_cast<int>(extents.size()), extents.data(), nullptr);
  const hid_t set = H5Dcreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  H5Dwrite(set, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data);
  if (classes > 0) {
    const hid_t scalar = H5Screate(H5S_SCALAR);
    const hid_t attribute = H5Acreate2(set, "classes", H5T_NATIVE_INT32, scalar, H5P_DEFAULT, H5P_DEFAULT);
    H5Awrite(attribute, H5T_NATIVE_INT32, &classes);
    H5Aclose(attribute);
    H5Sclose(scalar);
  }
  H5Dclose(set);
  H5Sclose(space);
}

void write_targets(hid_t file) {
  const std::vector<double> samples(8 * 4);
  std::vector<double> targets;
  for (int i = 0; i < 8; ++i) targets.push_back(1.7e9 + 0.25 * i);
  write(file, "samples", H5T_NATIVE_DOUBLE, {8, 4}, samples.data());
  write(file, "targets", H5T_NATIVE_DOUBLE, {8, 1}, targets.data());
}

/// h5py stores bool as an enumeration of int8 with the names FALSE and TRUE.
void write_mask(hid_t file) {
  const hid_t type = H5Tenum_create(H5T_NATIVE_INT8);
  for (const std::int8_t value : {0, 1}) H5Tenum_insert(type, value == 0 ? "FALSE" : "TRUE", &value);
  const std::vector<float> samples(8 * 1 * 32 * 32, 0.5F);
  std::vector<std::int8_t> mask(8 * 32 * 32);
  for (std::size_t i = 0; i < mask.size(); ++i) mask[i] = i % 3 == 0 ? 1 : 0;
  write(file, "samples", H5T_NATIVE_FLOAT, {8, 1, 32, 32}, samples.data());
  write(file, "targets", type, {8, 32, 32}, mask.data(), 2);
  H5Tclose(type);
}

}  // namespace

int main(int /*argc*/, char** argv) {
  for (const char* name : {"training", "test"}) {
    const std::string path = std::string(argv[2]) + "/" + name + ".h5";
    const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    if (file < 0) return 1;
    std::string(argv[1]) == "targets" ? write_targets(file) : write_mask(file);
    H5Fclose(file);
  }
}
