"""Writes a C++ source with the parts of the report's page. Arguments: the source to write, then NAME=FILE for each
part. If a NAME occurs several times, its files are joined."""

import pathlib
import sys

PIECE = 16000  # characters per literal; compilers may refuse longer ones

output, *parts = sys.argv[1:]
texts = {}
for part in parts:
    name, file = part.split("=", 1)
    texts[name] = texts.get(name, "") + pathlib.Path(file).read_text(encoding="utf-8")
with open(output, "w", encoding="utf-8") as out:
    out.write('#include "src/cli/verbs/report/report_page.hpp"\n\nnamespace partita::cli {\n')
    for name, text in texts.items():
        assert ')partita"' not in text, f"{name} contains the end of a raw string literal"
        text = text or " "  # a missing part is given as /dev/null
        pieces = [f'R"partita({text[at:at + PIECE]})partita"' for at in range(0, len(text), PIECE)]
        out.write(f"\nstd::string {name}() {{\n  std::string text;\n  for (const char* piece : {{\n" + ",\n".join(pieces) +
                  "})\n    text += piece;\n  return text;\n}\n")
    out.write("\n}  // namespace partita::cli\n")
