#pragma once

#include <initializer_list>
#include <string>
#include <utility>

namespace partita::cli {

// Files that an option names; errors begin with it.

/// An option and what it names: a file, or "" for none.
using NamedFile = std::pair<const char*, std::string>;

/// Better now than after hours of work. Throws Error if one of the files cannot be written, or two options name the same one.
void check_writable(std::initializer_list<NamedFile> files);
/// True if both are one file, through links too, be it there or not. Devices and pipes take what several options write.
bool same_file(const std::string& one, const std::string& other);
/// Written beside and renamed, so that neither a crash nor another rank leaves half of it; a device or a pipe is written as it is,
/// and the file that a link names instead of the link. Throws Error.
void write_text(const char* option, const std::string& path, const std::string& text);
/// Throws Error.
std::string read_text(const char* option, const std::string& path);

}  // namespace partita::cli
