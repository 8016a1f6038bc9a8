// Paths of the files that a command writes, checked before any work: no output replaces another one or an
// input.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::cli {

struct OutputPlace {
  std::string path;
  std::string option;      // the option that gives the path: "--overlay"
  std::string input = {};  // the image that it is made of, "" if it is made of all images
  bool replaces = true;    // false for a file that is read and continued
  bool alone = true;       // other processes of a launcher must not write it
};

// Throws a usage error if two outputs are one file, or an output is an input, however their paths are
// spelled (".", links, hard links, other folders). A repeated input may write its output twice. An existing
// folder does not count as replaced.
void check_output_places(const std::vector<std::string>& inputs, const std::vector<OutputPlace>& outputs);

// Registers the inputs and outputs of the command line. Throws a usage error like check_output_places(), and
// if an output would replace a file of an input folder that is neither page nor table. From then on output
// files cannot be read under any path (refuse_to_read). If a launcher started several processes with the same
// output, throws a usage error in all but one.
void guard_outputs(const std::vector<std::string>& inputs, const std::vector<OutputPlace>& outputs);
// Adds an output of the same command, with a name that follows from other options.
void guard_output(const OutputPlace& output);

// Throws a usage error if the folder of --output would be inside the folder of the set that it is made of: it would become a
// part of that set.
void require_apart(const std::string& output, const std::vector<std::string>& sets);

// True if OUT is a file, with a writable ending (".png"); false for a folder, or an existing folder of any
// name. Throws a usage error for a file with several images, for another image ending, or if the folder is a
// file or below one.
bool names_output_file(const std::string& option, const std::string& out, int64_t images,
                       const std::vector<std::string>& endings);

}  // namespace tessera::cli
