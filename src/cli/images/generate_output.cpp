#include "cli/images/generate_output.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/base/common.h"
#include "core/error.h"
#include "core/text.h"
#include "io/files/file.h"
#include "io/files/path.h"
#include "io/files/zip.h"
#include "io/images/image.h"
#include "io/weights/array_file.h"
#include "report/grid.h"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostInGrid = 1024;

std::span<const std::byte> bytes_of(const void* data, size_t size) {
  return {static_cast<const std::byte*>(data), size};
}

class GridOutput final : public GenerateOutput {
 public:
  GridOutput(std::string path, std::string settings)
      : path_(std::move(path)), settings_(std::move(settings)) {}
  bool has(const AskedImage&) override { return false; }
  void add(const AskedImage& asked, const DrawnImage& drawn) override {
    side_ = std::max({side_, drawn.picture.width, drawn.picture.height});
    if (!drawn.moments.empty()) columns_ = static_cast<int>(drawn.moments.size()) + 1;
    for (const Image& moment : drawn.moments) cells_.push_back({.picture = moment});
    cells_.push_back({.picture = drawn.picture, .caption = asked.caption});
  }
  void finish() override {
    const Image grid = report::image_grid(cells_, {.columns = columns_, .cell = std::max(side_, 128)});
    std::vector<std::byte> file = encode_image(grid, path_);
    if (lower(fs::path(path_).extension().string()) == ".png")
      file = with_png_text(std::move(file), kImageTextKey, settings_);
    write_file_atomic(path_, file);
  }

 private:
  std::string path_, settings_;
  std::vector<report::Cell> cells_;
  int side_ = 0, columns_ = 0;
};

// 000007.png, …, each written to a temporary file and renamed, with its settings inside.
class FolderOutput final : public GenerateOutput {
 public:
  FolderOutput(std::string path, std::string settings, bool resume)
      : path_(std::move(path)), settings_(std::move(settings)), resume_(resume) {
    if (fs::exists(path_) && !fs::is_directory(path_))
      fail_usage("'", path_, "' is a file, must be a folder");
    if (!resume && fs::is_directory(path_) && !fs::is_empty(path_))
      fail_usage("'", path_, "' holds files already: --resume goes on, or name another folder");
  }
  bool has(const AskedImage& asked) override {
    if (!resume_ || !file_exists(name_of(asked))) return false;
    const std::string found = png_text(read_file(name_of(asked)), kImageTextKey);
    if (found.empty()) return false;  // not whole
    if (found != image_text(settings_, asked))
      fail_usage("'", name_of(asked),
                 "' was drawn with other settings: --resume goes on with the same alone");
    return true;
  }
  std::string left() const override {
    return added_ > 0 ? text("'", path_, "' keeps the ", counted(added_, "image"), " drawn before") : "";
  }
  void add(const AskedImage& asked, const DrawnImage& drawn) override {
    fs::create_directories(path_);  // if no image could be generated, leave nothing
    ++added_;
    write_file_atomic(name_of(asked), with_png_text(encode_image(drawn.picture, name_of(asked)),
                                                    kImageTextKey, image_text(settings_, asked)));
  }
  void finish() override {}

 private:
  std::string name_of(const AskedImage& asked) const {
    std::string number = std::to_string(asked.index);
    return path_ + "/" + std::string(number.size() < 6 ? 6 - number.size() : 0, '0') + number + ".png";
  }
  std::string path_, settings_;
  bool resume_;
  int64_t added_ = 0;
};

// The images that one process has generated so far, in the file OUT.partial or OUT.partial-2-of-4: a line of
// settings, then the pixels of the images, batch by batch.
class PartialImages {
 public:
  PartialImages(const std::string& path, const DrawnPart& part, std::string settings, size_t image_bytes)
      : path_(path + ".partial" + (part.of > 1 ? text("-", part.index + 1, "-of-", part.of) : "")),
        header_(std::move(settings) + "\n"),
        each_(image_bytes) {}

