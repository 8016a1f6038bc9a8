// YOLO's label files: `class x y width height` or a polygon in each line, as text and as annotations of COCO.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "data/base/class_names.h"
#include "data/sources/coco_file.h"

namespace tessera::data {

// True for the name of a label file: any .txt except a list of classes. The file may be empty, which is an image without
// objects.
bool is_label_file(const std::filesystem::path& file);

// True if the first line of a file is a class number and at least four shares of an image's sides.
bool begins_as_labels(const std::filesystem::path& file);

// Returns the label file of an image: the last folder "images" of its path becomes "labels".
std::string labels_of(const std::string& image);

// Returns the numbers of classes in all files in folders `labels` below a folder. Each number is the name of its class. Throws if
// there is none.
NumberedClasses classes_of_labels(const std::string& folder);

// Reads the label files of all images into `file`. Returns the label files that are missing.
std::vector<std::string> add_labels(CocoFile& file, const std::vector<std::string>& paths, bool keypoints);

}  // namespace tessera::data
