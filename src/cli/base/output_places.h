// Where a command writes the files that it makes of images: checked before any work, so that no output replaces
// another one or an image that is still to be read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::cli {

struct OutputPlace {
  std::string path;
  std::string option;      // that said where: "--overlay"
  std::string input = {};  // the image that it is made of, "" where it is made of all of them
};

// A usage error where two outputs are one file, or an output is one of the inputs, however their paths are spelled
// (through ".", links, other folders). An image that stands twice among the inputs may write its output twice.
void check_output_places(const std::vector<std::string>& inputs, const std::vector<OutputPlace>& outputs);

// Whether OUT names a file, by one of the endings (".png") that can be written, instead of a folder. A folder that is
// there is one whatever its name. A usage error where it names a file and there are several images, where it ends as
// other image files do, or where the folder is a file or below one.
bool names_output_file(const std::string& option, const std::string& out, int64_t images,
                       const std::vector<std::string>& endings);

}  // namespace tessera::cli
