#include "cli/base/dense_weights.h"

#include <iostream>

#include "cli/base/common.h"
#include "core/error.h"
#include "open/weights.h"

namespace tessera::cli {

train::OpenedTask open_dense_weights(const std::string& path, bool raw, const std::string& example) {
  const std::string file = train::weights_file_of(path, raw);
  if (const WeightFile weights(file); !train::read_weights_info(weights.metadata(), file).ours)
    fail_usage("'", file,
               "' does not say which model and heads it holds: write a file that does by `tessera convert ",
               file, " OUT.safetensors --recipe RECIPE`, with the recipe of such a run (as ", example, ")");
  train::OpenedTask opened = train::open_task(path, {.raw = raw});
  for (const std::string& note : opened.notes) std::cerr << one_line(note) << "\n";
  return opened;
}

}  // namespace tessera::cli
