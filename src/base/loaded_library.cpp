#include "partita/base/loaded_library.hpp"

#include "partita/base/error.hpp"

#include <dlfcn.h>

namespace partita {

LoadedLibrary::LoadedLibrary(const std::vector<std::string>& names, const std::string& what) {
  std::string why;
  for (const std::string& name : names) {
    handle_ = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    name_ = name;
    if (handle_ != nullptr) return;
    why = dlerror();
  }
  fail("{} cannot be loaded, which {} need: {}; set LD_LIBRARY_PATH to its folder", name_, what, why);
}

void* LoadedLibrary::address(const char* name) const {
  void* found = dlsym(handle_, name);
  if (found == nullptr) fail("{} has no function {}; it is too old for this build", name_, name);
  return found;
}

}  // namespace partita
