#include "strategies/planner/name_cover.hpp"

#include "partita/strategies/declare/strategy.hpp"
#include "src/base/plain_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <memory>
#include <set>
#include <tuple>
#include <utility>

namespace partita {

namespace {

constexpr std::size_t beam_width = 16;
/// Patterns are compared with all names at most this often, which takes about a fifth of a second.
constexpr std::size_t most_comparisons = 1U << 22U;

/// A set of names, by number.
using NameSet = std::vector<std::uint64_t>;

NameSet empty_set(std::size_t names) { return NameSet((names + 63) / 64, 0); }
void insert(NameSet& set, std::size_t i) { set[i / 64] |= std::uint64_t{1} << i % 64; }
int count(const NameSet& set) {
  int all = 0;
  for (const std::uint64_t word : set) all += std::popcount(word);
  return all;
}

/// Splits a name where letters, digits and other characters meet: "bn_res4a" into bn _ res 4 a.
std::vector<std::string> tokens_of(const std::string& name) {
  const auto kind = [](char c) { return is_letter(c) ? 0 : is_digit(c) ? 1 : 2; };
  std::vector<std::string> tokens;
  for (std::size_t i = 0; i < name.size(); ++i)
    if (i > 0 && kind(name[i]) == kind(name[i - 1]) && kind(name[i]) < 2)
      tokens.back() += name[i];
    else
      tokens.emplace_back(1, name[i]);
  return tokens;
}

std::string joined(const std::vector<std::string>& tokens, std::size_t from, std::size_t to) {
  std::string text;
  for (std::size_t i = from; i < to; ++i) text += tokens[i];
  return text;
}

/// Adds the patterns of one name: * for some neighboring tokens, or for those before and after some.
void add_patterns(const std::vector<std::string>& tokens, std::set<std::string>& patterns) {
  const std::size_t all = tokens.size();
  for (std::size_t i = 0; i <= all; ++i)
    for (std::size_t j = i; j <= all; ++j) {
      patterns.insert(fmt::format("{}*{}", joined(tokens, 0, i), joined(tokens, j, all)));
      if (i < j) patterns.insert(fmt::format("*{}*", joined(tokens, i, j)));
    }
}

/// Returns patterns of all names: those with few wildcards first, and of these the longest, which say most.
std::vector<std::string> patterns_of(const std::vector<NamedChoice>& choices) {
  std::set<std::string> found;
  for (const NamedChoice& choice : choices) {
    auto tokens = tokens_of(choice.name);
    add_patterns(tokens, found);
    for (auto& token : tokens)  // ? for a token of one character
      if (token.size() == 1 && (is_letter(token[0]) || is_digit(token[0]))) {
        const char before = std::exchange(token[0], '?');
        add_patterns(tokens, found);
        found.insert(joined(tokens, 0, tokens.size()));
        token[0] = before;
      }
  }
  std::vector<std::string> patterns(found.begin(), found.end());
  const auto sort_by = [&](auto&& key) {
    std::stable_sort(patterns.begin(), patterns.end(),
                     [&](const std::string& a, const std::string& b) { return key(a) < key(b); });
  };
  sort_by([](const std::string& text) { return text.size(); });  // if there are too many, the short ones are kept
  patterns.resize(std::min(patterns.size(), most_comparisons / std::max<std::size_t>(choices.size(), 1)));
  sort_by([](const std::string& text) {
    return std::tuple(std::count(text.begin(), text.end(), '?'), std::count(text.begin(), text.end(), '*'),
                      -static_cast<std::ptrdiff_t>(text.size()));
  });
  return patterns;
}

/// A name or a pattern, and the names that it matches.
using Match = std::pair<std::string, NameSet>;

/// The patterns of a list of names.
struct Matches {
  std::vector<std::string> names;
  std::vector<Match> matches;
};

/// Returns the names and their patterns. Of those that match the same names, the first is kept. A full name comes
/// before all patterns. The thread keeps the last ones, since a search covers the same names again and again.
std::shared_ptr<const Matches> matches_of(const std::vector<NamedChoice>& choices) {
  thread_local std::shared_ptr<const Matches> last;
  const auto same = [](const NamedChoice& choice, const std::string& name) { return choice.name == name; };
  if (last && std::equal(choices.begin(), choices.end(), last->names.begin(), last->names.end(), same)) return last;
  auto all = std::make_shared<Matches>();
  std::set<NameSet> known;
  const auto add = [&](NameSet matched, const std::string& text) {
    if (known.insert(matched).second) all->matches.emplace_back(text, std::move(matched));
  };
  for (std::size_t i = 0; i < choices.size(); ++i) {
    all->names.push_back(choices[i].name);
    NameSet alone = empty_set(choices.size());
    insert(alone, i);
    add(std::move(alone), choices[i].name);
  }
  for (const std::string& pattern : patterns_of(choices)) {
    const Strategy::Rule rule{pattern, {}, ""};
    NameSet matched = empty_set(choices.size());
    for (std::size_t i = 0; i < choices.size(); ++i)
      if (rule.matches(choices[i].name)) insert(matched, i);
    add(std::move(matched), pattern);
  }
  return last = std::move(all);
}

/// Writes lists rule by rule, until no name has a wrong value.
class Cover {
 public:
  explicit Cover(const std::vector<NamedChoice>& choices)
      : all_(matches_of(choices)), forbidden_(empty_set(choices.size())), start_{empty_set(choices.size()), {}} {
    std::uint64_t values = 0;
    for (const NamedChoice& choice : choices) values |= choice.free ? 0 : choice.accepts;
    for (int v = 0; v < 64; ++v)
      if ((values >> v & 1U) != 0) accepting_.emplace_back(v, empty_set(choices.size()));
    for (std::size_t i = 0; i < choices.size(); ++i) {
      if (!choices[i].free) insert(choices[i].accepts == 0 ? forbidden_ : start_.wrong, i);
      for (auto& [v, set] : accepting_)
        if (choices[i].free || (choices[i].accepts >> v & 1U) != 0) insert(set, i);
    }
    for (const Match& match : all_->matches)
      if (!matches_forbidden(match.second)) matches_.push_back(&match);
  }

