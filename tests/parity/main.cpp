// tessera_parity DIR [TEXT]: checks every golden case under DIR (or those whose name holds TEXT) against this
// build.
#include <filesystem>
#include <iostream>
#include <set>

#include "core/error.h"
#include "tests/parity/case.h"

namespace tessera::parity {
namespace {

namespace fs = std::filesystem;

const Entry* entry_for(const Golden& golden) {
  const auto family = golden.meta.find("family");
  for (const Entry& entry : entries()) {
    if (entry.folder != golden.folder || !golden.name.starts_with(entry.prefix)) continue;
    if (!entry.family.empty() && (family == golden.meta.end() || *family != entry.family)) continue;
    return &entry;
  }
  return nullptr;
}

CaseResult run_case(const std::string& root, const std::string& folder, const std::string& name) {
  try {
    const Golden golden = read_golden(root, folder, name);
    const Entry* entry = entry_for(golden);
    if (!entry) return CaseResult::fail("no handler knows this case");
    if (!entry->handler) return CaseResult::skip(entry->reason);
    return entry->handler(golden);
  } catch (const std::exception& error) {
    const std::string message = error.what();
    return CaseResult::fail(message.substr(0, message.find('\n')));
  }
}

// The names of the cases: every .safetensors file, and every .json that describes one (data files have no
// "name").
std::set<std::string> cases_in(const fs::path& folder) {
  std::set<std::string> names;
  if (!fs::is_directory(folder)) return names;
  for (const auto& file : fs::directory_iterator(folder)) {
    const fs::path path = file.path();
    if (path.extension() == ".safetensors") names.insert(path.stem().string());
    if (path.extension() == ".json") {
      try {
        const Golden golden =
            read_golden(folder.parent_path().string(), folder.filename().string(), path.stem().string());
        if (golden.meta.is_object() && golden.meta.contains("name")) names.insert(path.stem().string());
      } catch (const std::exception&) {
        names.insert(path.stem().string());  // fails with its reason when it is run
      }
    }
  }
  return names;
}

int run(const std::string& root, const std::string& filter) {
  int64_t counts[3] = {};
  static constexpr const char* words[] = {"PASS", "FAIL", "SKIP"};
  for (const char* folder : {"models", "training", "components"}) {
    for (const std::string& name : cases_in(fs::path(root) / folder)) {
      if (name.find(filter) == std::string::npos) continue;
      const CaseResult result = run_case(root, folder, name);
      const auto outcome = static_cast<size_t>(result.outcome);
      ++counts[outcome];
      std::cout << words[outcome] << " " << folder << "/" << name << " — " << result.detail << std::endl;
    }
  }
  std::cout << counts[0] << " passed, " << counts[1] << " failed, " << counts[2] << " skipped" << std::endl;
  if (counts[0] + counts[1] + counts[2] == 0) std::cerr << root << ": no golden case here\n";
  return counts[1] > 0 || counts[0] == 0 ? 1 : 0;
}

}  // namespace
}  // namespace tessera::parity

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    std::cerr << "usage: tessera_parity DIR [TEXT]   DIR holds models/, training/, components/\n";
    return 2;
  }
  return tessera::parity::run(argv[1], argc > 2 ? argv[2] : "");
}
