// Batches from a source: a pool of decoding threads behind a bounded queue.
//
// The order of samples depends on (seed, epoch) alone, every augmentation on (seed, epoch, sample) alone;
// threads only change when a batch is ready, never what is in it. What a batch holds is what the transform's
// fields say; its memory is used again once nobody holds it.
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
  int64_t epoch = 0, batch = 0;  // the next batch to be handed out
};

enum class OnBadImage { replace, fail };

struct BadImages {
  int64_t count = 0;
  std::vector<std::string> lines;  // the first 10,000, "name: what is wrong"
};

struct LoaderConfig {
  int64_t batch_size = 32;  // of all ranks together; each takes an equal share, in order
  int64_t threads = 1;      // decoding threads
  int64_t queue = 4;        // batches ahead, at most; one a thread if that is more
  bool shuffle = true;
  bool drop_last = true;  // training: whole batches only
  bool balanced = false;  // draw classes equally often, with replacement
  // Every sample so often in a batch, augmented anew each time (Hoffer et al. 2020), the views apart from one
  // another, so that mixup's neighbours are different samples. An epoch stays as long as the set, so that it
  // holds a part of it.
  int64_t repeats = 1;
  bool pairs = false;  // shares of ranks keep samples 2i and 2i+1 together (mixup)
  OnBadImage on_bad_image = OnBadImage::replace;
  int64_t max_bad = 100;  // distinct bad samples before the run is failed
  uint64_t seed = 0;
  int64_t rank = 0, world_size = 1;  // this process' share of every (global) batch
};

// Usage errors, and pictures that make no batch: what the constructor refuses, without opening anything.
void check_loader(const Source& source, const LoaderConfig& config);

class Loader {
 public:
  // `source` must outlive the loader. `transform` is shared by the threads and has no state.
  Loader(const Source& source, std::shared_ptr<const Transform> transform, const LoaderConfig& config,
         LoaderPosition start = {});
  ~Loader();

  int64_t batches_per_epoch() const;
  // The next batch; training goes on into the next epoch for ever, evaluation (shuffle = false) ends after
  // one.
  std::optional<Batch> next();
  // Where a new loader must start to hand out what this one would hand out next.
  LoaderPosition position() const;
  BadImages bad_images() const;
  double seconds_waited() const;  // time that next() has spent waiting so far

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tessera::data
