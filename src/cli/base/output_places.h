// Paths of the files that a command makes from images, checked before any work: no output replaces another
// one or an input.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::cli {

struct OutputPlace {
  std::string path;
  std::string option;      // the option with the path: "--overlay"
  std::string input = {};  // the image that it is made of, "" where it is made of all of them
};

// Throws a usage error if two outputs are one file, or an output is an input, however their paths are
// spelled (".", links, other folders). A repeated input may write its output twice.
void check_output_places(const std::vector<std::string>& inputs, const std::vector<OutputPlace>& outputs);

// True if OUT names a file by one of the writable endings (".png"), false for a folder; an existing folder
// is a folder whatever its name. Throws a usage error for a file with several images, for another image
// ending, or if the folder is a file or below one.
bool names_output_file(const std::string& option, const std::string& out, int64_t images,
                       const std::vector<std::string>& endings);

}  // namespace tessera::cli
