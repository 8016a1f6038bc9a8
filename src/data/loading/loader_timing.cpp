#include "data/loading/loader_timing.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <vector>

#include "core/error.h"
#include "data/base/source.h"
#include "data/loading/loader.h"
#include "data/transforms/transform.h"
#include "io/files/file.h"
#include "io/images/image.h"

namespace tessera::data {

namespace {

namespace fs = std::filesystem;
constexpr int kWidth = 500, kHeight = 375, kAcross = 3, kDown = 2, kQuality = 90;

std::vector<std::string> jpegs_below(const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error))
    if (entry->path().extension() == ".jpg") paths.push_back(entry->path().string());
  check(!error, folder, " cannot be listed: ", error.message());
  std::sort(paths.begin(), paths.end());
  return paths;
}

void paste(const Image& tile, int left, int top, Image& onto) {
  const int width = std::min(tile.width, onto.width - left),
            height = std::min(tile.height, onto.height - top);
  for (int y = 0; y < height && width > 0; ++y)
    std::memcpy(onto.row(top + y) + 3 * left, tile.row(y), 3 * static_cast<size_t>(width));
}

double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

}  // namespace

void make_bench_pictures(const std::string& tiles, const std::string& folder, int64_t count) {
  const std::vector<std::string> paths = jpegs_below(tiles);
  check(!paths.empty(), tiles, " holds no .jpg to tile images from");
  fs::create_directories(folder + "/a");
  fs::create_directories(folder + "/b");
  size_t next = 0;
  for (int64_t i = 0; i < count; ++i) {
    const std::string path = text(folder, i % 2 ? "/b/" : "/a/", i, ".jpg");
    if (fs::exists(path)) {
      next += kAcross * kDown;
      continue;
    }
    Image picture(kWidth, kHeight);
    for (int row = 0; row < kDown; ++row)
      for (int column = 0; column < kAcross; ++column) {
        const std::string& name = paths[next++ % paths.size()];
        const Image tile = decode_image(read_file(name), name);
        paste(tile, column * tile.width, row * tile.height, picture);
      }
    write_file_atomic(path, encode_jpeg(picture, kQuality));
  }
}

LoaderPass time_loader(const std::string& folder, const LoaderBenchConfig& config) {
  SourceConfig source_config;
  source_config.path = folder;
  source_config.val_share = 0;
  const auto source = open_source(source_config, Split::train);
  Preprocess preprocess;
  preprocess.size = config.size;
  AugmentConfig augment;
  augment.decode = config.decode;
  LoaderConfig loader_config;
  loader_config.batch_size = config.batch;
  loader_config.threads = config.threads;
  loader_config.queue = 2;
  loader_config.shuffle = false;  // ends after one pass
  loader_config.drop_last = false;
  loader_config.on_bad_image = OnBadImage::fail;
  loader_config.seed = config.seed;

  LoaderPass pass;
  const double cpu_before = cpu_seconds();
  const auto before = std::chrono::steady_clock::now();
  Loader loader(*source, make_train_transform(preprocess, augment), loader_config);
  double sum = 0, values = 0;
  while (auto batch = loader.next()) {
    pass.images += batch->size;
    // Reads one value of each row, so that no work can be optimised away.
    const auto pixels = batch->values<float>("image");
    for (size_t i = 0; i < pixels.size(); i += static_cast<size_t>(config.size), ++values) sum += pixels[i];
  }
  pass.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - before).count();
  pass.cpu_seconds = cpu_seconds() - cpu_before;
  pass.checksum = values > 0 ? sum / values : 0;
  check(pass.images > 0, folder, " holds no images");
  return pass;
}

}  // namespace tessera::data
