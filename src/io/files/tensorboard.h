// Event files as TensorBoard reads them: TFRecord frames around Event messages, both written by hand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "core/clock.h"
#include "io/files/file.h"

namespace tessera {

class TensorBoardWriter {
 public:
  // Starts a new file events.out.tfevents.SECONDS.HOST.PROCESS.COUNT in a folder that exists. `first_step` is
  // the first step that will be written: what older files of the folder say about it and later ones is not
  // shown.
  explicit TensorBoardWriter(const std::string& directory, int64_t first_step = 0,
                             std::function<double()> now = wall_seconds);

  const std::string& path() const { return path_; }

  void scalar(const std::string& tag, int64_t step, double value);
  // Several scalars as one event.
  void scalars(int64_t step, std::span<const std::pair<std::string, double>> values);
  // `png` is a whole PNG file.
  void image(const std::string& tag, int64_t step, std::span<const std::byte> png);
  // Markdown.
  void text(const std::string& tag, int64_t step, std::string_view markdown);
  // Every event is with the system when its call returns; this also waits until the disk has them.
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
