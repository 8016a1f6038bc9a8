// Options of commands that read a data set.
#pragma once

#include "core/options.h"
#include "data/base/source.h"

namespace tessera::cli {

template <class V>
void visit_set(V& v, data::SourceConfig& source) {
  v("data", source.path, {.argument = "DATA", .required = true},
    "a folder, shards, a table, CIFAR or IDX files, shapes:…");
}

template <class V>
void visit_validation(V& v, data::SourceConfig& source) {
  v("val_data", source.val_path, "the validation set, if it has a path of its own");
  v("val_share", source.val_share, from_to_below(0, 1), "share for validation, if the data has no splits");
  v("image_root", source.image_root, "tables: base folder of relative paths");
}

}  // namespace tessera::cli
