// Byte pairs encode as Hugging Face's tokenizers do (bench/peers/byte_pairs.py recorded that), any bytes can be decoded
// again, and a text may come in any parts.
#include "partita/train/data/byte_pairs.hpp"
#include "partita/train/data/dataset.hpp"
#include "test/support/error_of.hpp"
#include "test/support/source_folder.hpp"

#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

namespace partita::byte_pairs_test {
namespace {

namespace fs = std::filesystem;
using test::expect_error;
using Ids = std::vector<std::int32_t>;

std::string recorded(const char* name) { return (test::source_folder() / "test/train/data" / name).string(); }

const BytePairs& pairs() {
  static const BytePairs all(recorded("byte_pairs_tokenizer.json"));
  return all;
}

std::string decode(const BytePairs& from, const Ids& tokens) {
  std::string text;
  for (const auto token : tokens) text += from.bytes(token);
  return text;
}

/// Encodes a text in parts of up to `most` bytes.
Ids in_parts(const std::string& text, std::size_t most, std::mt19937& draw) {
  Ids all;
  const auto append = [&](std::span<const std::int32_t> tokens) {
    all.insert(all.end(), tokens.begin(), tokens.end());
  };
  TextEncoder encoder(pairs());
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t count = std::min(text.size() - at, draw() % most + 1);
    encoder.add(std::string_view(text).substr(at, count), append);
    at += count;
  }
  encoder.finish(append);
  return all;
}

TEST(BytePairs, EncodeAsHuggingFace) {
  std::ifstream file(recorded("byte_pairs_tokens.txt"));
  std::mt19937 draw(1);
  std::string line, together;
  int texts = 0;
  for (; std::getline(file, line); ++texts) {
    std::istringstream words(line);
    std::string hex, text;
    words >> hex;
    const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
    for (std::size_t i = 0; i < hex.size(); i += 2) text += static_cast<char>(16 * digit(hex[i]) + digit(hex[i + 1]));
    Ids expected;
    for (std::int32_t token = 0; words >> token;) expected.push_back(token);
    EXPECT_EQ(pairs().encode(text), expected) << "of line " << texts + 1;
    EXPECT_EQ(decode(pairs(), expected), text);
    for (const std::size_t most : {1, 3, 40})
      EXPECT_EQ(in_parts(text, most, draw), expected) << "of line " << texts + 1;
    together += text;
  }
  EXPECT_EQ(texts, 150);
  EXPECT_EQ(in_parts(together, 100, draw), pairs().encode(together));
}

TEST(BytePairs, DecodeAnyBytes) {
  std::mt19937 draw(2);
  for (int i = 0; i < 300; ++i) {
    std::string bytes;
    for (auto count = draw() % 200; count > 0; --count) bytes += static_cast<char>(draw() % (i % 2 == 0 ? 256 : 0xe0));
    const Ids tokens = pairs().encode(bytes);
    EXPECT_EQ(decode(pairs(), tokens), bytes);
    EXPECT_EQ(in_parts(bytes, 5, draw), tokens);
  }
  // Bytes that begin no character, end none, or are a surrogate, too long or beyond the last code point.
  for (const std::string bad : {"\xff", "\x80", "\xe4\xb8", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80"})
    EXPECT_EQ(decode(pairs(), pairs().encode("the" + bad + "the")), "the" + bad + "the");
}

/// The text in JSON of a vocabulary that has the 256 bytes, from token 0 on, and these merges. The character of byte b
/// is that of GPT-2.
std::string vocabulary(const std::string& merges, const std::string& more = "", const std::string& model = "",
                       const std::string& before = R"("add_prefix_space": false)", int bytes = 256) {
  std::string entries;
  int next = 256;
  for (int b = 0; b < bytes; ++b) {
    const bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
    entries += fmt::format("{}\"\\u{:04x}\": {}", b == 0 ? "" : ", ", printable ? b : next++, b);
  }
  return R"({"pre_tokenizer": {"type": "ByteLevel", )" + before + R"(}, "model": {"type": "BPE", )" + model +
         R"("vocab": {)" + entries + more + R"(}, "merges": [)" + merges + "]}}";
}

class Vocabulary : public testing::Test {
 protected:
  ~Vocabulary() override { fs::remove(path_); }
  std::string file(const std::string& text) const {
    std::ofstream(path_, std::ios::binary) << text;
    return path_;
  }
  void refuses(const std::string& text, const std::string& what) const {
    file(text);
    expect_error([&] { BytePairs pairs(path_); }, {what});
  }

  const std::string path_ = (fs::path(testing::TempDir()) / fmt::format("partita-pairs-{}.json", getpid())).string();
};

TEST_F(Vocabulary, MergesMayBeTextsOrLists) {
  const std::string more = R"(, "ab": 256, "abc": 257)";
  for (const char* merges : {R"("a b", "ab c")", R"(["a", "b"], ["ab", "c"])"}) {
    const BytePairs pairs(file(vocabulary(merges, more)));
    EXPECT_EQ(pairs.size(), 258);
    EXPECT_EQ(pairs.encode("abcab a"), (Ids{257, 256, ' ', 'a'}));
    EXPECT_EQ(pairs.bytes(257), "abc");
  }
}

// Of equal ranks the leftmost pair merges first; a lower rank that a merge makes possible comes before those to the
// right.
TEST_F(Vocabulary, MergesByRankAndFromTheLeft) {
  const BytePairs pairs(file(vocabulary(R"("aa b", "a a")", R"(, "aa": 256, "aab": 257)")));
  EXPECT_EQ(pairs.encode("aaaaab"), (Ids{256, 256, 'a', 'b'}));
  EXPECT_EQ(pairs.encode("aaaab"), (Ids{256, 257}));
}

TEST_F(Vocabulary, RefusesWhatIsNotSupported) {
  expect_error([&] { BytePairs pairs("nowhere.json"); }, {"cannot read 'nowhere.json'"});
  refuses("{\"model\": }", "is no JSON at byte 11; give a tokenizer.json");
  refuses("[]", "is no JSON object");
  refuses(R"({"pre_tokenizer": {"type": "Sequence"}})", "pre_tokenizer: its type is \"Sequence\"; only \"ByteLevel\"");
  refuses(R"({"normalizer": {"type": "NFC"}})", "normalizer: it is {\"type\":\"NFC\"}; only null is supported");
  refuses(vocabulary("", "", "", R"("add_prefix_space": true)"),
          "pre_tokenizer.add_prefix_space: it is true; only false");
  refuses(vocabulary("", "", "", R"("add_prefix_space": false, "use_regex": false)"), "pre_tokenizer.use_regex");
  refuses(vocabulary("", "", R"("dropout": 0.1, )"), "model.dropout: it is 0.1; only null is supported");
  refuses(vocabulary("", "", R"("byte_fallback": true, )"), "model.byte_fallback: it is true; only false");
  refuses(vocabulary("", "", R"("ignore_merges": true, )"), "model.ignore_merges");
  refuses(vocabulary("", "", "", R"("add_prefix_space": false)", 255), "model.vocab: it lacks the byte 255");
  refuses(vocabulary("\"a b\""), "model.merges[0]: model.vocab has no entry \"ab\"");
  refuses(vocabulary("\"a b\", \"ab\"", ", \"ab\": 256"), "model.merges[1]: it is \"ab\"; a merge is");
  refuses(vocabulary("", ", \"ab\": 5"), "another entry is token 5 too");
  refuses(vocabulary("", ", \"ab\": -1"), "model.vocab[\"ab\"]: a token is -1; it must be a whole number");
  refuses(vocabulary("", ", \"a\xe4\xb8\xad\": 256"), "its characters must stand for bytes");
  refuses(R"({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}, "model": {"type": "WordPiece"}})",
          "model.type: it is \"WordPiece\"; only \"BPE\"");
  std::string added = vocabulary("");
  added.insert(1, R"("added_tokens": [{"id": 300, "content": "<x>", "lstrip": true}], )");
  refuses(added, "added_tokens[0]: lstrip is on");
}

class EncodedText : public Vocabulary {
 protected:
  EncodedText() : folder_(fs::path(testing::TempDir()) / fmt::format("partita-encoded-{}", getpid())) {
    fs::create_directories(folder_);
  }
  ~EncodedText() override { fs::remove_all(folder_); }
  std::string text(const char* name, const std::string& content) const {
    std::ofstream(folder_ / name, std::ios::binary) << content;
    return (folder_ / name).string();
  }

  fs::path folder_;
};

// More than one part of a megabyte, with samples that begin anywhere.
TEST_F(EncodedText, HasTheTokensOfItsPart) {
  std::mt19937 draw(4);
  std::string content;
  while (content.size() < 1500000) content += fmt::format("{} layers of {}\n", draw() % 1000, draw() % 7);
  const std::string path = text("t.txt", content);
  const std::size_t split = content.size() - content.size() / 10;
  for (const bool training : {true, false}) {
    const Ids expected = pairs().encode(training ? content.substr(0, split) : content.substr(split));
    Index seen = 0;
    const auto data = open_text(path, 50, training, pairs(), [&](Index done, Index all) {
      EXPECT_GT(done, seen);
      EXPECT_LE(done, all);
      seen = done;
    });
    EXPECT_EQ(seen, static_cast<Index>(training ? split : content.size() - split));
    EXPECT_EQ(data->size(), (std::ssize(expected) - 1) / 50);
    EXPECT_EQ(data->vocabulary(), pairs().size());
    EXPECT_EQ(data->held_bytes(), 2 * std::ssize(expected));
    for (const Index sample : {Index{0}, data->size() / 2, data->size() - 1}) {
      std::vector<double> values(50);
      Ids labels(50);
      data->read(sample, Box(Shape{{'C', 1}, {'L', 50}}), values);
      data->read_labels(sample, Box(Shape{{'L', 50}}), labels);
      for (Index i = 0; i < 50; ++i) {
        EXPECT_EQ(values[i], expected[sample * 50 + i]);
        EXPECT_EQ(labels[i], expected[sample * 50 + i + 1]);
      }
    }
  }
}

TEST_F(EncodedText, RefusesATextThatIsTooShort) {
  const std::string path = text("t.txt", "the layers of the ranks");
  expect_error([&] { open_text(path, 50, true, pairs()); }, {"tokens for training; a sample takes 50 and one more"});
}

}  // namespace
}  // namespace partita::byte_pairs_test
