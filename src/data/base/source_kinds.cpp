#include "data/base/source_kinds.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "core/random.h"
#include "core/text.h"
#include "data/base/chosen_samples.h"
#include "data/base/source_labels.h"
#include "io/files/file.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tessera::data {

const std::string& path_of(const SourceConfig& config, Split split) {
  return split == Split::validation && !config.val_path.empty() ? config.val_path : config.path;
}

namespace {

class Unlabelled final : public Source {
 public:
  explicit Unlabelled(std::unique_ptr<Source> inner) : inner_(std::move(inner)) {}
  int64_t size() const override { return inner_->size(); }
  RawSample read(int64_t index) const override { return inner_->read(index); }
  uint64_t fingerprint() const override { return inner_->fingerprint(); }
  std::string describe() const override {
    const std::string all = inner_->describe();
    const size_t more = std::min(all.rfind("; left out: "), all.size());
    return all.substr(0, all.rfind(", ", more)) + ", no labels" + all.substr(more);
  }
  std::vector<std::string> problems() const override { return inner_->problems(); }
  std::vector<std::string> warnings() const override { return inner_->warnings(); }

 private:
  std::unique_ptr<Source> inner_;
};

}  // namespace

std::unique_ptr<Source> without_labels(std::unique_ptr<Source> one_class) {
  return std::make_unique<Unlabelled>(std::move(one_class));
}

std::vector<int64_t> select_split(const SourceConfig& config, Split split,
                                  const std::vector<std::string>& names, const std::vector<int64_t>& labels) {
  std::vector<int64_t> chosen(labels.size());
  std::iota(chosen.begin(), chosen.end(), 0);
  if (!config.val_path.empty()) return chosen;
  std::vector<uint64_t> hashes;
  for (const std::string& name : names)
    hashes.push_back(
        XXH3_64bits_withSeed(name.data(), name.size(), static_cast<uint64_t>(config.split_seed)));
  std::vector<std::pair<uint64_t, int64_t>> once;  // each name with the lowest of its labels
  for (size_t i = 0; i < labels.size(); ++i) once.emplace_back(hashes[i], labels[i]);
  std::sort(once.begin(), once.end());
  once.erase(std::unique(once.begin(), once.end(), [](auto& a, auto& b) { return a.first == b.first; }),
             once.end());
  std::map<int64_t, std::vector<uint64_t>> by_class;  // each in ascending order
  for (const auto& [hash, label] : once) by_class[label].push_back(hash);
  std::vector<uint64_t> held_out;
  for (const auto& [label, members] : by_class) {
    const auto n = static_cast<int64_t>(members.size());
    int64_t count = std::llround(config.val_share * static_cast<double>(n));
    if (config.val_share > 0) count = std::clamp<int64_t>(count, n >= 2 ? 1 : 0, n - 1);
    held_out.insert(held_out.end(), members.begin(), members.begin() + count);
  }
  std::sort(held_out.begin(), held_out.end());
  std::erase_if(chosen, [&](int64_t i) {
    const bool held = std::binary_search(held_out.begin(), held_out.end(), hashes[static_cast<size_t>(i)]);
    return held != (split == Split::validation);
  });
  return chosen;
}

namespace {

constexpr size_t kMostPaths = 100'000;

// Expands the content of one pair of braces: "000..004" or "a,b".
std::vector<std::string> alternatives(const std::string& inside, const std::string& path) {
  const size_t dots = inside.find("..");
  if (dots == std::string::npos) return split(inside, ',');
  const std::string first = inside.substr(0, dots), last = inside.substr(dots + 2);
  const auto low = parse_int(first), high = parse_int(last);
  if (!low || !high || *low < 0 || *high < *low || *high - *low >= static_cast<int64_t>(kMostPaths))
    fail_usage(path, ": {", inside, "} must be a range such as {000..004} with at most ", kMostPaths,
               " numbers");
  std::vector<std::string> numbers;
  for (int64_t i = *low; i <= *high; ++i) {
    std::string digits = std::to_string(i);
    if (digits.size() < first.size()) digits.insert(0, first.size() - digits.size(), '0');
    numbers.push_back(digits);
  }
  return numbers;
}

}  // namespace

std::vector<std::string> expand_braces(const std::string& path) {
  constexpr int kMostLists = 16;
  if (std::count(path.begin(), path.end(), '{') > kMostLists)
    fail_usage(printable(path, 60), ": more than ", kMostLists, " lists in braces");
  const size_t open = path.find('{');
  if (open == std::string::npos) return {path};
  const size_t close = path.find('}', open);
  if (close == std::string::npos) fail_usage(path, ": '{' has no '}'");
  std::vector<std::string> paths;
  const auto rests = expand_braces(path.substr(close + 1));
  for (const std::string& middle : alternatives(path.substr(open + 1, close - open - 1), path))
    for (const std::string& rest : rests) {
      paths.push_back(path.substr(0, open) + middle + rest);
      if (paths.size() > kMostPaths) fail_usage(path, " expands to more than ", kMostPaths, " paths");
    }
  return paths;
}

std::vector<std::string> numbered_classes(int64_t count) {
  std::vector<std::string> names;
  for (int64_t i = 0; i < count; ++i) names.push_back(std::to_string(i));
  return names;
}

