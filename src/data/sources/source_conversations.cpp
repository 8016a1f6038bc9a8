#include "data/sources/source_conversations.h"

#include "core/error.h"
#include "data/base/source_kinds.h"
#include "data/sources/conversations.h"

namespace tessera::data {
namespace {

constexpr std::string_view kPrefix = "conversations:";

}  // namespace

bool is_conversations_path(const std::string& path) { return path.starts_with(kPrefix); }

std::unique_ptr<Source> open_conversations(const SourceConfig& config, Split split) {
  const std::string path = path_of(config, split).substr(kPrefix.size());
  const size_t comma = path.find(',');
  if (comma == std::string::npos || comma == 0 || comma + 1 == path.size())
    fail_usage("data path '", kPrefix, path, "' must be conversations:FILE,IMAGES");
  // All images of that path: the file selects among them.
  SourceConfig images = config;
  images.path = images.val_path = path.substr(comma + 1);
  return std::make_unique<Conversations>(path.substr(0, comma), open_source(images, split));
}

}  // namespace tessera::data
