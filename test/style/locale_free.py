"""Checks that no number is read or written in the locale of the program: numbers are read by parse_number() of
src/base/plain_text.hpp (or std::from_chars) and printed by fmt. The C and C++ functions below use the locale, in
which 0.5 may be written "0,5" and 1000 "1.000". Streams may read words and write text, but no numbers."""

import re
import sys

import sources

LIBRARY = ["include", "src", "layouts", "distconv", "strategies", "examples"]
# Functions whose result depends on the locale, and what to use instead.
FORBIDDEN = [
    (r"\b(?:strto(?:d|f|ld|l|ll|ul|ull|imax|umax)|ato(?:f|i|l|ll))\s*\(", "parse_number()"),
    (r"\bstd::sto(?:i|l|ll|ul|ull|f|d|ld)\s*\(", "parse_number()"),
    (r"\b(?:v?[fs]?scanf)\s*\(", "parse_number()"),
    (r"\blexical_cast\b", "parse_number() or fmt"),
    (r"\b(?:v?s(?:n)?printf)\s*\(", "fmt"),
    (r"\bpo::value<\s*(?:int|long|double|float|Index|std::u?int\w+|std::size_t)\s*>", "number() of number_option.hpp"),
    (r"\{:[^{}\"]*L\}", "a format without L"),
    (r"\b(?:std::)?(?:is(?:alnum|alpha|digit|lower|upper|space|punct)|to(?:lower|upper))\s*\(", "is_letter() and the like"),
]
STREAM = re.compile(r"std::(?:[io]?stringstream|[io]?fstream)&?\s+(\w+)")
WRITTEN = re.compile(r'all\b|text\b|toml::toml_formatter|"')  # help of Boost, strings


def functions(path, text):
    """Uses of the functions above."""
    for pattern, instead in FORBIDDEN:
        for match in re.finditer(pattern, text):
            yield text.count("\n", 0, match.start()) + 1, f"'{match.group(0).strip()}' uses the locale; use {instead}"


def streams(path, text):
    """Streams from which something else than a word is read, or to which something else than text is written."""
    names = "|".join(set(STREAM.findall(text)))
    if not names:
        return
    for match in re.finditer(rf"\b(?:{names})((?:\s*(?:>>|<<)\s*[^;<>]+?(?=\s*(?:>>|<<|[;)])))+)", text):
        line = text.count("\n", 0, match.start()) + 1
        for arrows, operand in re.findall(r"(>>|<<)\s*([^;<>]+)", match.group(1)):
            name = operand.strip()
            if arrows == ">>" and not re.search(rf"std::string\s+{re.escape(name)}\b", text):
                yield line, f"reads '{name}' from a stream, which uses the locale; use parse_number()"
            if arrows == "<<" and not WRITTEN.match(name):
                yield line, f"writes '{name}' to a stream, which uses the locale; use fmt"


def complaints(path):
    text = path.read_text()
    text = re.sub(r"//[^\n]*", "", text)
    for line, why in functions(path, text):
        yield f"{sources.name(path)}:{line}: {why}"
    if sources.name(path).split("/")[0] in LIBRARY:
        for line, why in streams(path, text):
            yield f"{sources.name(path)}:{line}: {why}"


def main():
    found = []
    for path in sources.files([*LIBRARY, "test", "bench"], sources.CODE):
        found += complaints(path)
    sources.report(found, "numbers in a locale")


if __name__ == "__main__":
    sys.exit(main())
