#include "data/tools/check.h"

#include <algorithm>
#include <bit>
#include <bitset>
#include <filesystem>
#include <set>
#include <unordered_map>
#include <utility>

#include "core/error.h"
#include "core/progress.h"
#include "core/text.h"
#include "core/threads.h"
#include "data/base/annotations.h"
#include "data/base/info.h"
#include "data/base/source_kinds.h"
#include "data/transforms/mask_labels.h"
#include "data/transforms/transform.h"
#include "io/images/image.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace tessera::data {
namespace {

constexpr size_t kMostLines = 1000;
constexpr int64_t kPiece = 512;  // images between two checks of progress and interrupts

// The result of checking one image.
struct Look {
  std::string error;  // empty if it can be read
  std::string format;
  int width = 0, height = 0;
  uint64_t low = 0, high = 0;  // XXH3-128 of its bytes
  std::string name, damage;    // damage: cause of missing parts in a JPEG
  bool captioned = false;
  bool without_image = false;  // a text alone
  bool oriented = false, constant = false;
  bool masked = false;
  std::bitset<256> values;            // of its mask
  std::vector<std::string> captions;  // their problems
};

// Measures the image of a sample.
void look_at_image(const RawSample& sample, Look& look) {
  const auto* bytes = std::get_if<std::vector<std::byte>>(&sample.picture);
  XXH128_hash_t hash{};
  if (bytes != nullptr) {
    const ImageInfo info = image_info(*bytes, sample.name);
    look.format = info.format, look.oriented = info.orientation != 1;
    hash = XXH3_128bits(bytes->data(), bytes->size());
  }
  const Image image =
      bytes != nullptr ? decode_image(*bytes, sample.name, look.damage) : decode_sample(sample);
  if (bytes == nullptr) {
    look.format = "pixels";
    hash =
        XXH3_128bits_withSeed(image.pixels.data(), image.pixels.size(), static_cast<uint64_t>(image.width));
  }
  look.low = hash.low64;
  look.high = hash.high64;
  look.constant = nearly_constant(image);
  look.width = image.width;
  look.height = image.height;
}

Look look_at(const Source& source, const Annotations& annotations, int64_t index) {
  Look look;
  try {
    const RawSample sample = source.read(index);
    look.name = sample.name;
    look.captioned = !sample.annotation.captions.empty();
    if (const auto& mask = sample.annotation.mask) {
      look.masked = true;
      for (const uint8_t value : mask->pixels) look.values.set(value);
    }
    look.captions = annotations.problems_of(index, sample);
    look.without_image = sample.without_image;
    if (!look.without_image) look_at_image(sample, look);
  } catch (const Error& error) {
    look.error = error.what();
  }
  return look;
}

struct Place {
  const Source* source;
  int64_t index;
  bool held_out;
};

std::string classes_of(const Source& source, int64_t index) {
  const ClassLabels* labels = source.class_labels();
  return labels ? label_text(*labels, index, "|") : "";
}

// Stores hashes of the images and reports repeated ones.
class DuplicateFinder {
 public:
  explicit DuplicateFinder(CheckReport& report) : report_(report) {}
  // Whether a source may repeat an image, such as one per conversation about it.
  void allow_repeats(bool repeats) { repeats_ = repeats; }

  void add(const Look& look, const Place& place) {
    const auto [found, is_new] = first_.try_emplace(look.low, Seen{look.high, place});
    if (is_new || found->second.high != look.high) return;
    const Place& first = found->second.place;
    // One image in several conversations or documents.
    if (first.source == place.source && repeats_ && name(first) == name(place)) return;
    Lines& findings = first.held_out != place.held_out ? report_.leaks : report_.duplicates;
    if (findings.lines.size() == kMostLines) {
      ++findings.count;
      return;
    }
    std::string line = text(name(place), " has the same bytes as ", name(first));
    const std::string ours = classes_of(*place.source, place.index),
                      theirs = classes_of(*first.source, first.index);
    if (ours != theirs) line += text(", but another label ('", ours, "', not '", theirs, "')");
    findings.add(std::move(line));
  }

 private:
  struct Seen {
    uint64_t high;
    Place place;
  };

  static std::string name(const Place& place) { return place.source->read(place.index).name; }

