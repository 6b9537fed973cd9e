#pragma once

#include "src/cli/files/json.hpp"

#include <string>

namespace partita::cli {

/// A file of results that a verb wrote as JSON.
struct ReportInput {
  std::string file;
  std::string subject;  ///< train, evaluate, scale or compare
  Json content;
};

/// Reads a file of results. Throws Error, with the file and the place in it, if the file is not such a file or lacks a
/// field that a report shows.
ReportInput read_report_input(const std::string& path);

}  // namespace partita::cli