std::vector<std::string> classes_of_numbers(std::vector<int64_t> labels) {
  std::sort(labels.begin(), labels.end());
  labels.erase(std::unique(labels.begin(), labels.end()), labels.end());
  std::erase_if(labels, [](int64_t label) { return label < 0 || label >= kMostClasses; });
  if (labels.empty()) return {};
  const int64_t count = labels.back() + 1, found = std::ssize(labels);
  const bool from_one = labels.front() == 1 && found == count - 1;
  if (!from_one && 2 * found >= count) return numbered_classes(count);
  std::vector<std::string> names;
  for (const int64_t label : labels) names.push_back(std::to_string(label));
  return names;
}

bool are_chosen_numbers(const std::vector<std::string>& classes) {
  return !classes.empty() && classes != numbered_classes(std::ssize(classes)) &&
         std::ranges::all_of(classes, [](const std::string& name) { return parse_int(name).has_value(); });
}

int64_t class_of_number(int64_t number, const std::vector<std::string>& classes, bool chosen) {
  if (!chosen) return number >= 0 && number < std::ssize(classes) ? number : -1;
  const auto found = std::ranges::find(classes, std::to_string(number));
  return found == classes.end() ? -1 : found - classes.begin();
}

std::string chosen_numbers_line(const std::string& where, const std::vector<std::string>& classes) {
  return text(where, ": the labels ", some_of(classes), " are taken as the names of ",
              counted(std::ssize(classes), "class", "classes"),
              ", not as numbers from 0; if they are, give a list of all names as class_names");
}

namespace {

// Compares names as Python compares timm's keys: runs of digits and of other text alternate.
bool naturally_less(const std::string& a, const std::string& b) {
  const std::string one = lower(a), other = lower(b);
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  size_t i = 0, j = 0;
  while (i < one.size() && j < other.size()) {
    const bool numbers = digit(one[i]) && digit(other[j]);
    if (!numbers && one[i] != other[j]) {
      // A text part that ends before a number is the shorter one.
      if (digit(one[i]) != digit(other[j]) && i > 0 && !digit(one[i - 1])) return digit(one[i]);
      return static_cast<unsigned char>(one[i]) < static_cast<unsigned char>(other[j]);
    }
    if (!numbers) {
      ++i, ++j;
      continue;
    }
    const auto number_at = [&](const std::string& text, size_t& at) {
      size_t end = at;
      while (end < text.size() && digit(text[end])) ++end;
      while (at + 1 < end && text[at] == '0') ++at;
      const std::string number = text.substr(at, end - at);
      at = end;
      return number;
    };
    const std::string x = number_at(one, i), y = number_at(other, j);
    if (x.size() != y.size()) return x.size() < y.size();
    if (x != y) return x < y;
  }
  const bool ended = i == one.size(), other_ended = j == other.size();
  return ended != other_ended ? ended : a < b;
}

}  // namespace

void order_classes(std::vector<std::string>& names, const SourceConfig& config) {
  if (config.class_order == "natural")
    std::sort(names.begin(), names.end(), naturally_less);
  else if (config.class_order == "alphabetical")
    std::sort(names.begin(), names.end());
  else
    fail_usage("class_order is '", config.class_order, "', must be alphabetical or natural");
}

bool has_training_path(const SourceConfig& config) {
  return !config.path.empty() && !config.val_path.empty() && config.path != config.val_path;
}

std::vector<std::string> training_classes(const SourceConfig& config) {
  const auto source = open_source_with_problems(config, Split::train);
  const ClassLabels* labels = source->class_labels();
  return labels ? labels->class_names() : std::vector<std::string>();
}

void find_empty_classes(const std::string& where, const std::vector<std::string>& classes,
                        const std::vector<int64_t>& counts, ProblemList& problems) {
  for (size_t i = 0; i < classes.size(); ++i)
    if (counts[i] == 0) problems.add(where, ": class ", i, " ('", classes[i], "') is empty: no image has it");
}

bool has_picture_extension(std::string_view path) {
  const size_t dot = path.rfind('.');
  if (dot == std::string_view::npos) return false;
  const std::string extension = lower(path.substr(dot));
  for (const char* known : {".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff"})
    if (extension == known) return true;
  return false;
}

void ProblemList::add(const ProblemList& others) {
  for (const std::string& line : others.lines_)
    if (static_cast<int64_t>(lines_.size()) < kMost) lines_.push_back(line);
  count_ += others.count_;
}

std::vector<std::string> ProblemList::lines() const {
  auto lines = lines_;
  if (count_ > kMost) lines.push_back(text("and ", count_ - kMost, " more of the kind"));
  return lines;
}

struct Fingerprint::State {
  XXH3_state_t hash;
};

Fingerprint::Fingerprint() : state_(std::make_unique<State>()) { XXH3_64bits_reset(&state_->hash); }
Fingerprint::~Fingerprint() = default;

void Fingerprint::add(std::string_view part) {
  add(static_cast<int64_t>(part.size()));
  XXH3_64bits_update(&state_->hash, part.data(), part.size());
}

void Fingerprint::add(int64_t number) { XXH3_64bits_update(&state_->hash, &number, sizeof number); }

void Fingerprint::add(const std::vector<std::string>& parts) {
  add(static_cast<int64_t>(parts.size()));
  for (const std::string& part : parts) add(part);
}

uint64_t Fingerprint::value() const { return XXH3_64bits_digest(&state_->hash); }

uint64_t ChosenSamples::fingerprint() const {
  Fingerprint print;
  print.add("chosen samples 1");
  print.add(static_cast<int64_t>(whole_->fingerprint()));
  for (const int64_t index : indices_) print.add(index);
  return print.value();
}

}  // namespace tessera::data
