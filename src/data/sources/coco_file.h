// Annotations of objects as COCO's JSON has them, and result files of detectors.
//
// A file is read as a stream: one image or annotation at a time is in memory as JSON, so that 850,000 annotations in
// 1.5 GB need the memory of their outlines. Keys that are not known are passed over.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "data/base/outline.h"
#include "io/images/run_lengths.h"

namespace tessera::data {

struct CocoImage {
  int64_t number = 0;
  int64_t height = 0, width = 0;  // 0 where the file does not say
  std::string file = {};
};
struct CocoCategory {
  int64_t number = 0;
  std::string name = {};
};
struct CocoAnnotation {
  int64_t number = 0, image = 0, category = 0;
  RunBox box = {};
  double area = 0;
  bool crowd = false;
  Outline outline = {};
};

struct CocoFile {
  std::vector<CocoImage> images = {};
  std::vector<CocoCategory> categories = {};
  std::vector<CocoAnnotation> annotations = {};
  // What is wrong with the set: numbers that stand twice, annotations of unknown images or categories.
  std::vector<std::string> problems = {};
  // Annotations that were left out, by reason: a box without area, outside of its image, not of numbers, a polygon of
  // too few points, runs that do not fill their mask.
  std::map<std::string, int64_t> dropped = {};
};
// Fails, naming the file and the byte, where it is no JSON; and where it has no images, categories or annotations.
CocoFile read_coco(const std::string& path);

// Where the images of a file lie: beside it or one above, in "images", in the split's own name (that behind the last "_"
// of the file's), or plainly there.
std::string coco_image_folder(const std::string& file);

// Writes such a file; masks that are runs as compressed ones. `problems` and `dropped` are not part of it.
void write_coco(const std::string& path, const CocoFile& file);

// One line of a result file. Without a box it is that of the mask, without a mask there is none.
struct CocoResult {
  int64_t image = 0, category = 0;
  double score = 0;
  RunBox box = {};
  bool has_box = false;
  RunLengths mask = {};
};
std::vector<CocoResult> read_coco_results(const std::string& path);
// A JSON array, with masks as compressed runs.
void write_coco_results(const std::string& path, const std::vector<CocoResult>& results);

}  // namespace tessera::data
