#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace partita::cli {

// Files that options name. Error messages begin with the name of the option.

/// The name that stands for standard output.
inline constexpr const char* standard_output = "/dev/stdout";

/// What an option writes. A checkpoint has checks of its own (verbs/train/checkpoints.hpp).
enum class FileKind : std::uint8_t { text, json, checkpoint };

/// An option and the file that it names; "" for none.
struct NamedFile {
  const char* option;
  std::string path;
  FileKind kind = FileKind::text;
};

/// Checks before a long run that its files can be written. Throws Error if one of `files` cannot be written, if two
/// options name the same file, if one of `files` is also among the files to `read`, or if the file there is surely of
/// another kind. Several options may name the same device or pipe.
void check_writable(const std::vector<NamedFile>& files, const std::vector<NamedFile>& read = {});
/// Throws Error if is_stream(path): for files that will be read again.
void check_no_stream(const char* option, const std::string& path);
/// Throws Error if a launcher has started several processes and one of the files is_stream(): a pipe gives its text
/// only once, and often one process alone has the standard input of the launcher, so that others would wait for theirs.
void check_readable_by_all(const std::vector<NamedFile>& files);
/// True for a device, a pipe, and a name of an open file such as /dev/stdout.
bool is_stream(const std::string& path);
/// Writes a file. A regular file is written under another name and renamed, so that neither a crash nor another rank
/// leaves half of it; it keeps the permissions of the file that it replaces. For a link, the file that it points to is
/// written. A device or a pipe is written directly. Throws Error if the file cannot be written.
void write_text(const char* option, const std::string& path, const std::string& text);
/// Reads a file. Throws Error if it cannot be read.
std::string read_text(const char* option, const std::string& path);
/// Writes to an open file, and waits where another program has made it non-blocking. Returns false if it cannot be
/// written; reason() then says why.
bool write_stream(int to, std::string_view text);
/// Returns why the last system call failed.
std::string reason();

/// Lets the process go on when standard output cannot be written, e.g. because a disk is full: says so once on standard
/// error and drops the text. A long run must not end, and lose its work, because nobody can read its progress. Call it
/// before anything is printed.
void outlast_full_output();

}  // namespace partita::cli
