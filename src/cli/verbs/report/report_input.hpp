#pragma once

#include "src/cli/support/json.hpp"

#include <string>

namespace partita::cli {

/// Results that a verb wrote as JSON.
struct ReportInput {
  std::string file;
  std::string subject;  ///< train, evaluate, scale or compare
  Json content;
};

/// Reads a file of results. Throws Error, with the file and the place in it, for what is not, or lacks what a report shows.
ReportInput read_report_input(const std::string& path);

}  // namespace partita::cli
