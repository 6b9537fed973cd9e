#pragma once

#include "partita/base/types.hpp"
#include "src/base/plain_text.hpp"

#include <fmt/format.h>
#include <boost/program_options.hpp>

#include <concepts>
#include <cstdint>
#include <string>
#include <vector>

namespace partita::cli {

/// What all options with numbers have in common.
class NumberOption {
 public:
  virtual ~NumberOption() = default;
  /// Returns what the option takes, e.g. "a whole number".
  virtual const char* kind() const = 0;
  /// True if no value may be below zero.
  virtual bool is_unsigned() const = 0;
};

/// The value of an option that is a number, or a vector of numbers. Boost's own po::value reads numbers from streams,
/// which depend on the locale; this one reads them with parse_number().
template <class Value>
class NumberValue final : public boost::program_options::typed_value<Value>, public NumberOption {
  using Base = boost::program_options::typed_value<Value>;

  template <class T>
  struct Element {
    using type = T;
  };
  template <class T>
  struct Element<std::vector<T>> {
    using type = T;
  };
  using Number = typename Element<Value>::type;

 public:
  using Base::Base;
  using Base::default_value;

  /// As that of Boost, which would print the default in the locale.
  Base* default_value(const Value& value) { return Base::default_value(value, fmt::format("{}", value)); }

  const char* kind() const override {
    if (!std::integral<Number>) return "a number";
    return std::same_as<Value, Number> ? "a whole number" : "whole numbers";
  }
  bool is_unsigned() const override { return std::unsigned_integral<Number>; }

  void xparse(boost::any& store, const std::vector<std::string>& words) const override {
    namespace po = boost::program_options;
    if constexpr (std::same_as<Value, Number>) {
      po::validators::check_first_occurrence(store);
      store = parse(po::validators::get_single_string(words));
    } else {
      if (store.empty()) store = Value();
      for (const auto& word : words) boost::any_cast<Value&>(store).push_back(parse(word));
    }
  }

 private:
  static Number parse(const std::string& word) {
    if (const auto number = parse_number<Number>(word)) return *number;
    throw boost::program_options::invalid_option_value(word);
  }
};

/// The value of an option that is a number, or a vector of numbers. po::notify stores it in `to`.
template <class Value>
NumberValue<Value>* number(Value* to) {
  return new NumberValue<Value>(to);
}

}  // namespace partita::cli
