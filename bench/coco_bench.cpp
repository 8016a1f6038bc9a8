// coco_bench TRUTH.json FOUND.json ROUNDS: COCO's box AP on one thread; prints the fastest round's CPU
// seconds, AP, AP50 and AP75. Files are read before timing.
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <iomanip>
#include <iostream>

#include "core/error.h"
#include "core/threads.h"
#include "data/sources/coco_file.h"
#include "eval/coco.h"

namespace tessera {
namespace {

double processor_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

void run(const std::string& truth, const std::string& found, int rounds) {
  set_num_threads(1);
  const data::CocoFile file = data::read_coco(truth);
  eval::CocoSettings settings;
  std::vector<eval::CocoObject> truths, detections;
  for (const data::CocoImage& image : file.images) settings.images.push_back(image.number);
  for (const data::CocoCategory& category : file.categories) settings.categories.push_back(category.number);
  for (const data::CocoAnnotation& a : file.annotations)
    truths.push_back(
        {.image = a.image, .category = a.category, .box = a.box, .area = a.area, .crowd = a.crowd});
  for (const data::CocoResult& r : data::read_coco_results(found))
    detections.push_back({.image = r.image,
                          .category = r.category,
                          .box = r.box,
                          .area = r.box.width * r.box.height,
                          .score = r.score});
  double best = 1e9;
  eval::CocoScores scores;
  for (int i = 0; i < rounds; ++i) {
    const double began = processor_seconds();
    scores = eval::evaluate_coco(truths, detections, settings);
    best = std::min(best, processor_seconds() - began);
  }
  std::cout << std::setprecision(12) << best << " " << scores.precision() << " " << scores.precision(0) << " "
            << scores.precision(5) << "\n";
}

}  // namespace
}  // namespace tessera

int main(int count, char** words) {
  if (count != 4) {
    std::cerr << "usage: coco_bench TRUTH.json FOUND.json ROUNDS\n";
    return 2;
  }
  try {
    tessera::run(words[1], words[2], std::atoi(words[3]));
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