  const std::string& path() const { return path_; }
  bool exists() const { return file_exists(path_); }
  size_t offset(int64_t image) const { return header_.size() + static_cast<size_t>(image) * each_; }
  // Returns the number of complete images in it. Throws a usage error if its settings differ.
  int64_t count() const {
    if (!exists() || fs::file_size(path_) == 0)
      return 0;  // empty: locked, but stopped before the first batch
    std::ifstream file(path_, std::ios::binary);
    std::string first;
    std::getline(file, first);
    if (first + "\n" != header_)
      fail_usage("'", path_, "' was drawn with other settings: --resume goes on with the same alone");
    return static_cast<int64_t>((fs::file_size(path_) - header_.size()) / each_);
  }
  // Appends after its first `images` images, possibly none.
  std::ofstream append_after(int64_t images) const {
    if (images > 0) fs::resize_file(path_, offset(images));
    std::ofstream out(path_, std::ios::binary | (images > 0 ? std::ios::app : std::ios::trunc));
    if (images == 0) out << header_;
    check(out.good(), "'", path_, "' cannot be written");
    return out;
  }

 private:
  std::string path_, header_;
  size_t each_;
};

// arr_0 uint8 [images, height, width, 3] and, if there are classes, arr_1 int64 [images], in the format of
// ADM's evaluation, and the settings as bytes in `settings`. With several processes, the last to end joins
// the parts.
class BatchOutput final : public GenerateOutput {
 public:
  BatchOutput(std::string path, const std::vector<AskedImage>& asked, const std::string& settings,
              const BatchLayout& layout, bool resume)
      : path_(std::move(path)), settings_(settings), asked_(asked), layout_(layout) {
    for (int64_t i = 0; i < layout.part.of; ++i)
      partials_.emplace_back(path_, DrawnPart{i, layout.part.of}, settings, each());
    if (resume && !own().exists() && file_exists(path_))
      check_finished(), finished_ = true;
    else if (resume && own().exists())
      take(), done_ = own().count();
    else if (own().exists())
      fail_usage("'", own().path(), "' is left of a run that did not end: --resume goes on, or remove it");
  }
  std::string left() const override {
    return done_ > 0 ? text("'", own().path(), "' keeps the ", counted(done_, "image"), " drawn before") : "";
  }
  bool has(const AskedImage& asked) override {
    return finished_ || place_in_part(asked.index - asked_.front().index) < done_;
  }
  void add(const AskedImage&, const DrawnImage& drawn) override {
    if (!out_.is_open()) take(), out_ = own().append_after(done_);
    out_.write(reinterpret_cast<const char*>(drawn.picture.pixels.data()),
               static_cast<std::streamsize>(drawn.picture.pixels.size()));
    out_.flush();
    check(out_.good(), "'", own().path(), "' cannot be written");
    ++done_;
  }
  void finish() override {
    if (finished_) return;
    out_.close();
    if (layout_.part.of == 1) return put_together();
    const std::string lock = path_ + ".lock";
    const FileLock one_at_a_time(lock);
    const bool by_another = !own().exists() && file_exists(path_);
    for (int64_t i = 0; i < layout_.part.of && !by_another; ++i)
      if (partials_[static_cast<size_t>(i)].count() < images_of_part(i)) return;
    if (!by_another) put_together();
    fs::remove(lock);
  }

 private:
  // Locks the file of generated images, since only one process may write it.
  void take() {
    if (lock_) return;
    lock_ = FileLock::try_lock(own().path());
    if (!lock_) fail_usage("'", own().path(), "' is being written by another process, must be left to it");
  }
  size_t each() const { return static_cast<size_t>(layout_.width * layout_.height * 3); }
  const PartialImages& own() const { return partials_[static_cast<size_t>(layout_.part.index)]; }
  int64_t part_of(int64_t image) const { return image / layout_.batch % layout_.part.of; }
  int64_t place_in_part(int64_t image) const {
    return image / (layout_.batch * layout_.part.of) * layout_.batch + image % layout_.batch;
  }
  int64_t images_of_part(int64_t part) const {
    int64_t count = 0;
    for (int64_t i = 0; i < std::ssize(asked_); ++i) count += part_of(i) == part;
    return count;
  }

