#pragma once

#include <string>
#include <utility>
#include <vector>

namespace partita::cli {

// Files that an option names; errors begin with it.

/// An option and what it names: a file, or "" for none.
using NamedFile = std::pair<const char*, std::string>;

/// Better now than after hours of work. Throws Error if one of the files cannot be written, or two options name the same one, or one
/// that is `read`. Devices and pipes take what several options write.
void check_writable(const std::vector<NamedFile>& files, const std::vector<NamedFile>& read = {});
/// Throws Error if the file is a device or a pipe, or one that is open already, as /dev/stdout: of what is read again.
void check_no_stream(const char* option, const std::string& path);
/// True for these.
bool is_stream(const std::string& path);
/// Written beside and renamed, so that neither a crash nor another rank leaves half of it; a device or a pipe is written as it is,
/// and the file that a link names instead of the link. Throws Error.
void write_text(const char* option, const std::string& path, const std::string& text);
/// Throws Error.
std::string read_text(const char* option, const std::string& path);

}  // namespace partita::cli
