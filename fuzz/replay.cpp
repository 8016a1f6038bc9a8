// Runs a fuzz target over the files of the given folders, for compilers without libFuzzer and for the
// ordinary tests.
#include <filesystem>
#include <iostream>

#include "fuzz/fuzz.h"
#include "io/files/file.h"

int main(int count, char** arguments) {
  int files = 0;
  for (int i = 1; i < count; ++i)
    for (const auto& entry : std::filesystem::directory_iterator(arguments[i])) {
      std::cerr << entry.path().string() << "\n";  // the last printed file is the one that failed
      const auto bytes = tessera::read_file(entry.path().string());
      LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
      ++files;
    }
  std::cout << files << " files\n";
  return files > 0 ? 0 : 1;
}
