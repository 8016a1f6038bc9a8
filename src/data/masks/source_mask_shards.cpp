// Images with the class of every pixel in tar shards, as `data pack` writes them. Members are KEY.jpg (or
// another ending) and KEY.mask.png, an index PNG with 255 for no class. masks.json next to the shards lists
// the classes.
#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/text.h"
#include "data/base/source_kinds.h"
#include "data/sources/annotated_source.h"
#include "data/sources/shard_files.h"
#include "data/transforms/transform.h"
#include "io/files/file.h"
#include "io/files/json.h"
#include "io/images/index_png.h"

namespace tessera::data {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMaskEnding = ".mask.png";
constexpr size_t kMostClasses = 255;

std::vector<std::string> classes_of(const std::string& file) {
  const auto object = parse_json(read_text(file), file);
  const auto found = object.is_object() ? object.find("classes") : object.end();
  if (found == object.end() || !found->is_array())
    fail(file, ": has no \"classes\", which must be a list of names");
  std::vector<std::string> classes;
  for (const auto& name : *found) {
    if (!name.is_string()) fail(file, ": \"classes\" must be names, one of them is ", name.type_name());
    classes.push_back(name.get<std::string>());
  }
  if (classes.empty() || classes.size() > kMostClasses)
    fail(file, ": has ", classes.size(), " classes, must be 1 to ", kMostClasses);
  return classes;
}

class MaskShards final : public MaskedSource {
 public:
  MaskShards(const SourceConfig& config, Split split) : shown_(path_of(config, split)) {
    classes_ = classes_of((fs::path(shown_) / kMaskMarker).string());
    const auto starts = [&](const std::string& path, const char* word) {
      return fs::path(path).filename().string().starts_with(word);
    };
    const std::vector<std::string> all = shards_in(shown_);
    const bool has_validation =
        std::any_of(all.begin(), all.end(), [&](const auto& path) { return starts(path, "val"); });
    const bool by_share = !has_validation && config.val_path.empty();
    for (const std::string& path : all)
      if (by_share || starts(path, split == Split::train ? "train" : "val") ||
          (split == Split::validation && !has_validation))
        add_shard(path);
    if (!by_share) return;
    std::vector<std::string> names;
    for (const Sample& sample : samples_) names.push_back(sample.key);
    std::vector<Sample> chosen;
    for (const int64_t i : select_split(config, split, names, std::vector<int64_t>(names.size(), -1)))
      chosen.push_back(samples_[static_cast<size_t>(i)]);
    samples_ = std::move(chosen);
  }

  int64_t size() const override { return std::ssize(samples_); }
  const std::vector<std::string>& mask_classes() const override { return classes_; }
  std::vector<std::string> problems() const override { return problems_.lines(); }

  RawSample read(int64_t index) const override {
    const Sample& one = samples_[static_cast<size_t>(index)];
    const auto bytes = one.archive->bytes(one.image);
    const std::string where = text(one.archive->path(), ": ", one.key);
    RawSample sample{printable(where, kMostNameBytes), std::vector<std::byte>(bytes.begin(), bytes.end())};
    const ImageInfo info = image_info(bytes, sample.name);
    const IndexImage mask = decode_index_png(one.archive->bytes(one.mask), where + kMaskEnding);
    Image values(mask.width, mask.height, 1);
    std::map<int64_t, int64_t> strange;  // pixels by value
    for (size_t i = 0; i < mask.values.size(); ++i) {
      if (mask.values[i] >= classes_.size() && mask.values[i] != kIgnoredPixel) ++strange[mask.values[i]];
      values.pixels[i] = static_cast<uint8_t>(mask.values[i]);
    }
    if (!strange.empty())
      refuse_values(where + kMaskEnding, strange, text("0 to ", classes_.size() - 1, ", or 255 for none"));
    sample.annotation.mask = mask_as_shown(std::move(values), info, where + kMaskEnding, one.key);
    return sample;
  }

  uint64_t fingerprint() const override {
    Fingerprint print;
    print.add("mask shards 1");
    print.add(classes_);
    for (const Sample& one : samples_) {
      print.add(one.key);
      for (const size_t member : {one.image, one.mask})
        print.add(static_cast<int64_t>(one.archive->members()[member].size));
    }
    return print.value();
  }
  std::string describe() const override {
    return text("masks in shards ", shown_, ", ", counted(size(), "image"), ", ", classes_.size(),
                " classes");
  }

 private:
  struct Sample {
    std::shared_ptr<const TarArchive> archive;
    std::string key;
    size_t image = 0, mask = 0;  // members
  };

  void add_shard(const std::string& path) {
    const auto archive = open_archive(path);
    const auto& members = archive->members();
    std::map<std::string_view, size_t> masks;
    for (size_t m = 0; m < members.size(); ++m)
      if (members[m].name.ends_with(kMaskEnding))
        masks[members[m].name.substr(0, members[m].name.size() - std::string_view(kMaskEnding).size())] = m;
    for (size_t m = 0; m < members.size(); ++m) {
      const std::string_view name = members[m].name;
      if (name.ends_with(kMaskEnding) || !has_picture_extension(name)) continue;
      const std::string_view key = name.substr(0, name.rfind('.'));
      const auto mask = masks.find(key);
      if (mask == masks.end()) {
        problems_.add(path, ": '", name, "' has no mask ", key, kMaskEnding);
        continue;
      }
      samples_.push_back({archive, std::string(key), m, mask->second});
      masks.erase(mask);
    }
    for (const auto& [key, member] : masks)
      problems_.add(path, ": '", key, kMaskEnding, "' is the mask of no image");
  }

  std::string shown_;
  std::vector<std::string> classes_;
  std::vector<Sample> samples_;
  ProblemList problems_;
};

}  // namespace

bool is_mask_shards_path(const std::string& path) {
  std::error_code error;
  return fs::is_regular_file(fs::path(path) / kMaskMarker, error) && !shards_in(path).empty();
}

std::unique_ptr<Source> open_mask_shards(const SourceConfig& config, Split split) {
  return std::make_unique<MaskShards>(config, split);
}

}  // namespace tessera::data
