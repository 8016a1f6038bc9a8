// Crash-safe checkpoints: one directory per step, valid only once its manifest is in place.
//
//   checkpoints/step-000123/weights.safetensors  ema.safetensors  optimiser.safetensors  manifest.json
//   checkpoints/latest -> step-000123
//
// If much of the model is frozen, frozen.safetensors contains that part. A run writes two copies of it. Each
// later checkpoint hard-links the copy of the one before the previous, so that damage to one copy affects
// only every second checkpoint. A run that keeps one checkpoint (train.keep_last = 1) continues with one
// copy. weights.safetensors has the rest, and an index, weights.safetensors.index.json, lists both files.
//
// If processes divide the optimiser's state and the average, each writes its tensors of them into a file of its own,
// optimiser-00002-of-00004.safetensors, and an index lists them all.
//
// Writing: all files go into a temporary directory ("step-000123.writing-PID"), each flushed, fsynced and
// checksummed. The manifest is renamed into it last. The directory is fsynced and renamed, then a rename
// replaces `latest`. Only then are older ones removed. Reading verifies every size and checksum, that of the
// manifest's own text first, and falls back to the newest valid checkpoint. Tensors are stored whole, so any
// number of processes can read them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/value.h"
#include "io/weights/safetensors.h"
#include "runs/manifest.h"
#include "weights/load_tensors.h"

namespace tessera::train {

// The files of a checkpoint.
inline constexpr const char* kWeightsFile = "weights.safetensors";
inline constexpr const char* kEmaFile = "ema.safetensors";  // if a moving average exists
inline constexpr const char* kOptimiserFile = "optimiser.safetensors";
inline constexpr const char* kFrozenFile = "frozen.safetensors";  // if any part is frozen
inline constexpr const char* kIndexEnding = ".index.json";        // appended to a weights file's name

struct CheckpointFile {
  std::string name;  // "weights.safetensors"
  NamedTensors tensors;
  Metadata metadata;
  // Frozen tensors that belong to the file, equal in all checkpoints and for all files of a checkpoint.
  NamedTensors frozen = {};
  bool divided = false;  // each writer has other tensors of it
  bool joined = false;   // all writers call `write`, and the leader's makes the file
  // Writes `tensors`, which then need no memory, and returns the file's XXH3-64. Empty: they are written as they are.
  std::function<std::string(const std::string& path)> write = {};
};

// The processes that write a checkpoint together.
struct Writers {
  bool leader = true;       // writes what is not divided, and commits
  int part = 0, parts = 1;  // this process's part of divided files; -1: none
  // Returns the bytes of all processes, the leader's first. Not called if there is one writer alone.
  std::function<std::vector<std::string>(const std::string& bytes)> gather = {};
};

// The files that processes wrote, and the places of tensors for the indices.
struct WrittenFiles {
  std::vector<ManifestFile> files;
  std::map<std::string, std::map<std::string, std::string>> places;  // by indexed file: each tensor's file
  uint64_t bytes = 0;                                                // without hard links
};

struct StoredCheckpoint {
  std::string directory;
  int64_t step = 0;
  Value state;  // as passed to save()
  std::vector<std::string> files;
  std::string path(const std::string& file) const { return directory + "/" + file; }
  // True if a file is listed and was verified, by itself or by its index.
  bool holds(const std::string& file) const;
  // Returns the path to open for a weights file with its frozen part: its index if it has one.
  std::string weights_path(const std::string& file) const;
  std::optional<ManifestFile> frozen = {};  // as the manifest lists it
};

class CheckpointStore {
 public:
  // Changes nothing on disk before prepare() or save().
  explicit CheckpointStore(std::string directory);

  // Makes the directory and removes leftovers of killed writers.
  void prepare();

  // Writes and commits. A valid checkpoint of the same step is replaced only by a complete new one. Several writers all
  // call it. If one of them fails, all throw its error, and nothing is committed. Returns the bytes that all wrote.
  uint64_t save(int64_t step, const std::vector<CheckpointFile>& files, const Value& state,
                const Writers& writers = {});

  // Reuses this checkpoint's frozen weights in later ones, and a second copy if an older checkpoint has an
  // intact one.
  void share_frozen(const StoredCheckpoint& stored);
  // True if later checkpoints link to frozen weights and read none.
  bool keeps_frozen() const { return frozen_.size() > 1; }

  // Points `latest` at this step. save() does so too, but a writer may have been killed just before.
  void point_latest(int64_t step) const;

  // Returns the steps of all committed directories, ascending, valid or not. Ignores other files.
  std::vector<int64_t> steps() const;

  // Returns the newest valid checkpoint, except those for which `accept` throws Error. `notes` gets a line
  // with the reason for each newer checkpoint that is unusable.
  using Accept = std::function<void(const StoredCheckpoint&)>;
  std::optional<StoredCheckpoint> newest(std::vector<std::string>& notes, const Accept& accept = {}) const;

  // After a save of `newest_step`: removes all except it, the `keep_last` - 1 before it, and `best_step` (-1:
  // none).
  void retain(int64_t newest_step, int64_t keep_last, int64_t best_step);

  std::string directory_of(int64_t step) const;
  uint64_t bytes() const;  // total of the directory's files; hard links count once

 private:
  struct Frozen {
    std::string path;
    ManifestFile file;
  };
  // Puts the frozen file into a directory.
  void put_frozen(const std::string& directory, const NamedTensors& tensors, WrittenFiles& written);
  WrittenFiles write_files(const std::string& directory, const std::vector<CheckpointFile>& files,
                           const Writers& writers);
  void write_file(const std::string& directory, const CheckpointFile& file, const Writers& writers,
                  WrittenFiles& written);
  void commit(int64_t step, const std::string& directory, const WrittenFiles& all, const Value& state);

  std::string directory_;
  std::vector<Frozen> frozen_;  // the last two checkpoints', older first
};

// Reads one checkpoint directory and verifies sizes and checksums. Throws Error with the cause.
StoredCheckpoint read_checkpoint(const std::string& directory);

}  // namespace tessera::train
