#pragma once

#include <string>

namespace partita::cli {

// The parts of the report's page, from the files in report/ (see report/embed.py).

std::string report_template();  ///< with {{style}}, {{data}}, {{library}} and {{script}}
std::string report_style();
std::string report_script();
std::string report_library();  ///< Chart.js; " " where the program was built without

}  // namespace partita::cli
