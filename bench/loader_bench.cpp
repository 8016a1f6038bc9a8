// The loader on a folder of images, controlled from outside so that its passes alternate with another
// loader's.
//
//   loader_bench prepare TILES FOLDER COUNT   makes the images
//   loader_bench serve FOLDER [DECODE]        runs one pass per line on stdin, answers with a line of JSON
#include <cstdio>
#include <exception>
#include <iostream>
#include <string>

#include "core/error.h"
#include "core/text.h"
#include "data/loading/loader_timing.h"

namespace {

using namespace tessera;

int run(const std::vector<std::string>& arguments) {
  const std::string command = arguments.empty() ? "" : arguments[0];
  if (command == "prepare" && arguments.size() == 4) {
    const auto count = parse_int(arguments[3]);
    if (!count || *count < 1) fail_usage("COUNT is '", arguments[3], "', must be a positive number");
    data::make_bench_pictures(arguments[1], arguments[2], *count);
    return 0;
  }
  if (command == "serve" && (arguments.size() == 2 || arguments.size() == 3)) {
    data::LoaderBenchConfig config;
    if (arguments.size() == 3) config.decode = arguments[2];
    for (std::string line; std::getline(std::cin, line); ++config.seed) {
      const data::LoaderPass pass = data::time_loader(arguments[1], config);
      std::printf("{\"images\": %lld, \"seconds\": %.6f, \"cpu_seconds\": %.6f, \"checksum\": %.6f}\n",
                  static_cast<long long>(pass.images), pass.seconds, pass.cpu_seconds, pass.checksum);
      std::fflush(stdout);
    }
    return 0;
  }
  fail_usage("loader_bench prepare TILES FOLDER COUNT | serve FOLDER [DECODE]");
}

}  // namespace

int main(int count, char** values) {
  try {
    return run({values + 1, values + count});
  } catch (const Error& error) {
    std::fprintf(stderr, "loader_bench: %s\n", error.what());
    return error.kind == ErrorKind::usage ? 2 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "loader_bench: %s\n", error.what());
    return 1;
  }
}
