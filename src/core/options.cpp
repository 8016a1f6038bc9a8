#include "core/options.h"

#include <algorithm>

namespace tessera {
namespace {

[[noreturn]] void refuse(const OptionField& field, const std::string& word) {
  fail_usage(field.name(), " is '", printable(word), "', must be ", field.wanted(),
             did_you_mean(word, field.rules.choices));
}

}  // namespace

std::string OptionField::name() const {
  if (!rules.argument.empty()) return rules.argument;
  std::string out = "--" + key;
  std::ranges::replace(out, '_', '-');
  return out;
}

std::string OptionField::wanted() const {
  if (!rules.choices.empty()) return "one of " + join(rules.choices, ", ");
  if (kind == Kind::flag) return "true or false";
  const Range& range = rules.range;
  const bool low = std::isfinite(range.low), high = std::isfinite(range.high);
  const std::string number = kind == Kind::integer ? "a whole number" : "a number";
  if (!low && !high) return number;
  const bool closed = low && high && !range.without_low && !range.without_high;
  return number + (closed ? " from " : " ") + range.text();
}

Value OptionField::parsed(const std::vector<std::string>& words) const {
  if (kind == Kind::words) return config_detail::to_value(words);
  const std::string word = words.empty() ? "" : words.back();
  if (kind == Kind::flag) {
    const bool on = word == "true" || word == "1";
    if (!on && word != "false" && word != "0") refuse(*this, word);
    return on;
  }
  if (kind == Kind::integer) {
    const auto value = parse_int(word);
    if (!value || !rules.range.holds(static_cast<double>(*value))) refuse(*this, word);
    return *value;
  }
  if (kind == Kind::number) {
    const auto value = parse_double(word);
    if (!value || !rules.range.holds(*value)) refuse(*this, word);
    return *value;
  }
  if (!rules.choices.empty() && std::ranges::find(rules.choices, word) == rules.choices.end())
    refuse(*this, word);
  return word;
}

}  // namespace tessera
