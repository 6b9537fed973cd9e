// HDF5 files that somebody forged: attributes with many values, links out of the file, elements in other files. A
// reader refuses them before HDF5 writes beyond its memory or opens another file.
#include "partita/train/data/dataset.hpp"
#include "test/support/error_of.hpp"
#include "test/train/checkpoint/checkpoints.hpp"

#include <hdf5.h>

#include <fstream>

namespace partita::test::forged_test {
namespace {

using Ids = std::vector<std::pair<hid_t, herr_t (*)(hid_t)>>;

/// An HDF5 file that is open to be changed. It closes all that was made in it.
class Forged {
 public:
  explicit Forged(const std::string& path, bool fresh = false)
      : file_(fresh ? keep(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), H5Fclose)
                    : keep(H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT), H5Fclose)) {}
  Forged(const Forged&) = delete;
  Forged& operator=(const Forged&) = delete;
  ~Forged() {
    for (auto at = ids_.rbegin(); at != ids_.rend(); ++at) at->second(at->first);
  }

  hid_t file() const { return file_; }
  hid_t keep(hid_t id, herr_t (*closer)(hid_t)) {
    EXPECT_GE(id, 0);
    ids_.emplace_back(id, closer);
    return id;
  }
  hid_t space(const std::vector<hsize_t>& extents) {
    return keep(H5Screate_simple(static_cast<int>(extents.size()), extents.data(), nullptr), H5Sclose);
  }
  hid_t text_type() {
    const hid_t type = keep(H5Tcopy(H5T_C_S1), H5Tclose);
    H5Tset_size(type, H5T_VARIABLE);
    H5Tset_cset(type, H5T_CSET_UTF8);
    return type;
  }
  hid_t data(const std::string& name, const std::vector<hsize_t>& extents, hid_t creation = H5P_DEFAULT) {
    return keep(H5Dcreate2(file_, name.c_str(), H5T_NATIVE_INT32, space(extents), H5P_DEFAULT, creation, H5P_DEFAULT),
                H5Dclose);
  }
  hid_t open_data(const std::string& name) { return keep(H5Dopen2(file_, name.c_str(), H5P_DEFAULT), H5Dclose); }
  /// Sets an attribute of `object` to `values`; an empty vector gives an attribute without a value.
  void set_numbers(hid_t object, const std::string& name, const std::vector<int>& values) {
    const hid_t attribute = replace(object, name, H5T_NATIVE_INT32, values.size());
    if (!values.empty()) H5Awrite(attribute, H5T_NATIVE_INT32, values.data());
  }
  void set_texts(hid_t object, const std::string& name, const std::vector<const char*>& values) {
    const hid_t type = text_type();
    H5Awrite(replace(object, name, type, values.size()), type, values.data());
  }

