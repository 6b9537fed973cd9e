#include "partita/train/data/byte_pairs.hpp"

#include "partita/base/error.hpp"
#include "src/system/seekable.hpp"
#include "src/system/system_file.hpp"
#include "src/train/data/unicode_ranges.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <optional>
#include <queue>
#include <utility>

namespace partita {

namespace {

using Json = nlohmann::json;

// Characters

/// What the pattern of GPT-2 tells apart.
enum class Kind : std::uint8_t { letter, number, space, other };

/// A character of a text: a code point of valid UTF-8, or a byte that is none.
struct Character {
  Kind kind = Kind::other;
  std::size_t length = 1;
};

template <class Ranges>
bool is_in(const Ranges& ranges, char32_t code) {
  return (std::upper_bound(ranges.begin(), ranges.end(), code) - ranges.begin()) % 2 == 1;
}

Kind kind_of(char32_t code) {
  // The property White_Space.
  static constexpr std::array<char32_t, 20> spaces{0x9,    0xe,    0x20,   0x21,   0x85,   0x86,   0xa0,
                                                   0xa1,   0x1680, 0x1681, 0x2000, 0x200b, 0x2028, 0x202a,
                                                   0x202f, 0x2030, 0x205f, 0x2060, 0x3000, 0x3001};
  return is_in(letter_ranges, code)   ? Kind::letter
         : is_in(number_ranges, code) ? Kind::number
         : is_in(spaces, code)        ? Kind::space
                                      : Kind::other;
}

/// Returns the code point that begins a text, with its length; a length of 0 if there is no valid one. Surrogates and
/// numbers beyond the last code point count as code points, which are neither letters nor numbers nor spaces.
std::pair<char32_t, std::size_t> code_point(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return {first, 1};
  const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < length) return {0, 0};
  char32_t code = first & (0x7fU >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0U) != 0x80) return {0, 0};
    code = code << 6U | (byte(i) & 0x3fU);
  }
  constexpr std::array<char32_t, 5> least{0, 0, 0x80, 0x800, 0x10000};
  if (code < least[length]) return {0, 0};
  return {code, length};
}

Character character_at(std::string_view text, std::size_t at) {
  static const auto plain = [] {
    std::array<Kind, 0x80> kinds{};
    for (char32_t code = 0; code < kinds.size(); ++code) kinds[code] = kind_of(code);
    return kinds;
  }();
  if (const auto byte = static_cast<unsigned char>(text[at]); byte < plain.size()) return {plain[byte], 1};
  const auto [code, length] = code_point(text.substr(at, 4));
  return length == 0 ? Character{} : Character{kind_of(code), length};
}

/// Returns the end of the characters of one kind from `at` on.
std::size_t end_of_run(std::string_view text, std::size_t at, Kind kind) {
  while (at < text.size()) {
    const Character next = character_at(text, at);
    if (next.kind != kind) break;
    at += next.length;
  }
  return at;
}

/// Returns the end of the piece that begins at `at`, by the pattern of GPT-2:
/// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
std::size_t end_of_piece(std::string_view text, std::size_t at) {
  if (text[at] == '\'')
    for (const std::string_view ending : {"s", "t", "re", "ve", "m", "ll", "d"})
      if (text.substr(at + 1).starts_with(ending)) return at + 1 + ending.size();
  const std::size_t begin = at + (text[at] == ' ' ? 1 : 0);
  if (begin < text.size())
    if (const Kind kind = character_at(text, begin).kind; kind != Kind::space) return end_of_run(text, begin, kind);
  const std::size_t end = end_of_run(text, at, Kind::space);
  if (end == text.size()) return end;
  std::size_t last = at;  // where the last space begins, which belongs to what follows
  for (std::size_t next = at; next < end; next += character_at(text, next).length) last = next;
  return last > at ? last : end;
}

// The file

/// Reads a tokenizer.json. Its errors name the file and the key.
class File {
 public:
  explicit File(const std::string& path) : path_(path) {
    check_seekable(path);
    std::string text;
    try {
      text = read_everything(path);
    } catch (const Error& error) {
      fail("cannot read '{}': {}", path, error.what());
    }
    try {
      all_ = Json::parse(text);
    } catch (const Json::parse_error& error) {
      fail("'{}' is no JSON at byte {}; give a tokenizer.json as Hugging Face's tokenizers write it", path, error.byte);
    }
    if (!all_.is_object()) fail("'{}' is no JSON object; give a tokenizer.json", path);
  }

