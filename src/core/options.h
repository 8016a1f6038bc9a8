// Fields of a config as options of a command, from the same `visit` that recipes read (core/config.h).
//
//   struct PredictOptions {
//     std::string weights;
//     int64_t top = 5;
//     std::optional<int64_t> size;  // unset until it is given
//     template <class V>
//     void visit(V& v) {
//       v("weights", weights, {.names = "-w", .required = true}, "weights file, checkpoint or run");
//       v("top", top, between(1, 100), "classes to print");
//       v("size", size, at_least(1), "input side in pixels (default: as trained)");
//     }
//   };
//
// A field's key is the name of its option: `last_step_size` is --last-step-size. The fields of a config within a config
// follow in its place. Fields: bool, integers, double, std::string, an enum with EnumNames, std::optional of those, and
// std::vector<std::string>.
#pragma once

#include <concepts>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "core/config.h"

namespace tessera {

// The kind of file that an option names: none or inputs; an output that replaces an older file; an output
// that all processes of a run write together; or a file that a later run reads and continues.
enum class Writes { nothing, file, together, cache };

// Rules of a field that apply only to its option on the command line.
struct OptionRules {
  Range range = {};                       // for numbers
  std::vector<std::string> choices = {};  // for strings
  std::string names = {};                 // further names of the option: "-w,--pretrained"
  std::string argument = {};              // a positional argument of this name: "IMAGES"
  bool required = false;
  bool optional_value = false;  // `--resume` is accepted as well as `--resume auto`
  std::string sets = {};        // the recipe's key that the option sets: "train.epochs"
  std::string readers = {};     // precedes the meaning in help: "ddim: share of the noise"
  std::string only_for = {};    // the only reader of a field that other readers of the config ignore
  Writes writes = Writes::nothing;
};

// One field of a config, with its type erased.
struct OptionField {
  enum class Kind { flag, integer, number, word, words };

  std::string key, meaning;
  OptionRules rules;
  Kind kind = Kind::word;
  std::function<void(const Value&)> set;           // accepts a checked value of the right type
  std::function<std::optional<Value>()> get = {};  // nothing if unset

  // "--last-step-size", or the name of the positional argument.
  std::string name() const;
  // Returns the checked value of the given words. Throws a usage error that begins with name().
  Value parsed(const std::vector<std::string>& words) const;
  // "a whole number from 1 to 100".
  std::string wanted() const;
};

namespace options_detail {

template <class T>
struct Inner {
  using type = T;
};
template <class T>
struct Inner<std::optional<T>> {
  using type = T;
};

template <class T>
constexpr OptionField::Kind kind_of() {
  if constexpr (std::is_same_v<T, bool>)
    return OptionField::Kind::flag;
  else if constexpr (std::is_integral_v<T>)
    return OptionField::Kind::integer;
  else if constexpr (std::is_floating_point_v<T>)
    return OptionField::Kind::number;
  else if constexpr (std::is_same_v<T, std::string> || std::is_enum_v<T>)
    return OptionField::Kind::word;
  else
    return OptionField::Kind::words;
}

template <class T>
void assign(T& field, const Value& value) {
  using type = typename Inner<T>::type;
  if constexpr (!std::is_same_v<T, type>)
    assign(field.emplace(), value);
  else if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>)
    field = static_cast<T>(value.as_int());
  else
    config_detail::read_field(field, value, "");
}

template <class T>
std::optional<Value> value_of(const T& field) {
  if constexpr (!std::is_same_v<T, typename Inner<T>::type>)
    return field ? value_of(*field) : std::nullopt;
  else if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>)
    return Value(static_cast<int64_t>(field));
  else
    return config_detail::to_value(field);
}

// Collects the fields that a `visit` names.
class Gather {
 public:
  Gather(std::vector<OptionField>& fields, std::string only_for)
      : fields_(fields), only_for_(std::move(only_for)) {}

  template <class T>
  void operator()(const char* key, T& field, const char* meaning = "") {
    (*this)(key, field, OptionRules{}, meaning);
  }
  template <class T>
  void operator()(const char* key, T& field, const Range& range, const char* meaning) {
    (*this)(key, field, OptionRules{.range = range}, meaning);
  }
  template <class T, class E>
  void operator()(const char* key, T& field, const Choice<E>&, const char* meaning) {
    (*this)(key, field, OptionRules{}, meaning);
  }
  template <class T>
  void operator()(const char* key, T& field, OptionRules rules, const char* meaning) {
    if (rules.only_for.empty()) rules.only_for = only_for_;
    if constexpr (config_detail::Visitable<T>) {
      Gather inner(fields_, rules.only_for);
      field.visit(inner);
    } else {
      using type = typename Inner<T>::type;
      if constexpr (std::is_enum_v<type>) rules.choices = names_of<type>();
      fields_.push_back({.key = key,
                         .meaning = meaning,
                         .rules = std::move(rules),
                         .kind = kind_of<type>(),
                         .set = [&field](const Value& value) { assign(field, value); },
                         .get = [&field] { return value_of(field); }});
    }
  }

 private:
  std::vector<OptionField>& fields_;
  std::string only_for_;
};

}  // namespace options_detail

// The fields of a config in the order of its `visit`. They refer to `config`, which must outlive them.
template <class Config>
std::vector<OptionField> option_fields(Config& config) {
  std::vector<OptionField> fields;
  options_detail::Gather gather(fields, "");
  config.visit(gather);
  return fields;
}

}  // namespace tessera
