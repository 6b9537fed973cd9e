# Builds Partita with Spack from a checkout. From the root of the project:
#   spack repo add examples/deploy/spack
#   spack dev-build partita@0.1.0
from spack.package import *

try:
    from spack_repo.builtin.build_systems.meson import MesonPackage  # Spack 1.0 moved it there
except ImportError:
    pass


class Partita(MesonPackage):
    """Trains neural networks partitioned over many MPI ranks, and predicts what a partitioning costs."""

    license("Apache-2.0")

    version("0.1.0")

    variant("mpi", default=True, description="Build ranks that are processes")
    variant("hdf5", default=True, description="Build checkpoints and data sets in HDF5 files")
    variant("native", default=False, description="Compile for the processor of this machine (-march=native)")
    variant("cuda", default=False, description="Build the backend for GPUs")
    variant("onednn", default=True, description="Build the fast CPU backend, which uses oneDNN")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("meson@1.0:", type="build")
    depends_on("ninja", type="build")
    depends_on("pkgconfig", type=("build", "run"))  # partita-config.cmake asks it for libraries
    depends_on("python@3.9:", type="build")

    depends_on("mpi", when="+mpi")
    depends_on("boost+program_options")
    depends_on("eigen@3.4:")
    depends_on("fmt@9:")
    depends_on("hdf5@1.10:", when="+hdf5")
    depends_on("hdf5~mpi", when="+hdf5~mpi")
    depends_on("nlohmann-json@3.11:")
    depends_on("tomlplusplus@3:")
    depends_on("zlib-api")
    depends_on("onednn@2.6:2 cpu_runtime=omp", when="+onednn")
    depends_on("cuda@12.1:", when="+cuda")
    depends_on("cudnn@9.11:", when="+cuda")
    depends_on("nccl", when="+cuda")

    conflicts("%gcc@:11", msg="C++20 needs GCC 12 or later")
    conflicts("%clang@:13", msg="C++20 needs Clang 14 or later")

    def meson_args(self):
        return [
            "-Dtests=false",
            "-Dnative=" + ("true" if self.spec.satisfies("+native") else "false"),
            "-Dmpi=" + ("enabled" if self.spec.satisfies("+mpi") else "disabled"),
            "-Dhdf5=" + ("enabled" if self.spec.satisfies("+hdf5") else "disabled"),
            "-Dcuda=" + ("enabled" if self.spec.satisfies("+cuda") else "disabled"),
            "-Donednn=" + ("enabled" if self.spec.satisfies("+onednn") else "disabled"),
        ]
