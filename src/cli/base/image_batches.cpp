#include "cli/base/image_batches.h"

#include <algorithm>
#include <atomic>
#include <iostream>

#include "core/error.h"
#include "data/base/source_kinds.h"
#include "io/files/file.h"

namespace tessera::cli {

GivenImages::GivenImages(const std::vector<std::string>& words) : files_(words) {
  const auto& paths = files_.paths();
  const auto times = std::count(paths.begin(), paths.end(), data::kStandardInput);
  if (times > 1) fail_usage("'-' stands ", times, " times among the images: standard input can be read once");
  if (times == 1)
    piped_ = std::distance(paths.begin(), std::find(paths.begin(), paths.end(), data::kStandardInput));
}

std::vector<std::string> GivenImages::paths() const {
  std::vector<std::string> paths = files_.paths();
  std::erase(paths, data::kStandardInput);
  return paths;
}

data::RawSample GivenImages::read(int64_t index) const {
  if (index != piped_) return files_.read(index);
  return {piped_name_, read_stream(std::cin, "standard input", data::kMaxPictureBytes)};
}

ImageBatches::ImageBatches(const data::Source& source, const data::Transform& transform, int64_t batch,
                           int workers)
    : source_(source), transform_(transform), batch_(batch), workers_(workers) {
  begin(0);
}

ImageBatches::~ImageBatches() {
  if (coming_.valid()) coming_.wait();
}

void ImageBatches::begin(int64_t first) {
  if (first < source_.size())
    coming_ = std::async(std::launch::async, [this, first] { return decode(first); });
}

std::optional<ImageBatch> ImageBatches::next() {
  if (!coming_.valid()) return std::nullopt;
  ImageBatch batch = coming_.get();
  begin(batch.first + batch_);
  return batch;
}

// As compute threads of their own the workers would be a second OpenMP pool, and two pools on the same cores
// wait for each other.
ImageBatch ImageBatches::decode(int64_t first) const {
  const int64_t count = std::min(batch_, source_.size() - first);
  const data::Field& image = transform_.fields().at(0);
  const int64_t stride = image.numel();
  ImageBatch out{first, torch::empty({count, image.shape.at(0), image.shape.at(1), image.shape.at(2)}),
                 std::vector<std::string>(static_cast<size_t>(count)),
                 std::vector<std::string>(static_cast<size_t>(count))};
  float* pixels = out.images.data_ptr<float>();
  std::atomic<int64_t> next = 0;
  const auto work = [&] {
    for (int64_t k = next++; k < count; k = next++) {
      float* row = pixels + k * stride;
      const auto i = static_cast<size_t>(k);
      try {
        RandomStream unused(0, "test");  // a test transform draws nothing
        const data::Slot slot{reinterpret_cast<std::byte*>(row), nullptr};
        const data::RawSample sample = source_.read(first + k);
        transform_.apply(sample, unused, {&slot, 1});
        out.names[i] = sample.name;
      } catch (const Error& error) {
        std::fill_n(row, stride, 0.0f);
        out.errors[i] = error.what();
      }
    }
  };
  std::vector<std::future<void>> others;
  for (int i = 1; i < workers_; ++i) others.push_back(std::async(std::launch::async, work));
  work();
  for (std::future<void>& other : others) other.get();
  return out;
}

}  // namespace tessera::cli