  CheckReport& report_;
  bool repeats_ = false;
  std::unordered_map<uint64_t, Seen> first_;
};

SplitCheck describe_split(const Source& source, const Annotations& annotations, bool held_out) {
  SplitCheck split;
  split.name = held_out ? "validation" : "train";
  split.description = source.describe();
  split.pictures = annotations.images().size();
  const Annotations::Classes classes = annotations.classes();
  split.classes = classes.names, split.class_counts = classes.counts, split.counted = classes.counted;
  return split;
}

void count_look(const Look& look, SplitCheck& split) {
  const int shorter = std::min(look.width, look.height), longer = std::max(look.width, look.height);
  split.smallest_side = split.readable == 0 ? shorter : std::min(split.smallest_side, shorter);
  split.largest_side = std::max(split.largest_side, longer);
  ++split.readable;
  split.oriented += look.oriented;
  ++split.formats[look.format];
  ++split.sides[std::bit_width(static_cast<unsigned>(shorter)) - 1];
}

}  // namespace

void Lines::add(std::string line) {
  ++count;
  if (lines.size() < kMostLines) lines.push_back(std::move(line));
}

std::string Lines::text(const std::string& title, int64_t show) const {
  if (count == 0) return "";
  std::string out = title + ": " + std::to_string(count) + "\n";
  const auto shown = std::min<int64_t>(show, std::ssize(lines));
  for (int64_t i = 0; i < shown; ++i) out += "  " + printable(lines[static_cast<size_t>(i)], 1000) + "\n";
  if (shown < count) out += "  … and " + std::to_string(count - shown) + " more\n";
  return out;
}

OpenSplits open_splits(const SourceConfig& config) {
  OpenSplits splits;
  for (const bool held_out : {false, true}) try {
      auto source = open_source_with_problems(config, held_out ? Split::validation : Split::train);
      if (source->size() > 0 || !source->problems().empty())
        (held_out ? splits.validation : splits.train) = std::move(source);
    } catch (const Error& error) {
      if (error.kind != ErrorKind::failed) throw;
      splits.errors.emplace_back(error.what());
      if (splits.errors.size() == 2 && splits.errors[0] == splits.errors[1]) splits.errors.pop_back();
    }
  return splits;
}

// A set of masks or boxes without its annotations looks like a folder of classes.
bool is_images_alone(const Source& source) {
  const ClassLabels* labels = source.class_labels();
  return labels && labels->class_names() == std::vector<std::string>{"images"};
}

// True if the validation set has a path, or a folder of its own.
bool has_validation_folder(const SourceConfig& config) {
  if (!config.val_path.empty()) return true;
  std::error_code error, ignored;
  for (std::filesystem::directory_iterator entry(config.path, error), end; !error && entry != end;
       entry.increment(error))
    if (split_of_name(entry->path().filename().string()) == Split::validation && entry->is_directory(ignored))
      return true;
  return false;
}

std::vector<std::string> OpenSplits::problems() const {
  std::vector<std::string> lines = errors;
  std::set<std::string> seen(lines.begin(), lines.end());
  for (const Source* source : {train.get(), validation.get()})
    for (const std::string& line : source != nullptr ? source->problems() : std::vector<std::string>())
      if (seen.insert(line).second) lines.push_back(line);
  return lines;
}

namespace {

class SetCheck {
 public:
  SetCheck(const SourceConfig& config, const Progress& progress)
      : config_(config), progress_(progress), splits_(open_splits(config)) {}

  CheckReport run() {
    for (const std::string& line : splits_.problems()) {
      report_.set.add(line);
      reported_.insert(line);
    }
    if (splits_.train && is_images_alone(*splits_.train))
      report_.set.add(text(
          config_.path, ": its folder images/ is read as a class of that name; masks of images belong into ",
          "annotations/ next to it, boxes into annotations/instances_train.json"));
    if (splits_.train) annotations_[0] = splits_.train->annotations();
    if (config_.val_path.empty() && annotations_[0] && annotations_[0]->one_split())
      splits_.validation.reset();
    if (splits_.validation) annotations_[1] = splits_.validation->annotations();
    compare_splits();
    if (splits_.train && !splits_.validation && splits_.errors.empty() && has_validation_folder(config_))
      report_.warnings.add(path_of(config_, Split::validation) + " has no validation images");
    for (std::string& line : set_warnings(splits_.train.get(), splits_.validation.get()))
      report_.warnings.add(std::move(line));
    for (const auto& one : annotations_)
      if (one) total_ += one->images().size();
    if (total_ == 0 && report_.set.count == 0) report_.set.add(config_.path + " has no images");
    const Interruptible stretch;
    if (annotations_[0]) check_split(*splits_.train, *annotations_[0], false);
    if (annotations_[1]) check_split(*splits_.validation, *annotations_[1], true);
    return std::move(report_);
  }

