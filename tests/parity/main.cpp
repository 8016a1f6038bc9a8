// tessera_parity [--list] DIR [TEXT]: checks every golden case under DIR (or those with TEXT in their names)
// against this build. --list prints the handler of each instead.
#include <filesystem>
#include <functional>
#include <iostream>
#include <set>

#include "core/error.h"
#include "tests/parity/case.h"

namespace tessera::parity {
namespace {

namespace fs = std::filesystem;

// Returns null if no handler takes the golden.
const HandlerRow* handler_of(const Golden& golden) {
  return handlers().find(golden.folder + "/" + golden.name, golden.meta.value("handler", ""));
}

CaseResult run_case(const std::string& root, const std::string& folder, const std::string& name) {
  try {
    const Golden golden = read_golden(root, folder, name);
    const HandlerRow* handler = handler_of(golden);
    return handler ? handler->check(golden) : CaseResult::skip("no handler takes it");
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

void for_each_case(const std::string& root, const std::string& filter,
                   const std::function<void(const std::string& folder, const std::string& name)>& visit) {
  for (const char* folder : {"models", "training", "components"})
    for (const std::string& name : cases_in(fs::path(root) / folder))
      if (name.find(filter) != std::string::npos) visit(folder, name);
}

int list(const std::string& root, const std::string& filter) {
  for_each_case(root, filter, [&](const std::string& folder, const std::string& name) {
    const HandlerRow* handler = handler_of(read_golden(root, folder, name));
    std::cout << folder << "/" << name << " " << (handler ? handler->name : "none") << "\n";
  });
  return 0;
}

int run(const std::string& root, const std::string& filter) {
  int64_t counts[3] = {};
  static constexpr const char* words[] = {"PASS", "FAIL", "SKIP"};
  for_each_case(root, filter, [&](const std::string& folder, const std::string& name) {
    const CaseResult result = run_case(root, folder, name);
    const auto outcome = static_cast<size_t>(result.outcome);
    ++counts[outcome];
    std::cout << words[outcome] << " " << folder << "/" << name << " — " << result.detail << std::endl;
  });
  std::cout << counts[0] << " passed, " << counts[1] << " failed, " << counts[2] << " skipped" << std::endl;
  if (counts[0] + counts[1] + counts[2] == 0) std::cerr << root << ": no golden case here\n";
  return counts[1] > 0 || counts[0] == 0 ? 1 : 0;
}

}  // namespace
}  // namespace tessera::parity

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  const size_t first = !words.empty() && words[0] == "--list" ? 1 : 0;
  if (words.size() < first + 1 || words.size() > first + 2) {
    std::cerr << "usage: tessera_parity [--list] DIR [TEXT]   DIR holds models/, training/, components/\n";
    return 2;
  }
  const std::string filter = words.size() == first + 2 ? words[first + 1] : "";
  return first ? tessera::parity::list(words[first], filter) : tessera::parity::run(words[first], filter);
}
