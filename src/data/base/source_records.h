// Sources of raw pixel records in a few files: shared by CIFAR and IDX. Internal to this folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "data/base/source.h"
#include "data/base/source_kinds.h"

namespace tessera::data {

struct Record {
  size_t file = 0;
  int64_t number = 0;  // in the file
  int64_t label = 0;
};

struct RecordFile {
  std::string path;
  std::span<const std::byte> bytes;  // covered by the fingerprint
};

struct RecordSet {
  std::string kind;   // "CIFAR-10"
  std::string shown;  // the path that was given
  std::vector<RecordFile> files;
  std::vector<Record> records;
  std::vector<std::string> classes;  // if empty: numbered up to the largest label of the set
  int64_t first = 0;  // the label of the first class; a list of class names that counts from 1 sets it to 1
  ProblemList problems;
  std::vector<std::string> warnings;
  std::function<Image(const Record&)> picture;  // owns the memory of the bytes
};

// Drops and reports records with a label outside the classes, splits them if `by_share`, and reports empty
// classes.
std::unique_ptr<Source> make_record_source(RecordSet set, const SourceConfig& config, Split split,
                                           bool by_share);

}  // namespace tessera::data