  /// Throws Error unless the file asks for what is supported.
  void check() const {
    want("normalizer", value("normalizer"), nullptr);
    check_bytes("pre_tokenizer", false);
    check_bytes("decoder", true);
    const Json& before = value("pre_tokenizer");
    want("pre_tokenizer.add_prefix_space", before.value("add_prefix_space", Json(true)), false);
    want("pre_tokenizer.use_regex", before.value("use_regex", Json(true)), true);
    const Json& model = value("model");
    if (!model.is_object()) wrong("model", "it must be an object");
    want("model.type", model.value("type", Json("BPE")), "BPE");
    for (const char* key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix"})
      if (const Json& given = model.value(key, Json()); !(given == "" || given == 0))
        want("model." + std::string(key), given, nullptr);
    for (const char* key : {"byte_fallback", "ignore_merges"})
      want("model." + std::string(key), model.value(key, Json(false)), false);
  }

  const Json& value(const char* key) const {
    static const Json none;
    const auto found = all_.find(key);
    return found == all_.end() ? none : *found;
  }
  const Json& of_model(const char* key) const {
    const Json& model = value("model");
    const auto found = model.find(key);
    if (found == model.end()) wrong(std::string("model.") + key, "it is missing");
    return *found;
  }
  [[noreturn]] void wrong(const std::string& key, const std::string& what) const {
    fail("'{}', {}: {}", path_, key, what);
  }
  /// Returns a token's number.
  std::int32_t token(const std::string& key, const Json& given) const {
    constexpr Index most = Index{1} << 24;
    if (!given.is_number_unsigned() || given.get<std::uint64_t>() >= most)
      wrong(key, fmt::format("a token is {}; it must be a whole number from 0 to {}", given.dump(), most - 1));
    return given.get<std::int32_t>();
  }

 private:
  void want(const std::string& key, const Json& given, const Json& wanted) const {
    if (given != wanted)
      wrong(key, fmt::format("it is {}; only {} is supported", given.dump().substr(0, 80), wanted.dump()));
  }
  void check_bytes(const char* key, bool optional) const {
    const Json& given = value(key);
    if (optional && given.is_null()) return;
    if (!given.is_object() || given.value("type", Json()) != "ByteLevel")
      wrong(key, fmt::format("its type is {}; only \"ByteLevel\" is supported",
                             given.is_object() ? given.value("type", Json()).dump() : given.dump().substr(0, 80)));
  }

  std::string path_;
  Json all_;
};

/// GPT-2's code point for each byte: printable ones stand for themselves, the others follow from 256 on.
std::array<char32_t, 256> codes_of_bytes() {
  std::array<char32_t, 256> codes{};
  char32_t next = 256;
  for (char32_t byte = 0; byte < codes.size(); ++byte) {
    const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    codes[byte] = printable ? byte : next++;
  }
  return codes;
}

/// Returns the bytes for which the characters of a token stand; nothing if one of them stands for none.
std::optional<std::string> bytes_of(std::string_view text) {
  static const auto bytes = [] {
    std::map<char32_t, char> map;
    const auto codes = codes_of_bytes();
    for (std::size_t byte = 0; byte < codes.size(); ++byte) map[codes[byte]] = static_cast<char>(byte);
    return map;
  }();
  std::string all;
  while (!text.empty()) {
    const auto [code, length] = code_point(text);
    const auto found = bytes.find(code);
    if (length == 0 || found == bytes.end()) return std::nullopt;
    all += found->second;
    text.remove_prefix(length);
  }
  return all;
}

std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
  return static_cast<std::uint64_t>(left) << 32U | static_cast<std::uint32_t>(right);
}

