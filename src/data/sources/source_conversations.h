// Conversations as a data path, `conversations:FILE,IMAGES`: LLaVA's file, and any data path of its images.
#pragma once

#include <memory>
#include <string>

#include "data/base/source.h"

namespace tessera::data {

bool is_conversations_path(const std::string& path);
std::unique_ptr<Source> open_conversations(const SourceConfig& config, Split split);

}  // namespace tessera::data