 private:
  hid_t replace(hid_t object, const std::string& name, hid_t type, std::size_t values) {
    if (H5Aexists(object, name.c_str()) > 0) H5Adelete(object, name.c_str());
    const hid_t space = values == 0 ? keep(H5Screate(H5S_NULL), H5Sclose) : this->space({values});
    return keep(H5Acreate2(object, name.c_str(), type, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
  }

  Ids ids_;
  hid_t file_;
};

/// A folder with a data set of four labeled samples, which each test changes.
class ForgedVolumes : public Checkpoint {
 protected:
  void SetUp() override {
    Checkpoint::SetUp();
    save_volumes(path_, *make_synthetic({{'C', 2}, {'W', 3}}, {}, 4, 3, 1, 0));
  }
  void expect_refused(std::initializer_list<std::string_view> parts) const {
    expect_error([&] { open_volumes(path_); }, parts);
  }
  void set_classes(const std::vector<int>& values) const {
    Forged forged(path_);
    forged.set_numbers(forged.open_data("targets"), "classes", values);
  }
};

TEST_F(ForgedVolumes, ClassesAreOneWholeNumber) {
  for (const std::size_t count : {std::size_t{2}, std::size_t{10}, std::size_t{4000}}) {
    set_classes(std::vector<int>(count, 7));
    expect_refused({path_, fmt::format("the attribute 'classes' holds {} values", count)});
  }
  set_classes({});
  expect_refused({path_, "the attribute 'classes' holds 0 values"});
  {
    Forged forged(path_);
    forged.set_texts(forged.open_data("targets"), "classes", {"7"});
  }
  expect_refused({path_, "the attribute 'classes' is not a whole number"});
  set_classes({3});
  EXPECT_EQ(open_volumes(path_)->classes(), 3);
}

TEST_F(ForgedVolumes, ClassesFitInLabels) {
  {
    Forged forged(path_);
    const hid_t targets = forged.open_data("targets");
    H5Adelete(targets, "classes");
    const hid_t space = forged.keep(H5Screate(H5S_SCALAR), H5Sclose);
    const hid_t attribute =
        forged.keep(H5Acreate2(targets, "classes", H5T_NATIVE_LLONG, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
    const long long many = 1LL << 40;
    H5Awrite(attribute, H5T_NATIVE_LLONG, &many);
  }
  expect_refused({path_, "is 1099511627776; it must be from 1 to 2147483647"});
}

TEST_F(ForgedVolumes, LinksStayInTheFile) {
  const std::string other = file("other.h5");
  std::filesystem::copy_file(path_, other);
  {
    Forged forged(path_);
    H5Ldelete(forged.file(), "samples", H5P_DEFAULT);
    ASSERT_GE(H5Lcreate_external(other.c_str(), "samples", forged.file(), "samples", H5P_DEFAULT, H5P_DEFAULT), 0);
  }
  expect_refused({path_, "its link 'samples' leads out of the file"});
  {
    Forged forged(path_);  // by way of a link inside the file
    H5Lmove(forged.file(), "samples", forged.file(), "away", H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_soft("/away", forged.file(), "samples", H5P_DEFAULT, H5P_DEFAULT);
  }
  expect_refused({path_, "its link 'away' leads out of the file"});
}

TEST_F(ForgedVolumes, LinksInsideTheFileAreFollowed) {
  {
    Forged forged(path_);
    H5Lmove(forged.file(), "samples", forged.file(), "pixels", H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_soft("/pixels", forged.file(), "samples", H5P_DEFAULT, H5P_DEFAULT);
  }
  EXPECT_EQ(open_volumes(path_)->size(), 4);
}

TEST_F(ForgedVolumes, ElementsAreInTheFile) {
  const std::string secret = file("secret");
  std::ofstream(secret) << "what another user must not read";
  {
    Forged forged(path_);
    H5Ldelete(forged.file(), "samples", H5P_DEFAULT);
    const hid_t creation = forged.keep(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
    H5Pset_external(creation, secret.c_str(), 0, 96);
    forged.data("samples", {4, 2, 3}, creation);
  }
  expect_refused({path_, "the elements of 'samples' are in other files"});
  {
    Forged forged(path_);
    H5Ldelete(forged.file(), "samples", H5P_DEFAULT);
    const hid_t creation = forged.keep(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
    const hid_t all = forged.space({4, 2, 3});
    ASSERT_GE(H5Pset_virtual(creation, all, secret.c_str(), "samples", all), 0);
    forged.data("samples", {4, 2, 3}, creation);
  }
  expect_refused({path_, "the elements of 'samples' are in other files"});
}

TEST_F(ForgedVolumes, ExtentsCanBeCounted) {
  const auto replace_samples = [&](const std::vector<hsize_t>& extents) {
    Forged forged(path_);
    H5Ldelete(forged.file(), "samples", H5P_DEFAULT);
    const hid_t creation = forged.keep(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
    H5Pset_chunk(creation, static_cast<int>(extents.size()), std::vector<hsize_t>(extents.size(), 1).data());
    forged.data("samples", extents, creation);
  };
  replace_samples(std::vector<hsize_t>(32, 1));
  expect_refused({path_, "'samples' has 32 dimensions; it can have at most 5"});
  replace_samples({4, hsize_t{1} << 40, hsize_t{1} << 20});
  expect_refused({path_, "'samples' has more than 2^48 elements"});
}

/// A checkpoint with one tensor, which each test changes and seals again, so that its checksums are right.
class ForgedCheckpoint : public Checkpoint {
 protected:
  void SetUp() override {
    Checkpoint::SetUp();
    save(path_, "", tensors_, {{"model", "net"}});
  }
  void expect_refused(std::initializer_list<std::string_view> parts) const {
    seal();
    expect_error([&] { throw Error(load_error(path_, "", tensors_)); }, parts);
  }

  std::vector<Spec> tensors_{{"fc/weight", {{'F', 3}, {'C', 5}}, DType::f32, ""}};
};

TEST_F(ForgedCheckpoint, ItsVersionIsOneWholeNumber) {
  {
    Forged forged(path_);
    forged.set_numbers(forged.file(), "partita_checkpoint", std::vector<int>(4000, 2));
  }
  expect_refused({path_, "the attribute 'partita_checkpoint' holds 4000 values"});
  {
    Forged forged(path_);
    forged.set_texts(forged.file(), "partita_checkpoint", {"2"});
  }
  expect_refused({path_, "the attribute 'partita_checkpoint' is not a whole number"});
}

TEST_F(ForgedCheckpoint, ItsDimensionsAreOneText) {
  {
    Forged forged(path_);
    forged.set_texts(forged.open_data("fc/weight"), "dimensions", std::vector<const char*>(500, "FC"));
  }
  expect_refused({path_, "fc/weight", "the attribute 'dimensions' holds 500 values"});
  {
    Forged forged(path_);
    forged.set_numbers(forged.open_data("fc/weight"), "dimensions", {17});
  }
  expect_refused({path_, "fc/weight", "the attribute 'dimensions' is not a text of variable length"});
}

TEST_F(ForgedCheckpoint, ItsAttributesAreOneTextEach) {
  {
    Forged forged(path_);
    forged.set_texts(forged.file(), "model", std::vector<const char*>(500, "net"));
  }
  seal();
  expect_error([&] { checkpoint_attributes(path_); }, {path_, "the attribute 'model' holds 500 values"});
}

TEST_F(ForgedCheckpoint, ItHoldsItsTensorsItself) {
  const std::string other = file("other.h5");
  std::filesystem::copy_file(path_, other);
  {
    Forged forged(path_);
    H5Ldelete(forged.file(), "fc/weight", H5P_DEFAULT);
    H5Lcreate_external(other.c_str(), "fc/weight", forged.file(), "fc/weight", H5P_DEFAULT, H5P_DEFAULT);
  }
  expect_refused({path_, "its link 'fc/weight' leads out of the file"});
  {
    Forged forged(path_);
    H5Ldelete(forged.file(), "fc/weight", H5P_DEFAULT);
    const hid_t creation = forged.keep(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
    H5Pset_external(creation, other.c_str(), 0, 60);
    forged.set_texts(forged.data("fc/weight", {3, 5}, creation), "dimensions", {"FC"});
  }
  expect_refused({path_, "the elements of 'fc/weight' are in other files"});
  {
    Forged forged(path_);
    H5Ldelete(forged.file(), "fc/weight", H5P_DEFAULT);
    forged.set_texts(forged.data("fc/weight", std::vector<hsize_t>(32, 1)), "dimensions",
                     {"FCDHWNABEGIJKLMOPQRSTUVXYZ"});
  }
  expect_refused({path_, "'fc/weight' has 32 dimensions; it can have at most 5"});
}

}  // namespace
}  // namespace partita::test::forged_test
