#include "cli/measure/fid_checkpoints.h"

#include <algorithm>
#include <filesystem>

#include "core/control_characters.h"
#include "core/error.h"
#include "core/text.h"
#include "data/sources/latents.h"
#include "io/files/file.h"
#include "io/files/zip.h"
#include "runs/run_directory.h"

namespace tessera::cli {
namespace {

// The first images of a source.
class FirstImages final : public data::Source {
 public:
  FirstImages(std::unique_ptr<data::Source> inner, int64_t count)
      : inner_(std::move(inner)), size_(count > 0 ? std::min(count, inner_->size()) : inner_->size()) {}
  int64_t size() const override { return size_; }
  data::RawSample read(int64_t index) const override { return inner_->read(index); }
  uint64_t fingerprint() const override { return inner_->fingerprint(); }
  std::string describe() const override {
    return size_ < inner_->size() ? text("the first ", size_, " of ", inner_->describe())
                                  : inner_->describe();
  }

 private:
  std::unique_ptr<data::Source> inner_;
  int64_t size_;
};

// A run's folders of weights and checkpoints would look like classes without images.
void refuse_run(const std::string& path) {
  if (std::filesystem::is_directory(path) && train::RunDirectory(path).holds_run())
    fail_usage("'", path,
               "' is a run, must be images: with --checkpoints those that its checkpoints draw are ",
               "measured, or draw some first by `tessera generate --weights ", shell_quoted(path), "`");
}

}  // namespace

bool holds_statistics(const std::string& path) {
  if (!path.ends_with(".npz") || !file_exists(path)) return false;
  return NpzFile(path).holds("mu");
}

bool holds_images(const std::string& path) { return NpzFile(path).holds("arr_0"); }

std::unique_ptr<data::Source> open_measured_images(const std::string& path, const std::string& split,
                                                   int64_t count) {
  refuse_run(path);
  data::SourceConfig config{.path = path};
  if (split == "all") config.val_share = 0;
  auto source =
      data::open_source(config, split == "validation" ? data::Split::validation : data::Split::train);
  if (data::as_latents(source.get())) fail_usage("'", path, "' holds latents: only images are measured");
  return std::make_unique<FirstImages>(std::move(source), count);
}

}  // namespace tessera::cli