  // Empty without classes.
  std::vector<int64_t> labels() const {
    std::vector<int64_t> labels;
    if (asked_.front().caption.empty()) return labels;
    for (const AskedImage& asked : asked_) labels.push_back(asked.label);
    return labels;
  }
  // Throws a usage error if the existing file is not the output of this run.
  void check_finished() const {
    const NpzFile file(path_);
    const auto holds = [&](const char* name, std::span<const std::byte> bytes) {
      return file.holds(name) && std::ranges::equal(file.read(name).bytes, bytes);
    };
    const std::vector<int64_t> shape = {std::ssize(asked_), layout_.height, layout_.width, 3},
                               wanted = labels();
    if (!file.holds("arr_0") || file.read("arr_0").shape != shape ||
        !holds(kSettings, bytes_of(settings_.data(), settings_.size())) ||
        (!wanted.empty() && !holds("arr_1", bytes_of(wanted.data(), wanted.size() * sizeof(int64_t)))))
      fail_usage("'", path_, "' was drawn with other settings: --resume goes on with the same alone");
  }

  void put_together() {
    const auto count = static_cast<int64_t>(asked_.size());
    const std::vector<int64_t> classes = labels();
    std::vector<ArraySpec> arrays = {{"arr_0", DType::u8, {count, layout_.height, layout_.width, 3}}};
    if (!classes.empty()) arrays.push_back({"arr_1", DType::i64, {count}});
    arrays.push_back({kSettings, DType::u8, {std::ssize(settings_)}});
    ArrayFile file(path_, arrays);
    std::vector<std::ifstream> parts;
    for (const PartialImages& partial : partials_) {
      parts.emplace_back(partial.path(), std::ios::binary);
      parts.back().seekg(static_cast<std::streamoff>(partial.offset(0)));
    }
    std::vector<char> one(each());
    for (int64_t i = 0; i < count; ++i) {
      const auto part = static_cast<size_t>(part_of(i));
      parts[part].read(one.data(), static_cast<std::streamsize>(one.size()));
      check(parts[part].good(), "'", partials_[part].path(), "' is cut short");
      file.write(bytes_of(one.data(), one.size()));
    }
    file.write(bytes_of(classes.data(), classes.size() * sizeof(int64_t)));
    file.write(bytes_of(settings_.data(), settings_.size()));
    file.commit();
    for (const PartialImages& partial : partials_) fs::remove(partial.path());
  }

  static constexpr const char* kSettings = "settings";
  std::string path_, settings_;
  std::vector<AskedImage> asked_;
  BatchLayout layout_;
  std::vector<PartialImages> partials_;
  std::unique_ptr<FileLock> lock_;
  int64_t done_ = 0;
  bool finished_ = false;  // by an earlier run
  std::ofstream out_;
};

// float32 [images, channels, height, width].
class ValuesOutput final : public GenerateOutput {
 public:
  ValuesOutput(const std::string& path, size_t count, int64_t width, int64_t height, int64_t channels)
      : file_(path, {{"samples", DType::f32, {static_cast<int64_t>(count), channels, height, width}}}) {}
  bool has(const AskedImage&) override { return false; }
  void add(const AskedImage&, const DrawnImage& drawn) override {
    const torch::Tensor values = drawn.values.cpu().to(torch::kFloat32).contiguous();
    file_.write(
        bytes_of(values.const_data_ptr<float>(), static_cast<size_t>(values.numel()) * sizeof(float)));
  }
  void finish() override { file_.commit(); }

 private:
  ArrayFile file_;
};

// A folder may have a dot in its name, but not the ending of another kind of file.
void check_folder_name(const std::string& path) {
  static const std::vector<std::string> others = {".gif", ".bmp", ".tif", ".tiff", ".tar",
                                                  ".zip", ".pt",  ".pth", ".h5",   ".parquet"};
  const std::string ending = lower(fs::path(path).extension().string());
  if (std::find(others.begin(), others.end(), ending) != others.end())
    fail_usage("-o '", path, "': images are not written as ", ending,
               ", must be a grid (.png, .jpg, .webp), a ",
               "batch (.npz), values (.npy, .safetensors) or a folder, of shards with --shard-size");
}

}  // namespace

