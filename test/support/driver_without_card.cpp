// The library of CUDA's driver, of a machine without a card. cuDNN's engines of attention are compiled when a plan is
// made, by NVRTC, and then loaded through the driver. So their plans need a driver, though no card. This one finds no
// card, takes every kernel, and runs none. Tests that make such plans find it as libcuda.so.1.

namespace {

using Result = int;  // CUresult
constexpr Result success = 0, no_device = 100, not_permitted = 800;

int kernel = 0;  // stands for all of them

/// Gives out a handle that is not null.
Result hand_out(void** handle) {
  *handle = &kernel;
  return success;
}

}  // namespace

#define PARTITA_REFUSED(name) \
  Result name() { return not_permitted; }
#define PARTITA_DONE(name) \
  Result name() { return success; }

extern "C" {

Result cuInit(unsigned) { return no_device; }
Result cuDriverGetVersion(int* version) {
  *version = 13000;
  return success;
}
Result cuDeviceGetCount(int* count) {
  *count = 0;
  return success;
}
Result cuGetErrorName(Result, const char** text) {
  *text = "an error of a driver without a card";
  return success;
}
Result cuGetErrorString(Result code, const char** text) { return cuGetErrorName(code, text); }

Result cuLibraryLoadData(void** library) { return hand_out(library); }
Result cuLibraryGetKernel(void** found) { return hand_out(found); }
PARTITA_DONE(cuLibraryUnload)
PARTITA_DONE(cuKernelGetAttribute)
PARTITA_DONE(cuKernelSetAttribute)

PARTITA_REFUSED(cuCtxGetCurrent)
PARTITA_REFUSED(cuCtxGetDevice)
PARTITA_REFUSED(cuCtxGetLimit)
PARTITA_REFUSED(cuCtxPopCurrent)
PARTITA_REFUSED(cuCtxPushCurrent)
PARTITA_REFUSED(cuDeviceGet)
PARTITA_REFUSED(cuDeviceGetAttribute)
PARTITA_REFUSED(cuDevicePrimaryCtxRelease)
PARTITA_REFUSED(cuDevicePrimaryCtxReset)
PARTITA_REFUSED(cuDevicePrimaryCtxRetain)
PARTITA_REFUSED(cuFuncGetAttribute)
PARTITA_REFUSED(cuFuncSetAttribute)
PARTITA_REFUSED(cuLaunchCooperativeKernel)
PARTITA_REFUSED(cuLaunchKernel)
PARTITA_REFUSED(cuLaunchKernelEx)
PARTITA_REFUSED(cuLibraryLoadFromFile)
PARTITA_REFUSED(cuLinkAddData)
PARTITA_REFUSED(cuLinkAddData_v2)
PARTITA_REFUSED(cuLinkAddFile_v2)
PARTITA_REFUSED(cuLinkComplete)
PARTITA_REFUSED(cuLinkCreate)
PARTITA_REFUSED(cuLinkCreate_v2)
PARTITA_REFUSED(cuLinkDestroy)
PARTITA_REFUSED(cuMemcpyDtoH_v2)
PARTITA_REFUSED(cuModuleGetFunction)
PARTITA_REFUSED(cuModuleGetGlobal_v2)
PARTITA_REFUSED(cuModuleLoadData)
PARTITA_REFUSED(cuModuleLoadDataEx)
PARTITA_REFUSED(cuModuleLoadFatBinary)
PARTITA_REFUSED(cuModuleUnload)
PARTITA_REFUSED(cuOccupancyMaxActiveBlocksPerMultiprocessor)
PARTITA_REFUSED(cuOccupancyMaxPotentialClusterSize)
PARTITA_REFUSED(cuStreamGetCtx)
PARTITA_REFUSED(cuStreamSynchronize)
PARTITA_REFUSED(cuTensorMapEncodeTiled)

}  // extern "C"
