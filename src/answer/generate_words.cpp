#include <algorithm>
#include <utility>

#include "answer/generate.h"
#include "core/error.h"
#include "core/text.h"
#include "tasks/generate/generator_pictures.h"

namespace tessera::answer {
namespace {

constexpr int64_t kMostSide = 16384;

// Splits at commas. ImageNet's names contain commas themselves: "tench, Tinca tinca" are two synonyms.
std::vector<std::string> parts_of(const std::string& words) {
  std::vector<std::string> parts;
  for (const std::string& part : split(words, ',')) parts.emplace_back(trim(part));
  return parts;
}

// Classes by their names.
class NamedClasses {
 public:
  explicit NamedClasses(const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      synonyms_.push_back(parts_of(name));
      longest_ = std::max(longest_, synonyms_.back().size());
      spelled_.push_back(join(synonyms_.back(), ", "));
    }
  }

  // Returns the words of a list; parts that form a whole name together are one word.
  std::vector<std::string> words_of(const std::string& list) const {
    const std::vector<std::string> parts = parts_of(list);
    std::vector<std::string> words;
    for (size_t i = 0; i < parts.size();) {
      size_t length = std::min(longest_, parts.size() - i);
      for (; length > 1; --length)
        if (whole(some(parts, i, length)) >= 0) break;
      words.push_back(some(parts, i, length));
      i += length;
    }
    return words;
  }

  // Returns the class with this whole name, or else this synonym; usage errors name the option.
  int64_t find(const std::string& word, const char* option) const {
    if (const int64_t found = whole(word); found >= 0) return found;
    std::vector<std::string> classes;
    for (size_t i = 0; i < synonyms_.size(); ++i)
      if (std::ranges::find(synonyms_[i], word) != synonyms_[i].end()) classes.push_back(std::to_string(i));
    if (classes.size() > 1)
      fail_usage(option, ": '", printable(word), "' names the classes ", join(classes, ", "),
                 ", must be one of these numbers");
    if (classes.size() == 1) return *parse_int(classes.front());
    std::vector<std::string> known = spelled_;
    for (const auto& names : synonyms_) known.insert(known.end(), names.begin(), names.end());
    fail_usage(option, ": there is no class '", printable(word), "'", did_you_mean(word, known));
  }

 private:
  static std::string some(const std::vector<std::string>& parts, size_t first, size_t count) {
    const auto begin = parts.begin() + static_cast<std::ptrdiff_t>(first);
    return join(std::vector<std::string>(begin, begin + static_cast<std::ptrdiff_t>(count)), ", ");
  }
  int64_t whole(const std::string& word) const {
    const auto found = std::ranges::find(spelled_, word);
    return found == spelled_.end() ? -1 : found - spelled_.begin();
  }

  std::vector<std::vector<std::string>> synonyms_;
  std::vector<std::string> spelled_;
  size_t longest_ = 1;
};

std::string class_text(int64_t label, const tasks::Generator& generator) {
  if (label == generator.network->null_label()) return "none";
  const auto at = static_cast<size_t>(label);
  return at < generator.class_names.size() ? generator.class_names[at] : text("class ", label);
}

}  // namespace

std::vector<AskedImage> asked_images(const DrawingOptions& options, const tasks::Generator& generator,
                                     const std::function<void(int64_t count)>& check_count) {
  const std::vector<int64_t> classes = classes_of(options.classes, generator, "--classes");
  const int64_t count = options.count > 0         ? options.count
                        : options.classes.empty() ? std::min<int64_t>(std::ssize(classes), 16)
                                                  : std::ssize(classes);
  check_count(count);
  std::vector<AskedImage> asked;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t label = classes[static_cast<size_t>(i % std::ssize(classes))];
    asked.push_back({.index = i,
                     .seed = static_cast<uint64_t>(options.seed + i),
                     .label = label,
                     .caption = class_text(label, generator)});
  }
  return asked;
}

