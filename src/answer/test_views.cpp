#include "answer/pictures.h"
#include "core/error.h"
#include "core/text.h"

namespace tessera::answer {

std::vector<double> parse_scales(const std::string& list) {
  std::vector<double> scales;
  for (const std::string& part : split(list, ',')) {
    const auto factor = parse_double(trim(part));
    if (!factor) fail_usage("--scales: '", part, "' is no number, as in 0.75,1,1.25");
    scales.push_back(*factor);
  }
  return scales;
}

void choose_views(tasks::SegmentInference& how, const std::string& scales, bool flip) {
  if (!scales.empty()) how.scales = parse_scales(scales), how.flip = flip;
  if (flip) how.flip = true;
  check_inference(how);
}

void choose_views(tasks::ObjectFinder& finder, const std::string& scales, bool flip) {
  if (const std::vector<tasks::TestView> views = views_of(scales, flip); !views.empty())
    finder.set_views(views);
}

std::vector<tasks::TestView> views_of(const std::string& scales, bool flip) {
  std::vector<tasks::TestView> views;
  if (scales.empty() && !flip) return views;
  for (const double scale : scales.empty() ? std::vector{1.0} : parse_scales(scales)) {
    views.push_back({scale, false});
    if (flip) views.push_back({scale, true});
  }
  return views;
}

}  // namespace tessera::answer
