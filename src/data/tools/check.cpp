#include "data/tools/check.h"

#include "data/base/objects.h"

#include <algorithm>
#include <bit>
#include <set>
#include <unordered_map>
#include <utility>

#include "core/error.h"
#include "core/progress.h"
#include "core/threads.h"
#include "data/base/captions.h"
#include "data/sources/conversations.h"
#include "data/sources/interleaved.h"
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
  std::string name;
  bool captioned = false, without_image = false;
  bool masked = false, labelled = false;  // has a mask, and a pixel of a class in it
  std::vector<std::string> captions;      // their problems
};

Look look_at(const Source& source, int64_t index) {
  Look look;
  try {
    const RawSample sample = source.read(index);
    look.name = sample.name;
    look.captioned = !sample.annotation.captions.empty();
    if (const auto& mask = sample.annotation.mask) {
      look.masked = true;
      look.labelled = std::ranges::any_of(mask->pixels, [](uint8_t value) { return value != kIgnoredPixel; });
    }
    const auto* asked = dynamic_cast<const Conversations*>(&source);
    look.captions = asked ? asked->problems_of(index) : caption_problems(sample);
    look.without_image = sample.without_image;
    if (look.without_image) return look;
    const auto* bytes = std::get_if<std::vector<std::byte>>(&sample.picture);
    XXH128_hash_t hash{};
    if (bytes != nullptr) {
      look.format = image_info(*bytes, sample.name).format;
      hash = XXH3_128bits(bytes->data(), bytes->size());
    }
    const Image image = decode_sample(sample);
    if (bytes == nullptr) {
      look.format = "pixels";
      hash =
          XXH3_128bits_withSeed(image.pixels.data(), image.pixels.size(), static_cast<uint64_t>(image.width));
    }
    look.low = hash.low64;
    look.high = hash.high64;
    look.width = image.width;
    look.height = image.height;
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
  // Whether a source may repeat an image, once per conversation about it.
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

SplitCheck describe_split(const Source& source, bool held_out) {
  SplitCheck split;
  split.name = held_out ? "validation" : "train";
  split.description = source.describe();
  split.pictures = source.size();
  if (const ClassLabels* labels = source.class_labels()) split.classes = labels->class_names();
  if (const MaskLabels* masks = mask_labels(source)) split.classes = masks->mask_classes();
  split.class_counts = class_counts(source);
  if (const ObjectLabels* objects = object_labels(source)) {
    split.classes = objects->object_classes();
    split.class_counts = object_counts(source);
    split.counts_objects = true;
  }
  return split;
}

void count_look(const Look& look, SplitCheck& split) {
  const int shorter = std::min(look.width, look.height), longer = std::max(look.width, look.height);
  split.smallest_side = split.readable == 0 ? shorter : std::min(split.smallest_side, shorter);
  split.largest_side = std::max(split.largest_side, longer);
  ++split.readable;
  ++split.formats[look.format];
  ++split.sides[std::bit_width(static_cast<unsigned>(shorter)) - 1];
}

}  // namespace

void Lines::add(std::string line) {
  ++count;
  if (lines.size() < kMostLines) lines.push_back(std::move(line));
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

std::vector<std::string> OpenSplits::problems() const {
  std::vector<std::string> lines = errors;
  std::set<std::string> seen(lines.begin(), lines.end());
  for (const Source* source : {train.get(), validation.get()})
    for (const std::string& line : source != nullptr ? source->problems() : std::vector<std::string>())
      if (seen.insert(line).second) lines.push_back(line);
  return lines;
}

CheckReport check_data(const SourceConfig& config, const Progress& progress) {
  CheckReport report;
  OpenSplits splits = open_splits(config);
  for (const std::string& line : splits.problems()) report.set.add(line);
  if (splits.train && is_images_alone(*splits.train))
    report.set.add(text(config.path,
                        ": its folder images/ is read as a class of that name; masks of images belong into ",
                        "annotations/ beside it, boxes into annotations/instances_train.json"));
  // Conversations in one file have no split: they are checked once.
  if (config.val_path.empty() && dynamic_cast<const Conversations*>(splits.train.get()))
    splits.validation.reset();
  if (splits.train && splits.validation) try {
      require_same_classes(*splits.train, *splits.validation);
      if (mask_labels(*splits.train) || mask_labels(*splits.validation))
        require_same_masks(*splits.train, *splits.validation);
      if (object_labels(*splits.train) || object_labels(*splits.validation))
        require_same_objects(*splits.train, *splits.validation);
    } catch (const Error& error) {
      report.set.add(error.what());
    }
  // The images of documents are checked one by one, and then their texts.
  const auto images_of = [](const std::unique_ptr<Source>& source) {
    return source ? document_images(*source) : nullptr;
  };
  const std::unique_ptr<Source> train_images = images_of(splits.train),
                                held_out_images = images_of(splits.validation);
  const Source* const looked[] = {train_images ? train_images.get() : splits.train.get(),
                                  held_out_images ? held_out_images.get() : splits.validation.get()};
  int64_t total = 0, done = 0;
  for (const Source* source : looked)
    if (source != nullptr) total += source->size();
  if (total == 0 && report.set.count == 0) report.set.add(config.path + " has no images");
  DuplicateFinder duplicates(report);
  const Interruptible stretch;
  for (const bool held_out : {false, true}) {
    const Source* source = looked[held_out ? 1 : 0];
    if (source == nullptr) continue;
    const auto* documents =
        dynamic_cast<const Interleaved*>((held_out ? splits.validation : splits.train).get());
    duplicates.allow_repeats(documents || dynamic_cast<const Conversations*>(source));
    SplitCheck split = describe_split(*source, held_out);
    std::vector<std::string> without;  // samples without captions: a problem if others have some
    bool captioned = false, masked = false, labelled = false;
    for (int64_t first = 0; first < source->size(); first += kPiece) {
      if (interrupted()) throw Error(ErrorKind::interrupted, "interrupted");
      std::vector<Look> looks(static_cast<size_t>(std::min(kPiece, source->size() - first)));
      parallel_for(static_cast<int64_t>(looks.size()), 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) looks[static_cast<size_t>(i)] = look_at(*source, first + i);
      });
      for (size_t i = 0; i < looks.size(); ++i) {
        if (!looks[i].error.empty()) {
          report.unreadable.add(looks[i].error);
          continue;
        }
        if (!looks[i].without_image) count_look(looks[i], split);
        captioned = captioned || looks[i].captioned;
        masked = masked || looks[i].masked, labelled = labelled || looks[i].labelled;
        if (!looks[i].captioned && without.size() < kMostLines)
          without.push_back(looks[i].name + ": has no caption");
        for (std::string& line : looks[i].captions) report.captions.add(std::move(line));
        if (!looks[i].without_image)
          duplicates.add(looks[i], {source, first + static_cast<int64_t>(i), held_out});
      }
      done += static_cast<int64_t>(looks.size());
      if (progress) progress(done, total);
    }
    if (masked && !labelled) report.set.add(source->describe() + ": no mask has a pixel of a class");
    if (captioned)
      for (std::string& line : without) report.captions.add(std::move(line));
    for (int64_t i = 0; documents && i < documents->size(); ++i)
      for (std::string& line : documents->problems_of(i)) report.captions.add(std::move(line));
    report.splits.push_back(std::move(split));
  }
  return report;
}

}  // namespace tessera::data
