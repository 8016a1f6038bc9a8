// The ways to look at an image when testing, as the commands of dense prediction take them.
#pragma once

#include <string>
#include <vector>

#include "tasks/dense/object_finder.h"
#include "tasks/dense/segment.h"

namespace tessera::cli {

// --scales "0.75,1,1.25" and --flip lie over what the recipe says; scales without --flip are not mirrored. Usage errors name the part that is no number, and what
// the task refuses.
void choose_views(tasks::SegmentInference& how, const std::string& scales, bool flip);
void choose_views(tasks::ObjectFinder& finder, const std::string& scales, bool flip);

}  // namespace tessera::cli
