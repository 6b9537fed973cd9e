#include "partita/train/data/dataset.hpp"
#include "src/train/files/no_hdf5.hpp"

namespace partita {

std::unique_ptr<Dataset> open_volumes(const std::string& path) { refuse_without_hdf5("data set '" + path + "'"); }
void save_volumes(const std::string& path, Dataset&, DType) { refuse_without_hdf5("data set '" + path + "'"); }

}  // namespace partita
