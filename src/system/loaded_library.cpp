#include "src/system/loaded_library.hpp"

#include "partita/base/error.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <string_view>

namespace partita {

namespace {

/// Where to search: "" stands for the places of the system.
std::vector<std::string> folders() {
  std::vector<std::string> all{""};
  std::string_view rest = PARTITA_LIBRARY_FOLDERS;
  while (!rest.empty()) {
    const auto end = std::min(rest.find(':'), rest.size());
    all.push_back(std::string(rest.substr(0, end)) + "/");
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return all;
}

}  // namespace

LoadedLibrary::LoadedLibrary(const std::vector<std::string>& names, const std::string& what) {
  std::string why;
  for (const std::string& folder : folders())
    for (const std::string& name : names) {
      name_ = name;
      handle_ = dlopen((folder + name).c_str(), RTLD_NOW | RTLD_LOCAL);
      if (handle_ != nullptr) return;
      if (folder.empty()) why = dlerror();
    }
  fail("{} cannot be loaded, which {} need: {}; set LD_LIBRARY_PATH to its folder", name_, what, why);
}

void* LoadedLibrary::address(const char* name) const {
  void* found = dlsym(handle_, name);
  if (found == nullptr) fail("{} has no function {}; it is too old for this build", name_, name);
  return found;
}

}  // namespace partita
