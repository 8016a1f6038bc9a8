// The usual names of training and held-out data, in folders, shards and tables.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/base/source.h"

namespace tessera::data {

// Returns the split of a usual name, in any case: train, training, trn; val, valid, validation, dev, eval,
// evaluation, test, testing, tst; also as a part of the name ("seg_train", "train2017", "TestSet").
std::optional<Split> split_of_name(std::string_view name);

// Returns the name of a split's folder among `folders`, "" if there is none. Names of the whole folder precede
// names with such a part, validation precedes test. Throws if several parts fit; `where` names their folder.
std::string split_folder(const std::vector<std::string>& folders, Split split, const std::string& where);

}  // namespace tessera::data
