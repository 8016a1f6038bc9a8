// Checkpoints that survive anything: a directory a step, valid only once its manifest is in place.
//
//   checkpoints/step-000123/weights.safetensors  ema.safetensors  optimiser.safetensors  manifest.json
//   checkpoints/latest -> step-000123
//
// Where much of the model is frozen, that stands in frozen.safetensors, of which a run writes two copies: each further
// checkpoint has a hard link to that of the last but one, so that damage to one copy leaves every other checkpoint. A run
// that keeps one checkpoint (train.keep_last = 1) goes on with one copy.
// weights.safetensors has the rest, and an index beside, weights.safetensors.index.json, names both.
//
// Writing: everything goes into a directory beside ("step-000123.writing-PID"), each file flushed, fsynced
// and checksummed; the manifest is renamed in last, the directory fsynced and renamed to its name, `latest`
// replaced by rename. Only then are older ones removed. Reading verifies every size and checksum, that of the
// manifest's own text first, and falls back to the newest valid one. Tensors are stored whole, so that any
// number of processes can read them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/value.h"
#include "io/weights/safetensors.h"
#include "runs/manifest.h"
#include "weights/tensors.h"

namespace tessera::train {

// The files of a checkpoint.
inline constexpr const char* kWeightsFile = "weights.safetensors";
inline constexpr const char* kEmaFile = "ema.safetensors";  // where there is a moving average
inline constexpr const char* kOptimiserFile = "optimiser.safetensors";
inline constexpr const char* kFrozenFile = "frozen.safetensors";  // where there is any
inline constexpr const char* kIndexEnding = ".index.json";        // behind the name of a file that shares it

struct CheckpointFile {
  std::string name;  // "weights.safetensors"
  NamedTensors tensors;
  Metadata metadata;
  // What belongs to it and is the same in all checkpoints; all files of a checkpoint have the same.
  NamedTensors frozen = {};
};

struct StoredCheckpoint {
  std::string directory;
  int64_t step = 0;
  Value state;  // as given to save()
  std::vector<std::string> files;
  std::string path(const std::string& file) const { return directory + "/" + file; }
  bool holds(const std::string& file) const;  // it is listed, and was verified
  // A file of weights with what is frozen of them: its index where there is one.
  std::string weights_path(const std::string& file) const;
  std::optional<ManifestFile> frozen = {};  // as the manifest lists it
};

class CheckpointStore {
 public:
  // Nothing is made or changed until prepare() or save().
  explicit CheckpointStore(std::string directory);

  // Makes the directory and removes what writers that were killed left in it.
  void prepare();

  // Writes and commits. A valid checkpoint of the same step is replaced only by the whole new one.
  // Returns the bytes written.
  uint64_t save(int64_t step, const std::vector<CheckpointFile>& files, const Value& state);

  // The frozen weights of this checkpoint are those of the ones to come too, and so is the other copy, if an older
  // checkpoint has it whole.
  void share_frozen(const StoredCheckpoint& stored);

  // Lets `latest` point to this step. save() does so; a writer may have been killed just before.
  void point_latest(int64_t step) const;

  // Steps of all committed directories, ascending, valid or not. What is no directory is passed over.
  std::vector<int64_t> steps() const;

  // The newest valid one that `accept`, where it is given, does not refuse with an Error. `notes` gets a line
  // for each newer one that is not usable, with the reason.
  using Accept = std::function<void(const StoredCheckpoint&)>;
  std::optional<StoredCheckpoint> newest(std::vector<std::string>& notes, const Accept& accept = {}) const;

  // After a save of `newest_step`: removes all but it, the `keep_last` - 1 before it and `best_step` (-1:
  // none).
  void retain(int64_t newest_step, int64_t keep_last, int64_t best_step);

  std::string directory_of(int64_t step) const;
  uint64_t bytes() const;  // of all that lies in the directory, a file with several names once

 private:
  struct Frozen {
    std::string path;
    ManifestFile file;
  };
  // Puts them into a directory; the bytes that were written.
  uint64_t put_frozen(const std::string& directory, const NamedTensors& tensors, Manifest& manifest);

  std::string directory_;
  std::vector<Frozen> frozen_;  // of the last two checkpoints, the older one first
};

// Reads one checkpoint directory, verifying sizes and checksums; an error names what is wrong.
StoredCheckpoint read_checkpoint(const std::string& directory);

}  // namespace tessera::train
