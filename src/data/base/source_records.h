// Sources whose samples are records of raw pixels in a few files: what CIFAR and IDX share. Internal to this
// folder.
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
  std::span<const std::byte> bytes;  // what the fingerprint covers
};

struct RecordSet {
  std::string kind;   // "CIFAR-10"
  std::string shown;  // the path that was given
  std::vector<RecordFile> files;
  std::vector<Record> records;
  std::vector<std::string> classes;  // where empty: numbered, as many as the largest label of the set says
  ProblemList problems;
  std::function<Image(const Record&)> picture;  // holds what the bytes lie in
};

// Drops and names records whose label is no class, shares out the splits where `by_share`, names classes
// without samples.
std::unique_ptr<Source> make_record_source(RecordSet set, const SourceConfig& config, Split split,
                                           bool by_share);

}  // namespace tessera::data