/// The two texts of a merge.
std::pair<std::string, std::string> parts_of(const File& file, const std::string& key, const Json& merge) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string())
    return {merge[0].get<std::string>(), merge[1].get<std::string>()};
  if (merge.is_string()) {
    const auto text = merge.get<std::string>();
    const auto space = text.find(' ');
    if (space != std::string::npos && text.find(' ', space + 1) == std::string::npos)
      return {text.substr(0, space), text.substr(space + 1)};
  }
  file.wrong(key, fmt::format("it is {}; a merge is \"a b\" or [\"a\", \"b\"]", merge.dump().substr(0, 80)));
}

}  // namespace

BytePairs::BytePairs(const std::string& path) {
  const File file(path);
  file.check();
  std::map<std::int32_t, std::string> contents;  // of added tokens
  const Json& added = file.value("added_tokens");
  for (std::size_t i = 0; i < added.size(); ++i) {
    const std::string key = fmt::format("added_tokens[{}]", i);
    const Json& each = added[i];
    if (!each.is_object() || !each.value("content", Json()).is_string() || each["content"] == "")
      file.wrong(key, "it needs a content, of one character or more");
    for (const char* how : {"lstrip", "rstrip", "single_word"})
      if (each.value(how, Json(false)) != false) file.wrong(key, fmt::format("{} is on, which is not supported", how));
    const auto content = each["content"].get<std::string>();
    const std::int32_t token = file.token(key + ".id", each.value("id", Json()));
    contents[token] = content;
    added_[content] = token;
    longest_added_ = std::max(longest_added_, content.size());
  }
  const Json& vocabulary = file.of_model("vocab");
  if (!vocabulary.is_object()) file.wrong("model.vocab", "it must be an object");
  std::int32_t largest = contents.empty() ? -1 : contents.rbegin()->first;
  for (const auto& [text, token] : vocabulary.items())
    largest = std::max(largest, file.token(fmt::format("model.vocab[{}]", Json(text).dump()), token));
  bytes_.resize(static_cast<std::size_t>(largest) + 1);
  std::unordered_map<std::string, std::int32_t> tokens;
  for (const auto& [text, given] : vocabulary.items()) {
    const auto token = given.get<std::int32_t>();
    const std::string key = fmt::format("model.vocab[{}]", Json(text).dump());
    tokens[text] = token;
    if (contents.contains(token)) continue;
    const auto bytes = bytes_of(text);
    if (!bytes || bytes->empty()) file.wrong(key, "its characters must stand for bytes, as GPT-2's do");
    std::string& there = bytes_[static_cast<std::size_t>(token)];
    if (!there.empty()) file.wrong(key, fmt::format("another entry is token {} too", token));
    there = *bytes;
    if (bytes->size() == 1) of_byte_[static_cast<unsigned char>(bytes->front())] = token + 1;
  }
  for (const auto& [token, content] : contents) bytes_[static_cast<std::size_t>(token)] = content;
  for (std::size_t byte = 0; byte < of_byte_.size(); ++byte)
    if (of_byte_[byte]-- == 0)
      file.wrong("model.vocab", fmt::format("it lacks the byte {}; a vocabulary of bytes has all 256", byte));
  const Json& merges = file.of_model("merges");
  if (!merges.is_array()) file.wrong("model.merges", "it must be a list");
  for (std::size_t i = 0; i < merges.size(); ++i) {
    const std::string key = fmt::format("model.merges[{}]", i);
    const auto [left, right] = parts_of(file, key, merges[i]);
    for (const auto& text : {left, right, left + right})
      if (!tokens.contains(text)) file.wrong(key, fmt::format("model.vocab has no entry {}", Json(text).dump()));
    merges_[pair_key(tokens[left], tokens[right])] = {static_cast<std::int32_t>(i), tokens[left + right]};
  }
}

