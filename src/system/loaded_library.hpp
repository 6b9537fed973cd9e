#pragma once

#include <string>
#include <vector>

namespace partita {

/// A shared library that is loaded when it is first needed, so that programs start fast and run on machines without it.
class LoadedLibrary {
 public:
  /// Loads the first of `names` that the system finds, or that is in a folder of the toolkit with which this was built.
  /// Throws Error if there is none; `what` says what needs it, e.g. "convolutions on a GPU".
  LoadedLibrary(const std::vector<std::string>& names, const std::string& what);

  /// Sets `function` to the library's function. Throws Error if the library lacks it.
  template <class F>
  void find(const char* name, F*& function) const {
    function = reinterpret_cast<F*>(address(name));
  }

 private:
  void* address(const char* name) const;

  std::string name_;
  void* handle_ = nullptr;  // stays open until the process ends
};

}  // namespace partita
