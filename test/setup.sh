# Setup for test/run.sh and examples/quickstart.sh: Debian packages, ccache, progress lines. Both scripts source this
# file from the root of the project.

run_packages="meson ninja-build g++ dpkg-dev pkg-config python3 ccache mpich libmpich-dev libeigen3-dev libboost-dev
  libboost-program-options-dev libdnnl-dev libtomlplusplus-dev nlohmann-json3-dev libfmt-dev libhdf5-mpich-dev zlib1g-dev
  libjs-chart.js dataset-fashion-mnist"
test_packages="clang clang-format clang-tidy libclang-rt-14-dev libgtest-dev doxygen universal-ctags
  iproute2 chromium cmake python3-venv zsh mandoc groff-base libsimgrid-dev locales"
long_packages="debootstrap slurm-wlm munge"
# Wheels of PyPI that together are a CUDA toolkit with cuDNN and NCCL. Each version is one that works with the others.
cuda_wheels="nvidia-cuda-nvcc==13.0.88 nvidia-nvvm==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-cuda-cccl==13.0.85
  nvidia-cuda-runtime==13.0.96 nvidia-cuda-nvrtc==13.0.88 nvidia-cublas==13.0.2.14 nvidia-cudnn-cu13==9.19.1.2
  nvidia-nccl-cu13==2.28.9"
mpi_packages=" mpich libmpich-dev libhdf5-mpich-dev "

started=$(date +%s)

# say TEXT...: prints a line of progress with the seconds since the start.
say() { printf '[%4d s] %s\n' "$(($(date +%s) - started))" "$*"; }

# missing_packages PACKAGE...: prints the packages that are not installed.
missing_packages() {
  local package
  for package in "$@"; do
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || printf '%s ' "$package"
  done
}

# another_mpi_does PACKAGE...: true if all these packages belong to MPICH, and another MPI and an HDF5 are installed.
another_mpi_does() {
  local package
  for package in "$@"; do
    case "$mpi_packages" in *" $package "*) ;; *) return 1 ;; esac
  done
  command -v mpiexec >/dev/null && command -v pkg-config >/dev/null &&
    { pkg-config --exists mpich || pkg-config --exists ompi || command -v mpicxx >/dev/null; } &&
    { pkg-config --exists hdf5-mpich || pkg-config --exists hdf5-openmpi || pkg-config --exists hdf5; }
}

# install_packages PACKAGE...: installs the packages that are missing. If that is not possible, prints the command for
# it and exits with status 2.
install_packages() {
  if ! command -v dpkg-query >/dev/null; then
    say "this is not Debian; continuing without a check that these packages are installed:" "$@"
    return
  fi
  local missing sudo="" log
  missing=$(missing_packages "$@")
  [ -n "$missing" ] || return 0
  if [ "$(id -u)" != 0 ]; then
    sudo="sudo"
    if ! sudo -n true 2>/dev/null; then
      # shellcheck disable=SC2086
      if another_mpi_does $missing; then
        say "continuing with the MPI that is installed"
        return
      fi
      echo "Some packages are missing, and this user may not install them. Please run:" >&2
      echo "  sudo apt-get update && sudo apt-get install --yes --no-install-recommends $missing" >&2
      exit 2
    fi
  fi
  say "installing $missing"
  log=$(mktemp)
  # shellcheck disable=SC2086
  if ! { $sudo apt-get update && $sudo env DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends \
    $missing; } >"$log" 2>&1 </dev/null; then
    # shellcheck disable=SC2086
    if another_mpi_does $missing; then
      say "MPICH cannot be installed; continuing with the MPI that is installed"
      return
    fi
    tail -n 20 "$log" >&2
    echo "The packages could not be installed. This command failed:" >&2
    echo "  apt-get update && apt-get install --yes --no-install-recommends $missing" >&2
    exit 2
  fi
  rm -f "$log"
}

# provide_cuda: if there is no nvcc, installs the wheels into a folder of the user's cache, and sets cuda_native to a
# native file of Meson that names their nvcc. So a build folder does not depend on PATH later.
provide_cuda() {
  command -v nvcc >/dev/null && return
  local folder=${XDG_CACHE_HOME:-$HOME/.cache}/partita/cuda log
  log=$(mktemp)
  if [ "$(cat "$folder/installed" 2>/dev/null)" != "$cuda_wheels" ]; then
    say "installing CUDA 13.0, cuDNN 9.19 and NCCL 2.28 from PyPI into $folder (1.3 GB to download)"
    rm -rf "$folder"
    # shellcheck disable=SC2086
    if ! { python3 -m venv "$folder/venv" && "$folder/venv/bin/pip" install --no-deps --no-cache-dir --only-binary :all: \
      --target "$folder/wheels" $cuda_wheels && ln -s lib "$folder/wheels/nvidia/cu13/lib64"; } >"$log" 2>&1 </dev/null; then
      tail -n 20 "$log" >&2
      echo "CUDA could not be installed from PyPI; install a CUDA toolkit with cuDNN and put its nvcc into PATH" >&2
      exit 2
    fi
    printf '%s' "$cuda_wheels" >"$folder/installed"
  fi
  rm -f "$log"
  cuda_native=$folder/native.ini
  printf "[binaries]\ncuda = ['ccache', '%s']\n" "$folder/wheels/nvidia/cu13/bin/nvcc" >"$cuda_native"
}

# Lets ccache store objects that were compiled with precompiled headers.
export CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
