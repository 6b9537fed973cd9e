#include "src/cli/verbs/info/build.hpp"

#include "partita/backend/backend.hpp"
#include "partita/backend/cuda.hpp"
#include "partita/comm/mpi.hpp"
#include "partita/train/checkpoint/checkpoint.hpp"
#include "src/cli/version.hpp"
#include "src/comm/device/nccl.hpp"

#include <zlib.h>

#include <boost/version.hpp>

#include <Eigen/Core>

namespace partita::cli {

namespace {

std::string compiler() {
#if defined(__clang__)
  return "Clang " __clang_version__;
#elif defined(__GNUC__)
  return "GCC " __VERSION__;
#else
  return "unknown";
#endif
}

}  // namespace

FactGroup versions() {
  FactGroup group{"Versions", "versions", {}};
  auto& facts = group.facts;
  facts.emplace_back("Partita", "partita", version);
  facts.emplace_back("compiler", "compiler", compiler());
  const auto version_or = [&](const char* name, const char* key, const std::string& found, const char* none) {
    facts.emplace_back(name, key, found.empty() ? none : found, found.empty() ? Json() : Json(found));
  };
  version_or("MPI", "mpi", mpi_version(), "not in this build (-Dmpi=enabled); ranks are threads (--ranks N)");
  version_or("HDF5", "hdf5", hdf5_version(), "not in this build (-Dhdf5=enabled); no checkpoints");
  version_or("oneDNN", "onednn", onednn_version(), "not in this build");
  const CudaVersions cuda = cuda_versions();
  version_or("CUDA", "cuda", cuda.runtime, "not in this build");
  version_or("  driver", "cuda_driver", cuda.driver, "none");
  version_or("cuDNN", "cudnn", cuda.cudnn, "not in this build");
  version_or("cuBLASLt", "cublaslt", cuda.cublas, "not in this build");
  version_or("NCCL", "nccl", nccl_version(), "not in this build");
  facts.emplace_back("Eigen", "eigen",
                     fmt::format("{}.{}.{}", EIGEN_WORLD_VERSION, EIGEN_MAJOR_VERSION, EIGEN_MINOR_VERSION));
  facts.emplace_back("Boost", "boost",
                     fmt::format("{}.{}.{}", BOOST_VERSION / 100000, BOOST_VERSION / 100 % 1000, BOOST_VERSION % 100));
  facts.emplace_back("{fmt}", "fmt",
                     fmt::format("{}.{}.{}", FMT_VERSION / 10000, FMT_VERSION / 100 % 100, FMT_VERSION % 100));
  facts.emplace_back("zlib", "zlib", zlibVersion());
  return group;
}

FactGroup build_options() {
  FactGroup group{"Build", "build", {}};
  auto& facts = group.facts;
  facts.emplace_back("type", "type", build_type);
  facts.emplace_back("sanitizers", "sanitizers", build_sanitizers);
  facts.emplace_back("native", "native", built_native ? "yes (-march=native)" : "no", Json(built_native));
  facts.emplace_back("report", "report", built_report ? "yes" : "no, Chart.js was not found", Json(built_report));
  const std::string_view starts = launcher;
  facts.emplace_back("launcher", "launcher", starts.empty() ? "none, without MPI" : std::string(starts),
                     starts.empty() ? Json() : Json(std::string(starts)));
  return group;
}

}  // namespace partita::cli
