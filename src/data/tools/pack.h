// Writes any source as WebDataset shards: a folder with train-000.tar …, val-000.tar … and classes.txt,
// which opens as `--data FOLDER`. Images with masks have KEY.mask.png beside them and masks.json instead of classes.txt;
// of images with objects the shards lie in images/, beside annotations/instances_train.json as COCO has it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/base/source.h"
#include "data/tools/check.h"

namespace tessera::data {

struct PackConfig {
  std::string output;          // the folder; must not exist or be empty
  int64_t shard_size = 10000;  // images a shard
  int64_t resize = 0;          // > 0: images whose shorter side is longer are shrunk to it (bicubic)
  int64_t quality = 90;        // of JPEGs that are shrunk
  bool gzip = false;
  bool skip_bad = false;  // leave out images that cannot be read, instead of failing
};

struct PackReport {
  std::vector<std::string> files;  // in the folder, in the order written
  int64_t pictures = 0, bytes = 0;
  Lines skipped;
};

// Every image is decoded once, so that no damaged one is packed. Encoded ones are copied byte for byte unless they are
// shrunk (JPEG and WebP to JPEG, the others to PNG); raw pixels become PNG. Members are called after their place and
// their file: train000000012-IMG_1.jpg. Within a split the order is shuffled once, the same every time; with masks or
// objects it stays, so that a training from the shards is the same as from the files. All is written into
// FOLDER.partial, which is renamed at the end: the folder is there whole or not at all.
PackReport pack_data(const SourceConfig& config, const PackConfig& pack, const Progress& progress = {});

}  // namespace tessera::data
