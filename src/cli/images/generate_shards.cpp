#include "cli/images/generate_output.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "cli/base/common.h"
#include "core/error.h"
#include "core/text.h"
#include "io/files/file.h"
#include "io/files/tar.h"
#include "io/images/image.h"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;

std::string padded(int64_t number, size_t digits) {
  const std::string text = std::to_string(number);
  return std::string(text.size() < digits ? digits - text.size() : 0, '0') + text;
}

class ShardOutput final : public GenerateOutput {
 public:
  ShardOutput(std::string path, const std::vector<AskedImage>& asked, std::string settings,
              ShardLayout shards, bool resume)
      : path_(std::move(path)),
        settings_(std::move(settings)),
        shards_(std::move(shards)),
        count_(std::ssize(asked)),
        labelled_(std::all_of(asked.begin(), asked.end(),
                              [&](const AskedImage& one) { return one.label < shards_.classes; })) {
    if (fs::exists(path_) && !fs::is_directory(path_))
      fail_usage("'", path_, "' is a file, must be a folder");
    if (!resume && fs::is_directory(path_) && !fs::is_empty(path_))
      fail_usage("'", path_, "' holds files already: --resume goes on, or name another folder");
  }

  int64_t together() const override { return shards_.images; }

  bool has(const AskedImage& asked) override {
    const int64_t shard = asked.index / shards_.images;
    const auto [at, added] = whole_.try_emplace(shard, false);
    if (added) at->second = is_whole(shard, asked);
    return at->second;
  }

  void add(const AskedImage& asked, const DrawnImage& drawn) override {
    const int64_t place = asked.index % shards_.images;
    if (place == 0) begin(asked.index / shards_.images);
    check(writer_ != nullptr, "image ", asked.index, " is not the first of its shard");
    const std::string key = padded(asked.index, 9), name = key + ".png";
    writer_->add(
        name, with_png_text(encode_image(drawn.picture, name), kImageTextKey, image_text(settings_, asked)));
    if (labelled_) writer_->add(key + ".cls", std::string_view(std::to_string(asked.label)));
    if (place + 1 < shards_.images && asked.index + 1 < count_) return;
    writer_->commit();
    writer_.reset();
  }

  void finish() override {}

 private:
  std::string name_of(int64_t shard) const { return path_ + "/samples-" + padded(shard, 5) + ".tar"; }

  void begin(int64_t shard) {
    fs::create_directories(path_);  // if no image could be generated, leave nothing
    const std::string classes = path_ + "/classes.txt";
    if (labelled_ && !shards_.class_names.empty() && !file_exists(classes))
      write_text_atomic(classes, join(shards_.class_names, "\n") + "\n");
    writer_ = std::make_unique<TarWriter>(name_of(shard));
  }

  // True if the shard exists with these settings; `first` is its first image.
  bool is_whole(int64_t shard, const AskedImage& first) const {
    const std::string name = name_of(shard);
    if (!file_exists(name)) return false;
    const TarArchive archive(name);
    const std::string image = padded(first.index, 9) + ".png";
    const auto images = std::count_if(archive.members().begin(), archive.members().end(),
                                      [](const TarMember& member) { return member.name.ends_with(".png"); });
    const bool same = !archive.members().empty() && archive.members().front().name == image &&
                      images == std::min(shards_.images, count_ - first.index) &&
                      png_text(archive.bytes(0), kImageTextKey) == image_text(settings_, first);
    if (!same) fail_usage("'", name, "' was drawn with other settings: --resume goes on with the same alone");
    return true;
  }

  std::string path_, settings_;
  ShardLayout shards_;
  int64_t count_;
  bool labelled_;
  std::map<int64_t, bool> whole_;  // shards that an earlier run completed
  std::unique_ptr<TarWriter> writer_;
};

}  // namespace

void check_shards(const ShardLayout& shards, const std::string& path, int64_t batch) {
  if (shards.images == 0) return;
  if (!fs::path(path).extension().empty())
    fail_usage("--shard-size goes with a folder, '", path, "' is one file");
  if (shards.images % batch != 0)
    fail_usage("--shard-size ", shards.images, ", must be whole batches of ", batch, ", such as ",
               (shards.images / batch + 1) * batch);
}

std::unique_ptr<GenerateOutput> open_shard_output(const std::string& path,
                                                  const std::vector<AskedImage>& asked,
                                                  const std::string& settings, const ShardLayout& shards,
                                                  bool resume) {
  return std::make_unique<ShardOutput>(path, asked, settings, shards, resume);
}

}  // namespace tessera::cli
