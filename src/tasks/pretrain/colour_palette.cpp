#include "tasks/pretrain/igpt.h"

#include <cstring>
#include <limits>

#include "core/error.h"
#include "core/random.h"
#include "io/files/file.h"
#include "io/files/zip.h"
#include "tasks/base/inputs.h"
#include "tasks/base/validation_pass.h"

namespace tessera::tasks {
namespace {

constexpr int64_t kImages = 1024, kCells = 64;  // images, and cells of each, that k-means reads
constexpr int64_t kRounds = 30;                 // of Lloyd's algorithm
constexpr uint64_t kMostPaletteBytes = uint64_t{1} << 24;

// Returns the row of the palette nearest to a pixel, the first if several tie. Its sums do not depend on the number of
// threads, as those of a matrix product may.
int64_t nearest_row(const float* pixel, const float* palette, int64_t colours) {
  int64_t best = 0;
  float least = std::numeric_limits<float>::infinity();
  for (int64_t k = 0; k < colours; ++k) {
    const float* c = palette + 3 * k;
    const float r = pixel[0] - c[0], g = pixel[1] - c[1], b = pixel[2] - c[2];
    if (const float distance = r * r + g * g + b * b; distance < least) least = distance, best = k;
  }
  return best;
}

}  // namespace

torch::Tensor palette_pixels(const TaskSetup& setup, const models::ReadsColours& reader) {
  data::Loader loader(*setup.train, data::make_eval_transform(setup.preprocess),
                      {.batch_size = std::min<int64_t>(64, setup.train->size()),
                       .shuffle = true,
                       .drop_last = false,
                       .seed = setup.seed});
  RandomStream random(setup.seed, "palette pixels");
  std::vector<torch::Tensor> all;
  for (int64_t seen = 0; seen < kImages;) {
    auto batch = loader.next();
    if (!batch) break;
    const StreamInputs images = to_device(*batch, "palette", torch::kCPU, Precision::fp32);
    const torch::Tensor cells = reader.cells_of(images.at("image")).flatten(1, 2);
    for (int64_t i = 0; i < cells.size(0); ++i) {
      std::vector<int64_t> places;
      for (int64_t cell = 0; cell < kCells; ++cell)
        places.push_back(static_cast<int64_t>(random.below(static_cast<uint64_t>(cells.size(1)))));
      all.push_back(cells[i].index_select(0, torch::tensor(places, torch::kInt64)));
    }
    seen += cells.size(0);
  }
  check(!all.empty(), "task igpt: no training image gives colours");
  return torch::cat(all);
}

torch::Tensor kmeans_palette(const torch::Tensor& given, int64_t colours, uint64_t seed) {
  const torch::Tensor pixels = given.to(torch::kFloat32).contiguous();
  const torch::Tensor distinct = std::get<0>(torch::unique_dim(pixels, 0));
  if (distinct.size(0) < colours)
    fail_usage("task igpt: the training images have ", distinct.size(0), " colours among ", pixels.size(0),
               " pixels, model.colours = ", colours, " must be at most that");
  std::vector<int64_t> first = RandomStream(seed, "palette").permutation(distinct.size(0));
  first.resize(static_cast<size_t>(colours));
  torch::Tensor palette = distinct.index_select(0, torch::tensor(first, torch::kInt64));
  const auto* pixel = pixels.const_data_ptr<float>();
  for (int64_t round = 0; round < kRounds; ++round) {
    const float* centres = palette.const_data_ptr<float>();
    std::vector<double> sums(static_cast<size_t>(4 * colours), 0);  // of three channels, and a count
    for (int64_t i = 0; i < pixels.size(0); ++i) {
      double* sum = &sums[static_cast<size_t>(4 * nearest_row(pixel + 3 * i, centres, colours))];
      for (int64_t channel = 0; channel < 3; ++channel)
        sum[channel] += static_cast<double>(pixel[3 * i + channel]);
      sum[3] += 1;
    }
    auto moved = palette.accessor<float, 2>();
    for (int64_t k = 0; k < colours; ++k)  // a centre without pixels stays
      if (const double* sum = &sums[static_cast<size_t>(4 * k)]; sum[3] > 0)
        for (int64_t channel = 0; channel < 3; ++channel)
          moved[k][channel] = static_cast<float>(sum[channel] / sum[3]);
  }
  return palette;
}

torch::Tensor read_palette(const std::string& path, int64_t colours) {
  const std::string where = text("task.palette '", path, "'");
  const std::vector<std::byte> bytes = read_file(path, kMostPaletteBytes);
  const NpyHeader header = parse_npy_header(bytes, where);
  if (header.shape != std::vector<int64_t>{colours, 3})
    fail_usage(where, " has the shape ", torch::IntArrayRef(header.shape), ", must be [", colours,
               ", 3] (model.colours, 3)");
  const bool wide = header.dtype == DType::f64;
  if (header.fortran_order || (!wide && header.dtype != DType::f32))
    fail_usage(where, " must hold float32 or float64 numbers row by row");
  torch::Tensor palette = torch::empty({colours, 3}, wide ? torch::kFloat64 : torch::kFloat32);
  std::memcpy(palette.data_ptr(), bytes.data() + header.bytes, palette.nbytes());
  palette = palette.to(torch::kFloat32);
  const double largest = palette.abs().max().item<double>();
  if (!(largest <= 1)) fail_usage(where, " holds ", largest, ": colours must be from -1 to 1");
  return palette;
}

}  // namespace tessera::tasks