  std::vector<NameRule> shortest() const {
    std::vector<Partial> beam{start_};
    while (count(beam.front().wrong) > 0) beam = extended(beam);
    std::vector<NameRule> rules;
    for (const auto& [match, value] : beam.front().rules)
      rules.push_back({matches_[match]->first, accepting_[value].first});
    return rules;
  }

 private:
  /// The beginning of a list of rules, and the names that still have no value, or a wrong one.
  struct Partial {
    NameSet wrong;
    std::vector<std::pair<std::size_t, std::size_t>> rules;  // match and value
  };
  /// One more rule of a partial list.
  struct Step {
    int wrong;     // wrong names after it
    int needless;  // names that it matches though they are right
    std::size_t partial, match, value;
    auto operator<=>(const Step&) const = default;
  };

  bool matches_forbidden(const NameSet& matched) const {
    for (std::size_t w = 0; w < matched.size(); ++w)
      if ((matched[w] & forbidden_[w]) != 0) return true;
    return false;
  }

  static std::uint64_t wrong_after(std::uint64_t wrong, std::uint64_t matched, std::uint64_t accepting) {
    return (wrong & ~matched) | (matched & ~accepting);
  }

  void add_steps(const Partial& partial, std::size_t number, std::vector<Step>& steps) const {
    const int before = count(partial.wrong);
    for (std::size_t m = 0; m < matches_.size(); ++m)
      for (std::size_t v = 0; v < accepting_.size(); ++v) {
        const NameSet &matched = matches_[m]->second, &accepting = accepting_[v].second;
        Step step{0, 0, number, m, v};
        for (std::size_t w = 0; w < matched.size(); ++w) {
          step.wrong += std::popcount(wrong_after(partial.wrong[w], matched[w], accepting[w]));
          step.needless += std::popcount(matched[w] & ~partial.wrong[w]);
        }
        if (step.wrong < before) steps.push_back(step);
      }
  }

  std::vector<Partial> extended(const std::vector<Partial>& beam) const {
    std::vector<Step> steps;
    for (std::size_t p = 0; p < beam.size(); ++p) add_steps(beam[p], p, steps);
    std::sort(steps.begin(), steps.end());
    std::vector<Partial> next;
    std::set<NameSet> seen;
    for (const Step& step : steps) {
      if (next.size() == beam_width) break;
      Partial more = beam[step.partial];
      for (std::size_t w = 0; w < more.wrong.size(); ++w)
        more.wrong[w] = wrong_after(more.wrong[w], matches_[step.match]->second[w], accepting_[step.value].second[w]);
      if (!seen.insert(more.wrong).second) continue;
      more.rules.emplace_back(step.match, step.value);
      next.push_back(std::move(more));
    }
    return next;
  }

  std::shared_ptr<const Matches> all_;
  std::vector<const Match*> matches_;               // those of them that may be used
  std::vector<std::pair<int, NameSet>> accepting_;  // a value and the names that accept it
  NameSet forbidden_;
  Partial start_;
};

}  // namespace

std::vector<NameRule> cover_names(const std::vector<NamedChoice>& choices) { return Cover(choices).shortest(); }

}  // namespace partita
