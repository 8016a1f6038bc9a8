// Writes any source as WebDataset shards: a folder with train-000.tar …, val-000.tar … and classes.txt, which
// opens as `--data FOLDER`. Images with masks have KEY.mask.png next to them, and masks.json replaces
// classes.txt. Shards of images with objects go into images/, next to annotations/instances_train.json in
// COCO's format.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "data/base/source.h"
#include "data/tools/check.h"

namespace tessera::data {

struct PackConfig {
  std::string output;          // the folder; must not exist or must be empty
  int64_t shard_size = 10000;  // images per shard
  int64_t resize = 0;          // > 0: maximum shorter side; larger images are shrunk (bicubic)
  int64_t quality = 90;        // of shrunk JPEGs
  bool gzip = false;
  bool skip_bad = false;  // skip unreadable images instead of failing
};

struct PackReport {
  std::vector<std::string> files;  // relative to the folder, in the order written
  int64_t pictures = 0, bytes = 0;
  Lines skipped;
};

// Packs a set. Decodes every image once, so that no damaged image is packed. Copies encoded images byte for
// byte unless it shrinks them (JPEG and WebP to JPEG, others to PNG); raw pixels become PNG. Members are
// named by index and file: train000000012-IMG_1.jpg. Each split is shuffled once, always in the same way.
// Sets with masks or objects keep their order, so that training from shards equals training from files.
// Writes to FOLDER.partial and renames it at the end, so the folder appears complete or not at all.
PackReport pack_data(const SourceConfig& config, const PackConfig& pack, const Progress& progress = {});

// A folder that is written under a temporary name next to its target and renamed at the end, so it is never
// incomplete.

// Returns the path without trailing slashes. Throws unless a finished folder can be renamed to it: it must be
// missing or an empty folder, not a link and not the current folder.
std::string folder_to_write(const std::string& path);

// PATH.partial; removed with this object unless it was put in place.
class PartialFolder {
 public:
  explicit PartialFolder(const std::string& target);
  ~PartialFolder();
  PartialFolder(const PartialFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }
  void put_in_place();

 private:
  std::filesystem::path target_, path_;
  bool existed_ = false, done_ = false;
};

}  // namespace tessera::data
