// Batches from a source: a pool of decoding threads with a bounded queue.
//
// The order of samples depends only on (seed, epoch), every augmentation only on (seed, epoch, sample).
// Threads affect when a batch is ready, never its content. The transform's fields define the content. A
// batch's memory is reused after its last owner releases it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "data/base/field.h"
#include "data/base/source.h"
#include "data/transforms/transform.h"

namespace tessera::data {

struct LoaderPosition {
  int64_t epoch = 0, batch = 0;  // the next batch to be returned
};

enum class OnBadImage { replace, fail };

struct BadImages {
  int64_t count = 0;
  std::vector<std::string> lines;  // the first 10,000, "name: problem"
};

struct LoaderConfig {
  int64_t batch_size = 32;  // over all ranks together; each gets an equal share, in order
  int64_t threads = 1;      // decoding threads
  int64_t queue = 4;        // maximum number of prefetched batches; at least one per thread
  bool shuffle = true;
  bool drop_last = true;  // training: only full batches
  bool balanced = false;  // draw classes equally often, with replacement
  // The number of views of every sample in a batch, each with its own augmentation (Hoffer et al. 2020).
  // Views are spread over the batch, so that mixup's neighbours are different samples. The length of an epoch
  // stays that of the set, so it covers only a part of the samples.
  int64_t repeats = 1;
  bool pairs = false;  // shares of ranks keep samples 2i and 2i+1 together (mixup)
  OnBadImage on_bad_image = OnBadImage::replace;
  int64_t max_bad = 100;  // number of distinct bad samples before the run fails
  uint64_t seed = 0;
  int64_t rank = 0, world_size = 1;  // this process' share of every (global) batch
};

// Throws the constructor's errors without opening anything: usage errors, and too few images for a
// batch.
void check_loader(const Source& source, const LoaderConfig& config);

class Loader {
 public:
  // `source` must outlive the loader. `transform` is stateless and shared by the threads.
  Loader(const Source& source, std::shared_ptr<const Transform> transform, const LoaderConfig& config,
         LoaderPosition start = {});
  ~Loader();

  int64_t batches_per_epoch() const;
  // Returns the next batch. Training continues with the next epoch for ever; evaluation (shuffle = false)
  // ends after one.
  std::optional<Batch> next();
  // Returns the position from which a new loader can continue this one.
  LoaderPosition position() const;
  BadImages bad_images() const;
  double seconds_waited() const;  // total time that next() has spent waiting

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera::data
