#include "data/tools/pack.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <iomanip>
#include <map>
#include <memory>
#include <numeric>
#include <sstream>
#include <utility>

#include "core/error.h"
#include "core/progress.h"
#include "core/random.h"
#include "core/text.h"
#include "core/threads.h"
#include "data/base/annotations.h"
#include "data/transforms/resize.h"
#include "io/files/file.h"
#include "io/files/tar.h"
#include "io/images/image.h"

namespace tessera::data {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kPiece = 128;  // images encoded at a time

std::string padded(int64_t number, int width) {
  std::ostringstream out;
  out << std::setw(width) << std::setfill('0') << number;
  return out.str();
}

// An image encoded for a shard.
struct Encoded {
  std::vector<std::byte> bytes;
  std::string extension, error, stem = {};
};

// Returns the file's part of a member name: "IMG_1" of "photos/cat/IMG 1.jpg". Keys end at their first full
// stop, and shard tools expect few other characters.
std::string stem_of(const std::string& name) {
  constexpr size_t kMostBytes = 60;
  const size_t slash = name.find_last_of('/'), start = slash == std::string::npos ? 0 : slash + 1;
  const size_t dot = name.rfind('.');
  std::string stem =
      name.substr(start, dot != std::string::npos && dot > start ? dot - start : std::string::npos);
  for (char& c : stem)
    if (static_cast<unsigned char>(c) < 0x80 && !std::isalnum(static_cast<unsigned char>(c)) && c != '-')
      c = '_';
  if (stem.size() > kMostBytes) {
    size_t end = kMostBytes;
    while (end > 0 && (static_cast<unsigned char>(stem[end]) & 0xC0) == 0x80)
      --end;  // not inside a character
    stem.resize(end);
  }
  return stem;
}

Image shrunk(const Image& image, int64_t side) {
  const int shorter = std::min(image.width, image.height);
  const double ratio = static_cast<double>(side) / shorter;
  const auto scaled = [&](int length) { return std::max(1, static_cast<int>(std::lround(length * ratio))); };
  return resize(image, scaled(image.width), scaled(image.height), Interpolation::bicubic);
}

Encoded encode(const RawSample& sample, const PackConfig& pack) {
  const auto* bytes = std::get_if<std::vector<std::byte>>(&sample.picture);
  if (bytes == nullptr) {
    const Image& image = std::get<Image>(sample.picture);
    const bool large = pack.resize > 0 && std::min(image.width, image.height) > pack.resize;
    return {encode_png(large ? shrunk(image, pack.resize) : image), ".png", ""};
  }
  const ImageInfo info = image_info(*bytes, sample.name);
  const std::string extension = info.format == "jpeg" ? ".jpg" : "." + info.format;
  if (pack.resize <= 0 || std::min(info.width, info.height) <= pack.resize) {
    decode_image(*bytes, sample.name);  // throws if it is damaged
    return {*bytes, extension, ""};
  }
  const DecodeOptions as_stored{.apply_exif = false};  // the tag is kept
  const Image small = shrunk(decode_image(*bytes, sample.name, as_stored), pack.resize);
  if (info.format != "jpeg" && info.format != "webp")
    return {encode_png(small, info.orientation), ".png", ""};
  return {encode_jpeg(small, static_cast<int>(pack.quality), info.orientation), ".jpg", ""};
}

// Starts a new shard whenever the last one is full.
class ShardWriter {
 public:
  // `shown` is the folder's name in the report; "" is the packed folder itself.
  ShardWriter(fs::path folder, std::string shown, std::string prefix, const PackConfig& pack,
              int64_t pictures, PackReport& report)
      : folder_(std::move(folder)),
        shown_(std::move(shown)),
        prefix_(std::move(prefix)),
        pack_(pack),
        report_(report) {
    const int64_t shards = (pictures + pack.shard_size - 1) / pack.shard_size;
    digits_ = std::max<int>(3, static_cast<int>(std::to_string(std::max<int64_t>(shards - 1, 0)).size()));
  }

  // Adds an image and returns its path through the shard: "train-000.tar/train000000000-a.jpg".
  std::string add(const Encoded& picture, const std::vector<Packing::Member>& others) {
    if (!writer_) {
      name_ = prefix_ + "-" + padded(shard_++, digits_) + (pack_.gzip ? ".tar.gz" : ".tar");
      writer_ = std::make_unique<TarWriter>((folder_ / name_).string());
    }
    const std::string key = prefix_ + padded(written_++, 9) + "-" + picture.stem;
    writer_->add(key + picture.extension, picture.bytes);
    for (const Packing::Member& other : others) writer_->add(key + other.ending, other.content);
    const std::string path = name_ + "/" + key + picture.extension;
    if (++in_shard_ == pack_.shard_size) finish();
    return path;
  }

