// Paths of the files that a command writes, checked before any work: no output replaces another one or an
// input.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::cli {

struct OutputPlace {
  std::string path;
  std::string option;      // the option with the path: "--overlay"
  std::string input = {};  // the image that it is made of, "" where it is made of all of them
  bool replaces = true;    // false for a file that is read and continued
  bool alone = true;       // no other process of an mpirun or srun may write it
};

// Throws a usage error if two outputs are one file, or an output is an input, however their paths are
// spelled (".", links, hard links, other folders). A repeated input may write its output twice. An existing folder
// is no file to replace.
void check_output_places(const std::vector<std::string>& inputs, const std::vector<OutputPlace>& outputs);

// Notes the inputs and outputs of the command line. Throws a usage error as check_output_places(), and if an output
// would replace a file of an input folder that is neither page nor table. From then on no file that is an output can
// be read, whatever path leads to it (refuse_to_read). If mpirun or srun started several processes, throws a usage
// error in all but one of those with the same output.
void guard_outputs(const std::vector<std::string>& inputs, const std::vector<OutputPlace>& outputs);
// Adds an output of the same command, with a name that follows from other options.
void guard_output(const OutputPlace& output);

// True if OUT names a file by one of the writable endings (".png"), false for a folder; an existing folder
// is a folder whatever its name. Throws a usage error for a file with several images, for another image
// ending, or if the folder is a file or below one.
bool names_output_file(const std::string& option, const std::string& out, int64_t images,
                       const std::vector<std::string>& endings);

}  // namespace tessera::cli