diffusion::Guidance guidance_of(const diffusion::Guidance& asked, const tasks::Generator& generator) {
  diffusion::Guidance guidance = asked;
  if (guidance.from > guidance.to)
    fail_usage("--cfg-from = ", shortest(guidance.from),
               " must be at most --cfg-to = ", shortest(guidance.to));
  if (guidance.channels == 0) guidance.channels = tasks::published_guided_channels(*generator.network);
  return guidance;
}

diffusion::SamplerConfig sampler_of(const diffusion::SamplerConfig& asked, const tasks::Generator& generator,
                                    bool inverts) {
  if (asked.respacing && asked.steps)
    fail_usage("--respacing sets the steps: it does not go with --steps ", *asked.steps);
  const bool cuts = asked.threshold.value_or(0) > 0;
  if (cuts && asked.clip.value_or(0) > 0)
    fail_usage("--clip and --threshold both bound the images: must be one of them");
  if (cuts && inverts) fail_usage("--threshold cuts off values that --from-class has to walk back");
  // Pixels are in [-1, 1], latents are not; clipped values cannot be inverted.
  return generator.process->resolved(asked, !inverts && generator.network->channels() == 3);
}

std::vector<int64_t> classes_of(const std::string& words, const tasks::Generator& generator,
                                const char* option) {
  const int64_t count = generator.network->label_count();
  std::vector<int64_t> classes;
  const auto add = [&](int64_t one) {
    if (one < 0 || one >= count) fail_usage(option, ": class ", one, ", must be 0 to ", count - 1);
    classes.push_back(one);
  };
  if (words.empty())
    for (int64_t i = 0; i < count; ++i) classes.push_back(i);
  const NamedClasses named(generator.class_names);
  for (const std::string& word : words.empty() ? std::vector<std::string>() : named.words_of(words)) {
    const size_t dash = word.find('-', 1);
    const auto first = parse_int(word.substr(0, dash)),
               last = dash == std::string::npos ? first : parse_int(word.substr(dash + 1));
    if (word == "none") {
      if (!generator.network->has_null_label())
        fail_usage(option, ": the network has no embedding for an image without a class");
      classes.push_back(generator.network->null_label());
    } else if (first && last) {
      if (*last < *first || *last - *first >= count)
        fail_usage(option, ": ", printable(word), " is no range of classes");
      for (int64_t one = *first; one <= *last; ++one) add(one);
    } else {
      add(named.find(word, option));
    }
  }
  return classes;
}

models::Extent size_of(const std::string& words, models::Extent trained, int64_t patch) {
  if (words.empty()) return trained;
  const size_t cross = words.find('x');
  const auto height = parse_int(words.substr(0, cross)),
             width = cross == std::string::npos ? height : parse_int(words.substr(cross + 1));
  if (!height || !width || *height < 1 || *width < 1 || *height > kMostSide || *width > kMostSide)
    fail_usage("--size '", printable(words), "', must be a side or HEIGHTxWIDTH, each 1 to ", kMostSide);
  for (const int64_t side : {*height, *width})
    if (side % patch != 0) fail_usage("--size ", words, ", must be whole patches of ", patch, " pixels");
  return {*height, *width};
}

models::Extent trained_size(const train::WeightsInfo& info) {
  return models::extent_of(*info.model.settings.find("image_size"), "image_size");
}

models::BlockReuse reuse_of(int64_t every, const std::string& words, int64_t blocks) {
  if (every == 1) {
    if (!words.empty()) fail_usage("--reuse-blocks goes with --reuse");
    return {};
  }
  if (words.empty() && blocks < 3)
    fail_usage("--reuse: a network of ", blocks,
               " blocks has none between the first and the last: name some ", "with --reuse-blocks");
  if (words.empty()) return {.every = every, .first = 1, .last = blocks - 1};
  const size_t dash = words.find('-');
  const auto first = parse_int(words.substr(0, dash)),
             last = dash == std::string::npos ? first : parse_int(words.substr(dash + 1));
  if (!first || !last || *first < 0 || *last < *first || *last >= blocks)
    fail_usage("--reuse-blocks '", printable(words), "', must be as 1-2, within 0 to ", blocks - 1);
  return {.every = every, .first = *first, .last = *last + 1};
}

}  // namespace tessera::answer
