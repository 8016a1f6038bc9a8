// The ways to look at an image when testing, as the commands of dense prediction take them.
#pragma once

#include <string>
#include <vector>

#include "tasks/dense/object_finder.h"
#include "tasks/dense/segment.h"

namespace tessera::cli {

// Overrides the recipe's views by --scales "0.75,1,1.25" and --flip; scales without --flip are not mirrored.
// Throws a usage error for a part that is not a number, or views that the task refuses.
void choose_views(tasks::SegmentInference& how, const std::string& scales, bool flip);
void choose_views(tasks::ObjectFinder& finder, const std::string& scales, bool flip);

}  // namespace tessera::cli