  void finish() {
    if (!writer_) return;
    writer_->commit();
    writer_.reset();
    report_.files.push_back(shown_.empty() ? name_ : shown_ + "/" + name_);
    report_.pictures += in_shard_;
    report_.bytes += static_cast<int64_t>(fs::file_size(folder_ / name_));
    in_shard_ = 0;
  }

 private:
  fs::path folder_;
  std::string shown_, prefix_, name_;
  const PackConfig& pack_;
  PackReport& report_;
  int digits_ = 3;
  int64_t shard_ = 0, written_ = 0, in_shard_ = 0;
  std::unique_ptr<TarWriter> writer_;
};

void pack_split(const Source& source, const std::string& prefix, const fs::path& folder,
                const PackConfig& pack, PackReport& report, const std::function<void(int64_t)>& advance) {
  const auto annotations = source.annotations();
  const std::unique_ptr<Packing> packing = annotations->packing();
  std::vector<int64_t> order(static_cast<size_t>(source.size()));
  std::iota(order.begin(), order.end(), 0);
  if (packing->shuffled()) order = RandomStream(0, "pack").permutation(source.size());
  const fs::path place = folder / packing->folder();
  fs::create_directories(place);
  ShardWriter writer(place, packing->folder(), prefix, pack, source.size(), report);
  std::map<int64_t, std::string> paths;
  for (size_t first = 0; first < order.size(); first += kPiece) {
    if (interrupted()) throw Error(ErrorKind::interrupted, "interrupted");
    std::vector<Encoded> pictures(std::min<size_t>(kPiece, order.size() - first));
    std::vector<std::vector<Packing::Member>> beside(pictures.size());
    parallel_for(static_cast<int64_t>(pictures.size()), 1, [&](int64_t begin, int64_t end) {
      for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) try {
          const RawSample sample = source.read(order[first + i]);
          pictures[i] = encode(sample, pack);
          pictures[i].stem = stem_of(sample.name);
          beside[i] = packing->members(sample, order[first + i]);
        } catch (const Error& error) {
          pictures[i].error = error.what();
        }
    });
    for (size_t i = 0; i < pictures.size(); ++i) {
      if (!pictures[i].error.empty()) {
        if (!pack.skip_bad) fail(pictures[i].error, "; --skip-bad leaves such images out");
        report.skipped.add(pictures[i].error);
      } else {
        paths[order[first + i]] = writer.add(pictures[i], beside[i]);
      }
    }
    advance(static_cast<int64_t>(pictures.size()));
  }
  writer.finish();
  packing->finish_split(folder.string(), prefix, paths, report.files);
}

void check_config(const PackConfig& pack) {
  if (pack.output.empty()) fail_usage("no folder to write to");
  if (pack.shard_size < 1) fail_usage("shard size is ", pack.shard_size, ", must be at least 1");
  if (pack.resize < 0)
    fail_usage("resize is ", pack.resize, ", must be at least 1 pixel, or 0 to keep sizes");
  if (pack.quality < 1 || pack.quality > 100) fail_usage("quality is ", pack.quality, ", must be 1 to 100");
}

}  // namespace

PackReport pack_data(const SourceConfig& config, const PackConfig& pack, const Progress& progress) {
  check_config(pack);
  const std::string target = folder_to_write(pack.output);
  const OpenSplits splits = open_splits(config);
  if (!splits.errors.empty()) fail(splits.errors[0]);
  int64_t total = 0, done = 0;
  for (const Source* source : {splits.train.get(), splits.validation.get()}) {
    if (source == nullptr) continue;
    if (const auto problems = source->problems(); !problems.empty()) fail(problems[0]);
    total += source->size();
  }
  if (total == 0) fail(config.path, " has no images");
  const Source& any = splits.train ? *splits.train : *splits.validation;
  const auto annotations = any.annotations();
  const std::unique_ptr<Packing> whole = annotations->packing();  // fails before the work
  if (!whole->resizable() && pack.resize > 0)
    fail_usage("--resize is for images with classes alone: masks and objects keep the size of their image");
  if (splits.train && splits.validation && whole->one_class_list())
    annotations->require_same(*splits.train, *splits.validation);

  const Interruptible stretch;  // an interrupt removes the folder
  PartialFolder folder(target);
  PackReport report;
  const auto advance = [&](int64_t count) {
    done += count;
    if (progress) progress(done, total);
  };
  for (const Source* source : {splits.train.get(), splits.validation.get()})
    if (source != nullptr)
      pack_split(*source, source == splits.train.get() ? "train" : "val", folder.path(), pack, report,
                 advance);
  whole->finish(folder.path().string(), report.files);
  folder.put_in_place();
  return report;
}

}  // namespace tessera::data
