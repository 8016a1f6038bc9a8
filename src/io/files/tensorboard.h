// TensorBoard event files: TFRecord frames around Event messages, both encoded here by hand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "core/progress.h"
#include "io/files/file.h"

namespace tessera {

class TensorBoardWriter {
 public:
  // Starts a new file events.out.tfevents.SECONDS.HOST.PROCESS.COUNT in an existing folder. `first_step` is
  // the first step to be written; TensorBoard then hides later steps in older files of the folder.
  explicit TensorBoardWriter(const std::string& directory, int64_t first_step = 0,
                             std::function<double()> now = wall_seconds);

  const std::string& path() const { return path_; }

  void scalar(const std::string& tag, int64_t step, double value);
  // Writes several scalars as one event.
  void scalars(int64_t step, std::span<const std::pair<std::string, double>> values);
  // `png` is a complete PNG file.
  void image(const std::string& tag, int64_t step, std::span<const std::byte> png);
  // Markdown.
  void text(const std::string& tag, int64_t step, std::string_view markdown);
  // Each call above passes its event to the system; this one also waits for the disk.
  void sync() { file_.sync(); }

 private:
  void write_event(int64_t step, std::string_view fields);

  std::function<double()> now_;
  std::string path_;
  AppendFile file_;
};

// CRC-32C (Castagnoli).
uint32_t crc32c(std::span<const std::byte> bytes);

}  // namespace tessera
