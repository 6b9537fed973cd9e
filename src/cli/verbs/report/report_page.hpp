#pragma once

#include <string>

namespace partita::cli {

// The parts of the report's page. The build makes them from the files in report/page/ (see embed.py there).

std::string report_template();  ///< HTML with the places {{style}}, {{data}}, {{library}} and {{script}}
std::string report_style();     ///< CSS
std::string report_script();    ///< the JavaScript of the page
std::string report_library();   ///< Chart.js; " " if the program was built without it

}  // namespace partita::cli
