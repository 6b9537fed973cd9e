#include "src/cli/verbs/report/report.hpp"

#include "partita/base/error.hpp"
#include "src/cli/support/command_line.hpp"
#include "src/cli/support/conditions.hpp"
#include "src/cli/support/json.hpp"
#include "src/cli/support/text_file.hpp"
#include "src/cli/verbs/report/report_input.hpp"
#include "src/cli/verbs/report/report_page.hpp"

#include <sstream>

namespace partita::cli {

namespace {

namespace po = boost::program_options;

struct ReportOptions {
  std::vector<std::string> files;
  std::string out;
};

po::options_description add_options(ReportOptions& o, const std::string& program) {
  po::options_description all(
      "Usage: " + program +
      " report FILE... --out PAGE\n\nFILE is a JSON file that train, evaluate, scale or compare "
      "wrote.\n\nOptions");
  add_common_options(all);
  auto add = all.add_options();
  add("file", po::value(&o.files)->composing()->value_name("FILE"), "add a file; the same as FILE without an option");
  add("out", po::value(&o.out)->value_name("PAGE"), "HTML page to write; it needs no other file and no network");
  return all;
}

/// Prints JSON for use inside a script element. Only `<` could end the element or begin a comment, so it is escaped.
std::string as_script_data(const Json& json) {
  std::string text;
  for (const char c : json.dump(-1, ' ', true, Json::error_handler_t::replace))
    text += c == '<' ? "\\u003c" : std::string(1, c);
  return text;
}

/// Returns the template with each {{name}} replaced by the part of that name.
std::string fill(std::string_view page, const std::vector<std::pair<std::string, std::string>>& parts) {
  std::string text;
  while (true) {
    const auto begin = page.find("{{"), end = page.find("}}", begin);
    text += page.substr(0, begin);
    if (end == std::string_view::npos) return text;
    const auto name = page.substr(begin + 2, end - begin - 2);
    for (const auto& [each, part] : parts)
      if (each == name) text += part;
    page.remove_prefix(end + 2);
  }
}

std::string print_page(const std::vector<ReportInput>& inputs) {
  Json data{{"made", present_conditions().date}, {"files", Json::array()}};
  for (const auto& [file, subject, content] : inputs)
    data["files"].push_back({{"file", file}, {"subject", subject}, {"content", content}});
  const std::string json = as_script_data(data);
  return fill(report_template(),
              {{"style", report_style()}, {"data", json}, {"library", report_library()}, {"script", report_script()}});
}

}  // namespace

po::options_description describe_report(const std::string& program) {
  ReportOptions unused;
  return add_options(unused, program);
}

int report(int argc, char** argv) {
  ReportOptions o;
  const auto all = add_options(o, program_name(argc, argv));
  const auto values = read_command_line(argc - 1, argv + 1, all, "file");
  if (values.count("help") != 0) {
    std::ostringstream text;
    text << all;
    fmt::print("{}", text.str());
    return 0;
  }
  if (report_library().size() <= 1)
    fail(
        "this program was built without Chart.js, which draws the report; install libjs-chart.js, then configure and "
        "build again");
  if (o.files.empty()) fail("report needs the files to show, e.g. partita report results.json --out page.html");
  if (o.out.empty()) fail("report needs the page to write: --out page.html");
  std::vector<NamedFile> shown;
  for (const auto& file : o.files) shown.push_back({"the files to show", file});
  check_writable({{"--out", o.out}}, shown);
  std::vector<ReportInput> inputs;
  for (const auto& file : o.files) inputs.push_back(read_report_input(file));
  write_text("--out", o.out, print_page(inputs));
  fmt::print("wrote {}\n", o.out);
  return 0;
}

}  // namespace partita::cli
