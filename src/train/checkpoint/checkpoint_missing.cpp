#include "partita/train/checkpoint/checkpoint.hpp"
#include "src/train/files/no_hdf5.hpp"

namespace partita {

namespace {

[[noreturn]] void refuse(const std::string& path) { refuse_without_hdf5("checkpoint '" + path + "'"); }

}  // namespace

struct CheckpointFile::Opened {};

std::string hdf5_version() { return ""; }
CheckpointFile::CheckpointFile(const std::string& path) { refuse(path); }
CheckpointFile::~CheckpointFile() = default;
CheckpointFile::CheckpointFile(CheckpointFile&&) noexcept = default;
CheckpointFile& CheckpointFile::operator=(CheckpointFile&&) noexcept = default;
const std::string& CheckpointFile::path() const { refuse(""); }
const std::map<std::string, std::string>& CheckpointFile::attributes() const { refuse(""); }
const std::map<std::string, std::string>& CheckpointFile::tensors() const { refuse(""); }
std::uint64_t CheckpointFile::identity() const { refuse(""); }
void CheckpointFile::load(const std::vector<NamedTensor>&, Communicator&) const { refuse(""); }
std::uint64_t save_checkpoint(const std::string& path, const std::vector<NamedTensor>&,
                              const std::map<std::string, std::string>&, Communicator&, const std::function<void()>&) {
  refuse(path);
}
void check_saving(const std::string& path) { refuse(path); }
void load_checkpoint(const std::string& path, const std::vector<NamedTensor>&, Communicator&) { refuse(path); }
std::map<std::string, std::string> checkpoint_attributes(const std::string& path) { refuse(path); }

}  // namespace partita
