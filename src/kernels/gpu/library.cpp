#include "kernels/gpu/library.h"

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <vector>

namespace tessera::kernels::gpu {
namespace {

std::atomic<const Table*> in_use = nullptr;
std::string forced;
bool with_products = false;
constexpr const char *kProducts = "cublaslt", *kGraphs = "graphs";

std::vector<std::string> names_of_forms(const Table& table) {
  std::vector<std::string> names = {"composition"};
  table.visit([&](const char*, const auto& forms) {
    for (const auto& form : forms) names.emplace_back(form.name);
  });
  names.emplace_back(kProducts), names.emplace_back(kGraphs);
  return names;
}

// Throws unless a word of TESSERA_GPU is one of the names, and the only form.
void check_form(const std::string& name, const std::vector<std::string>& names, const std::string& form) {
  if (name.empty() && form.empty()) return;
  if (std::find(names.begin(), names.end(), name) == names.end())
    fail_usage("TESSERA_GPU='", printable(name), "', must be ", join(names, ", "), did_you_mean(name, names));
  if (!form.empty() && name != kProducts && name != kGraphs)
    fail_usage("TESSERA_GPU names two forms, ", form, " and ", name, ", must be one");
}

}  // namespace

std::string library_path() {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  return (program.parent_path() / "libtessera_gpu.so").string();
}

std::string load_library(const std::string& path) {
  const std::filesystem::path file(path);
  if (!std::filesystem::exists(file))
    return text("no ", file.filename().string(), " in ", file.parent_path().string());
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) return text(path, " does not load: ", dlerror());
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast)
  const auto get = reinterpret_cast<decltype(&tessera_gpu_table)>(dlsym(library, "tessera_gpu_table"));
  if (!get) return text(path, " is no library of Tessera's kernels: it has no tessera_gpu_table");
  const Table* found = get();
  if (!found || found->version != kTableVersion || found->layout != kTableLayout)
    return text(path, " is of another version of Tessera (", found ? found->version : 0, ".",
                found ? found->layout : 0, ", this program needs ", kTableVersion, ".", kTableLayout,
                "): build both together");
  use_table(found);
  return "";
}

const Table* table() { return in_use; }
const std::string& forced_form() { return forced; }
bool products_wanted() { return with_products; }

void use_table(const Table* table) {
  const char* value = std::getenv("TESSERA_GPU");
  forced.clear(), with_products = false;
  for (const std::string& name : split(value ? value : "", ',')) {
    if (table) check_form(name, names_of_forms(*table), forced);
    if (name == kProducts)
      with_products = table != nullptr;
    else if (name != kGraphs)
      forced = name;
  }
  in_use = table;
}

bool has_image(const std::string& images, int capability) {
  int last = 0;
  bool only = false;
  for (const std::string& image : split(images, ';')) {
    only = image.ends_with('a');
    last = std::atoi(image.c_str());
    if (only ? last == capability : last / 10 == capability / 10 && last <= capability) return true;
  }
  return !only && last > 0 && last <= capability;
}

int usable_capability(const Table& table, int device) {
  const int capability = table.capability(device);
  return capability >= 0 && has_image(table.images, capability) ? capability : -1;
}

std::string describe_forms(const Table& table, int capability) {
  const std::string forced = forced_form();
  std::string out;
  table.visit([&](const char* operation, const auto& forms) {
    std::string name;
    for (const auto& form : forms) {
      if (!fits(form, capability) || (!forced.empty() && forced != form.name)) continue;
      name += (name.empty() ? "" : "|") + std::string(form.name);
    }
    out += text(out.empty() ? "" : ", ", operation, " ", name.empty() ? "composition" : name);
  });
  return out;
}

}  // namespace tessera::kernels::gpu