const BytePairs::Merge* BytePairs::merge(std::int32_t left, std::int32_t right) const {
  const auto found = merges_.find(pair_key(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

std::vector<std::int32_t> BytePairs::encode(std::string_view text) const {
  std::vector<std::int32_t> all;
  const auto append = [&](std::span<const std::int32_t> tokens) {
    all.insert(all.end(), tokens.begin(), tokens.end());
  };
  TextEncoder encoder(*this);
  encoder.add(text, append);
  encoder.finish(append);
  return all;
}

void TextEncoder::add(std::string_view text, const Sink& sink) {
  rest_ += text;
  encode(false, sink);
}

void TextEncoder::finish(const Sink& sink) { encode(true, sink); }

/// Unless the text is the last, pieces near its end stay for later: what follows can make them longer.
void TextEncoder::encode(bool last, const Sink& sink) {
  const std::string_view all = rest_;
  const std::size_t margin = 4 + pairs_.longest_added_;
  std::vector<std::size_t> places(pairs_.added_.size());
  std::size_t at = 0;
  for (bool certain = true; certain && at < all.size();) {
    const Found found = next_added(at, last, places);
    const bool ends = found.length > 0 || last;
    const std::string_view part = all.substr(0, found.length > 0 ? found.at : all.size());
    while (at < part.size()) {
      const std::size_t end = end_of_piece(part, at);
      certain = ends || end + margin <= part.size();
      if (!certain) break;
      sink(piece(part.substr(at, end - at)));
      at = end;
    }
    if (found.length == 0) break;
    sink({&found.token, 1});
    at += found.length;
  }
  rest_.erase(0, at);
}

/// Returns the first added token in the text from a place on, the longest of those that begin there; a length of 0 if
/// there is none, or if it is so near to the end that a longer one may follow. `places` are those where each was found
/// last, which saves searching again.
TextEncoder::Found TextEncoder::next_added(std::size_t from, bool last, std::vector<std::size_t>& places) const {
  Found first{.at = rest_.size()};
  auto place = places.begin();
  for (const auto& [content, token] : pairs_.added_) {  // longer ones before their beginnings
    if (from == 0 || (*place < from && *place != std::string::npos)) *place = rest_.find(content, from);
    if (*place < first.at) first = {*place, content.size(), token};
    ++place;
  }
  return last || first.at + pairs_.longest_added_ <= rest_.size() ? first : Found{};
}

/// Merges the pairs of a piece, those of the lowest rank first, and of these the leftmost.
const std::vector<std::int32_t>& TextEncoder::piece(std::string_view text) {
  constexpr std::size_t most_known = 1 << 16, longest_known = 32;
  const std::string key(text.size() <= longest_known ? text : "");
  if (const auto known = known_.find(key); known != known_.end() && !key.empty()) return known->second;
  struct Symbol {
    std::int32_t token;
    std::ptrdiff_t before, after;  // neighbors; -1: none
    bool alive = true;
  };
  struct Candidate {
    std::int32_t rank, token;
    std::ptrdiff_t at;
    bool operator<(const Candidate& other) const { return std::pair(rank, at) > std::pair(other.rank, other.at); }
  };
  std::vector<Symbol> symbols;
  std::priority_queue<Candidate> candidates;
  const auto count = static_cast<std::ptrdiff_t>(text.size());
  for (std::ptrdiff_t i = 0; i < count; ++i)
    symbols.push_back({pairs_.of_byte_[static_cast<unsigned char>(text[i])], i - 1, i + 1 < count ? i + 1 : -1});
  const auto consider = [&](std::ptrdiff_t at) {
    if (at < 0 || symbols[at].after < 0) return;
    if (const auto* merge = pairs_.merge(symbols[at].token, symbols[symbols[at].after].token))
      candidates.push({merge->rank, merge->token, at});
  };
  for (std::ptrdiff_t i = 0; i < count; ++i) consider(i);
  while (!candidates.empty()) {
    const Candidate best = candidates.top();
    candidates.pop();
    Symbol& left = symbols[best.at];
    if (!left.alive || left.after < 0) continue;
    Symbol& right = symbols[left.after];
    const auto* merge = pairs_.merge(left.token, right.token);
    if (merge == nullptr || merge->token != best.token) continue;  // one of the two has changed since
    left.token = best.token;
    left.after = right.after;
    right.alive = false;
    if (left.after >= 0) symbols[left.after].before = best.at;
    consider(left.before);
    consider(best.at);
  }
  if (known_.size() >= most_known) known_.clear();
  auto& tokens = key.empty() ? tokens_ : known_[key];
  tokens.clear();
  for (const Symbol& symbol : symbols)
    if (symbol.alive) tokens.push_back(symbol.token);
  return tokens;
}

}  // namespace partita
