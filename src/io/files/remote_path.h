// Remote paths: nothing is fetched; the error explains how to fetch the file first.
#pragma once

#include <string>

namespace tessera {

// Throws a usage error for https://…, hf-hub:… and similar; accepts any other path.
void refuse_remote_path(const std::string& path);

}  // namespace tessera
