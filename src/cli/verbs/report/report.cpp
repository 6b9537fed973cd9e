#include "partita/base/error.hpp"
#include "src/cli/files/json.hpp"
#include "src/cli/files/text_file.hpp"
#include "src/cli/options/command.hpp"
#include "src/cli/options/command_line.hpp"
#include "src/cli/output/conditions.hpp"
#include "src/cli/verbs/report/report_input.hpp"
#include "src/cli/verbs/report/report_page.hpp"

namespace partita::cli {

namespace {

namespace po = boost::program_options;

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

class Report final : public Command {
 public:
  explicit Report(const Program&) {}
  void add_options(po::options_description& all) override {
    auto add = all.add_options();
    add("file", po::value(&files_)->composing()->value_name("FILE"), "add a file; the same as FILE without an option");
    add("out", po::value(&out_)->value_name("PAGE"), "HTML page to write; it needs no other file and no network");
  }
  void check(const CommandLine&) override {
    if (report_library().size() <= 1)
      fail(
          "this program was built without Chart.js, which draws the report; install libjs-chart.js, then configure and "
          "build again");
    if (files_.empty()) fail("report needs the files to show, e.g. partita report results.json --out page.html");
    if (out_.empty()) fail("report needs the page to write: --out page.html");
  }
  int run(Communicator*) const override {
    std::vector<NamedFile> shown;
    for (const auto& file : files_) shown.push_back({"the files to show", file});
    check_writable({{"--out", out_}}, shown);
    std::vector<ReportInput> inputs;
    for (const auto& file : files_) inputs.push_back(read_report_input(file));
    write_text("--out", out_, print_page(inputs));
    fmt::print("wrote {}\n", out_);
    return 0;
  }

 private:
  std::vector<std::string> files_;
  std::string out_;
};

}  // namespace

extern const VerbEntry report_verb{
    "report",
    "turns JSON results of train, evaluate, scale and compare into one HTML page",
    "{0} report results.json --out page.html",
    make<Report>,
    VerbEntry::Ranks::none,
    "FILE... --out PAGE\n\nFILE is a JSON file that train, evaluate, scale or compare wrote.\n\nOptions",
    "file"};

}  // namespace partita::cli