std::string image_text(const std::string& settings, const AskedImage& asked) {
  nlohmann::ordered_json one = nlohmann::ordered_json::parse(settings);
  one["seed"] = asked.seed;
  if (!asked.caption.empty()) one["class"] = asked.label, one["class_name"] = asked.caption;
  return json_text(one);
}

DrawnPart drawn_part_of(const std::string& words, const std::string& path, bool resume) {
  if (words.empty()) return {};
  const size_t slash = words.find('/');
  const auto index = parse_int(words.substr(0, slash)),
             of = slash == std::string::npos ? std::nullopt : parse_int(words.substr(slash + 1));
  if (!index || !of || *of < 1 || *index < 1 || *index > *of)
    fail_usage("--part '", printable(words), "', must be as 1/2: the first of two processes");
  if (*of == 1) return {};
  if (path.ends_with(".npz")) return {*index - 1, *of};
  if (!fs::path(path).extension().empty())
    fail_usage("--part goes with a folder or an .npz, '", path, "' is one file");
  if (!resume && fs::is_directory(path) && !fs::is_empty(path))
    fail_usage("'", path, "' holds files already: processes that draw into one folder are given --resume");
  return {*index - 1, *of};
}

namespace {

int64_t draw_batches(GenerateOutput& output, const std::vector<AskedImage>& asked, int64_t batch,
                     const DrawnPart& part, const DrawBatch& draw) {
  int64_t added = 0;
  const int64_t together = std::max(output.together(), batch);
  for (int64_t first = 0; first < std::ssize(asked); first += batch) {
    if (first / together % part.of != part.index) continue;
    const int64_t last = std::min(first + batch, std::ssize(asked));
    const std::span<const AskedImage> some(asked.data() + first, static_cast<size_t>(last - first));
    if (std::all_of(some.begin(), some.end(), [&](const AskedImage& one) { return output.has(one); }))
      continue;
    const std::vector<DrawnImage> drawn = draw(some, first);
    for (size_t i = 0; i < some.size(); ++i)
      if (!output.has(some[i])) {
        output.add(some[i], drawn[i]);
        ++added;
      }
  }
  return added;
}

}  // namespace

int64_t draw_missing(GenerateOutput& output, const std::vector<AskedImage>& asked, int64_t batch,
                     const DrawnPart& part, const DrawBatch& draw) {
  try {
    return draw_batches(output, asked, batch, part, draw);
  } catch (const Error& error) {
    const std::string left = output.left();
    if (left.empty()) throw;
    throw Error(error.kind, text(error.what(), "; ", left, ": --resume continues after them"));
  }
}

void check_count(const std::string& path, int64_t count) {
  if (is_image_name(path) && count > kMostInGrid)
    fail_usage("a grid of ", count, " images was requested, must be at most ", kMostInGrid,
               ": name a folder or an .npz with -o");
}

bool takes_values(const std::string& path) { return ArrayFile::knows(path) && !path.ends_with(".npz"); }

std::unique_ptr<GenerateOutput> open_generate_output(const std::string& path,
                                                     const std::vector<AskedImage>& asked,
                                                     const std::string& settings, const BatchLayout& layout,
                                                     int64_t channels, bool resume,
                                                     const ShardLayout& shards) {
  if (is_image_name(path)) return std::make_unique<GridOutput>(path, settings);
  if (path.ends_with(".npz")) return std::make_unique<BatchOutput>(path, asked, settings, layout, resume);
  if (takes_values(path))
    return std::make_unique<ValuesOutput>(path, asked.size(), layout.width, layout.height, channels);
  check_folder_name(path);
  if (shards.images > 0) return open_shard_output(path, asked, settings, shards, resume);
  return std::make_unique<FolderOutput>(path, settings, resume);
}

}  // namespace tessera::cli
