#include "kernels/gpu/graphs.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "core/text.h"
#include "kernels/gpu/library.h"

namespace tessera::kernels::gpu {
namespace {

std::atomic<const GraphCalls*> in_use = nullptr;

}  // namespace

std::string graphs_path() {
  return (std::filesystem::path(library_path()).parent_path() / "libtessera_gpu_torch.so").string();
}

std::string load_graphs(const std::string& path) {
  const std::filesystem::path file(path);
  if (!std::filesystem::exists(file))
    return text("no ", file.filename().string(), " in ", file.parent_path().string());
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) return text(path, " does not load: ", dlerror());
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast)
  const auto get =
      reinterpret_cast<decltype(&tessera_gpu_graph_calls)>(dlsym(library, "tessera_gpu_graph_calls"));
  if (!get) return text(path, " is no library of Tessera's graphs: it has no tessera_gpu_graph_calls");
  const GraphCalls* const found = get();
  if (!found || found->version != kGraphVersion)
    return text(path, " is of another version of Tessera (", found ? found->version : 0,
                ", this program needs ", kGraphVersion, "): build both together");
  use_graphs(found);
  return "";
}

bool graphs_wanted() {
  const char* const value = std::getenv("TESSERA_GPU");
  const std::vector<std::string> words = split(value ? value : "", ',');
  return std::find(words.begin(), words.end(), "graphs") != words.end();
}

const GraphCalls* graph_calls() { return in_use; }

void use_graphs(const GraphCalls* calls) { in_use = graphs_wanted() ? calls : nullptr; }

}  // namespace tessera::kernels::gpu