 private:
  void compare_splits() {
    if (splits_.train && splits_.validation) try {
        for (const auto& one : annotations_) one->require_same(*splits_.train, *splits_.validation);
      } catch (const Error& error) {
        report_.set.add(error.what());
      }
  }

  // Looks at all images of a split; images of documents are a separate source, and their texts come last.
  void check_split(const Source& source, const Annotations& annotations, bool held_out) {
    const Source& images = annotations.images();
    const auto of_images = images.annotations();
    duplicates_.allow_repeats(annotations.repeats_images());
    SplitCheck split = describe_split(source, annotations, held_out);
    Annotated found;
    for (int64_t first = 0; first < images.size(); first += kPiece) {
      if (interrupted()) throw Error(ErrorKind::interrupted, "interrupted");
      std::vector<Look> looks(static_cast<size_t>(std::min(kPiece, images.size() - first)));
      parallel_for(std::ssize(looks), 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
          looks[static_cast<size_t>(i)] = look_at(images, *of_images, first + i);
      });
      for (size_t i = 0; i < looks.size(); ++i)
        count(looks[i], {&images, first + static_cast<int64_t>(i), held_out}, split, found);
      done_ += std::ssize(looks);
      if (progress_) progress_(done_, total_);
    }
    if (found.masked) check_masks(source, split.classes, found.values, held_out);
    for (const std::string& line : annotations.left_out())
      if (reported_.insert(line).second) report_.set.add(line);
    if (found.captioned)
      for (std::string& line : found.without) report_.captions.add(std::move(line));
    for (int64_t i = 0; &images != &source && i < source.size(); ++i)
      for (std::string& line : annotations.problems_of(i, {})) report_.captions.add(std::move(line));
    report_.splits.push_back(std::move(split));
  }

  struct Annotated {
    bool captioned = false, masked = false;  // true if any sample is
    std::bitset<256> values;                 // of any mask
    std::vector<std::string> without;        // samples without captions: a problem if others have some
  };
  void count(Look& look, const Place& place, SplitCheck& split, Annotated& found) {
    if (!look.error.empty()) {
      if (!reported_.contains(look.error)) report_.unreadable.add(look.error);
      return;
    }
    if (!look.without_image) count_look(look, split);
    if (look.constant)
      report_.warnings.add(text(look.name, " is nearly constant: the pixels of each channel are within ",
                                kFewLevels, " of 256 levels"));
    if (!look.damage.empty())
      report_.warnings.add(text(look.name, " is damaged: parts of it are gray (", look.damage, ")"));
    found.captioned = found.captioned || look.captioned;
    found.masked = found.masked || look.masked, found.values |= look.values;
    if (!look.captioned && found.without.size() < kMostLines)
      found.without.push_back(look.name + ": has no caption");
    for (std::string& line : look.captions) report_.captions.add(std::move(line));
    if (!look.without_image) duplicates_.add(look, place);
  }

  // In training every class must have a pixel; in validation there must be a pixel of any.
  void check_masks(const Source& source, const std::vector<std::string>& classes,
                   const std::bitset<256>& values, bool held_out) {
    std::bitset<256> labelled = values;
    labelled.reset(kIgnoredPixel);
    if (labelled.none()) return report_.set.add(source.describe() + ": no mask has a pixel of a class");
    std::vector<std::string> without;
    for (size_t c = 0; c < classes.size(); ++c)
      if (!values[c]) without.push_back(classes[c]);
    if (const std::string line = no_pixels_of(without, values[kIgnoredPixel]); !held_out && !line.empty())
      report_.set.add(source.describe() + ": " + line);
  }

  const SourceConfig& config_;
  const Progress& progress_;
  OpenSplits splits_;
  std::set<std::string> reported_;               // lines about the set
  std::unique_ptr<Annotations> annotations_[2];  // training split, held-out split
  CheckReport report_;
  DuplicateFinder duplicates_{report_};
  int64_t total_ = 0, done_ = 0;
};

}  // namespace

CheckReport check_data(const SourceConfig& config, const Progress& progress) {
  return SetCheck(config, progress).run();
}

}  // namespace tessera::data
