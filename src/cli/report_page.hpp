#pragma once

#include <string_view>

namespace partita::cli {

// The parts of the report's page, from the files in report/ (see report/embed.py).

extern const std::string_view report_template;  ///< with {{style}}, {{data}}, {{library}} and {{script}}
extern const std::string_view report_style;
extern const std::string_view report_script;
extern const std::string_view report_library;  ///< Chart.js; " " where the program was built without

}  // namespace partita::cli
