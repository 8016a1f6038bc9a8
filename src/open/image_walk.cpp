#include "open/image_walk.h"

#include <algorithm>
#include <atomic>
#include <future>

#include "core/error.h"
#include "core/progress.h"
#include "open/device.h"

namespace tessera::train {
namespace {

// Writes one image of a test transform, which draws nothing.
void prepare(const data::Transform& transform, const data::RawSample& sample, float* row) {
  RandomStream unused(0, "test");
  const data::Slot slot{reinterpret_cast<std::byte*>(row), nullptr};
  transform.apply(sample, unused, {&slot, 1});
}

torch::Tensor empty_images(const data::Transform& transform, int64_t count) {
  const data::Field& image = transform.fields().at(0);
  return torch::empty({count, image.shape.at(0), image.shape.at(1), image.shape.at(2)});
}

// Workers must not use OpenMP: a second pool on the same cores would stall both.
WalkedBatch decode(const data::Source& source, const data::Transform& transform, const ImageWalk& walk,
                   int64_t first) {
  const int64_t count = std::min(walk.batch, source.size() - first);
  const int64_t stride = transform.fields().at(0).numel();
  WalkedBatch out{first, empty_images(transform, count), std::vector<std::string>(static_cast<size_t>(count)),
                  std::vector<std::string>(static_cast<size_t>(count))};
  float* pixels = out.images.data_ptr<float>();
  std::atomic<int64_t> next = 0;
  const auto work = [&] {
    for (int64_t k = next++; k < count; k = next++) {
      float* row = pixels + k * stride;
      const auto i = static_cast<size_t>(k);
      try {
        const data::RawSample sample = source.read(first + k);
        prepare(transform, sample, row);
        out.names[i] = sample.name;
      } catch (const Error& error) {
        std::fill_n(row, stride, 0.0f);
        out.errors[i] = error.what();
      }
    }
  };
  std::vector<std::future<void>> others;
  for (int i = 1; i < walk.workers; ++i) others.push_back(std::async(std::launch::async, work));
  work();
  for (std::future<void>& other : others) other.get();
  return out;
}

void check_interrupt(const ImageWalk& walk) {
  if (interrupted()) throw Error(ErrorKind::interrupted, walk.interruption);
}

}  // namespace

torch::Tensor prepared_images(const data::Transform& transform, int64_t count,
                              const std::function<data::RawSample(int64_t index)>& sample) {
  const torch::Tensor images = empty_images(transform, count);
  for (int64_t i = 0; i < count; ++i)
    prepare(transform, sample(i), images.data_ptr<float>() + i * transform.fields().at(0).numel());
  return images;
}

int use_threads_for_walk(int64_t threads) {
  const int workers = std::max(1, use_threads(threads) / 8);  // decoding takes a tenth of the work
  use_threads_beside(workers, threads);
  return workers;
}

int64_t for_each_batch(const data::Source& source, const data::Transform& transform, const ImageWalk& walk,
                       const std::function<void(const WalkedBatch& batch)>& see) {
  const Interruptible stretch;
  const auto begin = [&](int64_t first) {
    return std::async(std::launch::async, [&, first] { return decode(source, transform, walk, first); });
  };
  int64_t broken = 0;
  std::future<WalkedBatch> coming;  // its destructor waits
  if (source.size() > 0) coming = begin(0);
  while (coming.valid()) {
    const WalkedBatch batch = coming.get();
    const int64_t done = batch.first + batch.size();
    if (done < source.size()) coming = begin(done);
    check_interrupt(walk);
    for (const std::string& error : batch.errors) {
      if (error.empty()) continue;
      ++broken;
      if (walk.broken) walk.broken(error);
    }
    see(batch);
    check_interrupt(walk);
    if (walk.progress) walk.progress(done);
  }
  return broken;
}

int64_t for_each_image(const data::Source& source, const DecodeOptions& decode, const ImageWalk& walk,
                       const std::function<void(int64_t index, const Image& image)>& see) {
  const Interruptible stretch;
  int64_t broken = 0;
  for (int64_t i = 0; i < source.size(); ++i) {
    check_interrupt(walk);
    Image image;
    try {
      image = data::decode_sample(source.read(i), decode);
    } catch (const Error& error) {
      ++broken;
      if (walk.broken) walk.broken(error.what());
      continue;
    }
    see(i, image);
    check_interrupt(walk);
    if (walk.progress) walk.progress(i + 1);
  }
  return broken;
}

}  // namespace tessera::train
