// coco_masks FILE.json: converts every mask of a COCO file to pixels and back to run lengths. Prints the
// numbers of masks with identical runs, with the file's `area`, and with the file's box. Fails if any mask
// differs.
#include <cstdint>
#include <iostream>
#include <map>

#include "data/sources/coco_file.h"

namespace tessera {
namespace {

struct Counts {
  int64_t masks = 0, runs = 0, same_runs = 0, polygons = 0, same_area = 0, same_box = 0;
};

Counts count_masks(const data::CocoFile& file) {
  std::map<int64_t, const data::CocoImage*> images;
  for (const data::CocoImage& image : file.images) images[image.number] = &image;
  Counts counts;
  for (const data::CocoAnnotation& a : file.annotations) {
    const data::CocoImage& image = *images.at(a.image);
    const RunLengths runs = data::runs_of_outline(a.outline, image.height, image.width);
    const RunLengths again = runs_of_mask(mask_of_runs(runs), image.height, image.width);
    const RunBox box = bounds_of(again);
    ++counts.masks;
    if (a.outline.has_runs()) {
      ++counts.runs;
      counts.same_runs += again == a.outline.runs && compress_runs(again) == compress_runs(a.outline.runs);
    } else {
      ++counts.polygons;
    }
    counts.same_area += static_cast<double>(area_of(again)) == a.area;
    counts.same_box += box.left == a.box.left && box.top == a.box.top && box.width == a.box.width &&
                       box.height == a.box.height;
  }
  return counts;
}

}  // namespace
}  // namespace tessera

int main(int count, char** words) {
  if (count != 2) {
    std::cerr << "usage: coco_masks FILE.json\n";
    return 2;
  }
  try {
    const tessera::Counts found = tessera::count_masks(tessera::data::read_coco(words[1]));
    std::cout << found.masks << " masks: " << found.same_runs << " of " << found.runs
              << " run lengths the same, " << found.polygons << " polygons, " << found.same_area
              << " areas and " << found.same_box << " boxes as in the file\n";
    return found.same_runs == found.runs && found.same_area == found.masks && found.same_box == found.masks
               ? 0
               : 1;
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
