// Object annotations in COCO's JSON, and result files of detectors.
//
// Files are parsed as a stream: only one image or annotation at a time is in memory as JSON. So 850,000
// annotations in 1.5 GB need only the memory of their outlines. Unknown keys are ignored.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/base/outline.h"
#include "data/base/source_labels.h"
#include "io/images/run_lengths.h"

namespace tessera::data {

struct CocoImage {
  int64_t number = 0;
  int64_t height = 0, width = 0;  // 0 if the file lacks them
  std::string file = {};
  bool measured = false;  // the size is that of the image file
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
  // Problems of the set: repeated ids, annotations of unknown categories.
  std::vector<std::string> problems = {};
  // Images that are listed twice, annotations of images that are not listed, ids that are no numbers.
  std::vector<std::string> warnings = {};
  // Counts of dropped annotations by reason: a box without area, outside its image, or with invalid numbers.
  std::map<std::string, int64_t> dropped = {};
  // Counts by reason of outlines, or single polygons, that were dropped while the annotation kept its box.
  std::map<std::string, int64_t> cut = {};
};
// Sets the missing image sizes of a file before annotations are compared with them.
using MeasureImages = std::function<void(std::vector<CocoImage>& images)>;
// Throws an error with the file and the byte if it is not JSON. Also throws if images, categories or
// annotations are missing. Whole numbers may be written as 64.0 or "64"; ids may be other texts. Polygons of fewer than three points
// are dropped, as in detectron2; the annotation keeps its other polygons and its box, as in pycocotools.
CocoFile read_coco(const std::string& path, const MeasureImages& measure = {});

// Drops and counts annotations whose box is outside their image, as read_coco does. Images without a size
// keep all.
void drop_outside(CocoFile& file);

// Returns the folder of a file's images: the one that has the first image, among those next to the file or one level
// up that are called "images" or after the split (the text after the last "_" in the file's name), the file's own folder,
// and the one above it. If none has it, the first of them that exists.
std::string coco_image_folder(const std::string& file, const std::string& first_image);
// Replaces the paths of images that another machine has by those in the folder, and if the first does not exist, all by those
// without %20 or with another suffix, as .jpg for .JPG. Returns a line about it, "" if nothing is replaced.
std::string find_coco_images(std::span<std::string* const> files, const std::string& folder,
                             const std::string& shown);

// Writes a file of this format, with run-length masks compressed. Ignores `problems`, `dropped` and `cut`.
void write_coco(const std::string& path, const CocoFile& file);

// One entry of a result file. A missing box is computed from the mask; the mask may be missing.
struct CocoResult {
  int64_t image = 0, category = 0;
  double score = 0;
  RunBox box = {};
  bool has_box = false;
  RunLengths mask = {};
};
std::vector<CocoResult> read_coco_results(const std::string& path);
// Writes a JSON array, with masks as compressed runs.
void write_coco_results(const std::string& path, const std::vector<CocoResult>& results);

}  // namespace tessera::data
