// Paths that name something on the network: nothing is fetched, and the line says how to fetch it first.
#pragma once

#include <string>

namespace tessera {

// A usage error for https://…, hf-hub:… and their kin; any other path is left alone.
void refuse_remote_path(const std::string& path);

}  // namespace tessera
