#include "data/pack.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <iomanip>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "core/error.h"
#include "core/interrupt.h"
#include "core/random.h"
#include "core/text.h"
#include "core/threads.h"
#include "data/partial_folder.h"
#include "data/resize.h"
#include "io/file.h"
#include "io/image.h"
#include "io/tar.h"

namespace tessera::data {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kPiece = 128;  // pictures encoded at a time

std::string padded(int64_t number, int width) {
  std::ostringstream out;
  out << std::setw(width) << std::setfill('0') << number;
  return out.str();
}

// An image as it goes into a shard.
struct Encoded {
  std::vector<std::byte> bytes;
  std::string extension, error, stem = {};
};

// What a member of a shard is called after its file: "IMG_1" of "photos/cat/IMG 1.jpg". Keys end at their first full
// stop, and tools for shards expect few other characters.
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
    decode_image(*bytes, sample.name);  // throws where it is damaged
    return {*bytes, extension, ""};
  }
  const Image small = shrunk(decode_image(*bytes, sample.name), pack.resize);
  if (info.format != "jpeg" && info.format != "webp")
    return {encode_png(small, info.orientation), ".png", ""};
  return {encode_jpeg(small, static_cast<int>(pack.quality), info.orientation), ".jpg", ""};
}

// Starts a shard whenever the last one is full.
class ShardWriter {
 public:
  ShardWriter(fs::path folder, std::string prefix, const PackConfig& pack, int64_t pictures,
              PackReport& report)
      : folder_(std::move(folder)), prefix_(std::move(prefix)), pack_(pack), report_(report) {
    const int64_t shards = (pictures + pack.shard_size - 1) / pack.shard_size;
    digits_ = std::max<int>(3, static_cast<int>(std::to_string(std::max<int64_t>(shards - 1, 0)).size()));
  }

  void add(const Encoded& picture, const std::string& label_extension, const std::string& label) {
    if (!writer_) {
      name_ = prefix_ + "-" + padded(shard_++, digits_) + (pack_.gzip ? ".tar.gz" : ".tar");
      writer_ = std::make_unique<TarWriter>((folder_ / name_).string());
    }
    const std::string key = prefix_ + padded(written_++, 9) + "-" + picture.stem;
    writer_->add(key + picture.extension, picture.bytes);
    writer_->add(key + label_extension, label);
    if (++in_shard_ == pack_.shard_size) finish();
  }

  void finish() {
    if (!writer_) return;
    writer_->commit();
    writer_.reset();
    report_.files.push_back(name_);
    report_.pictures += in_shard_;
    report_.bytes += static_cast<int64_t>(fs::file_size(folder_ / name_));
    in_shard_ = 0;
  }

 private:
  fs::path folder_;
  std::string prefix_, name_;
  const PackConfig& pack_;
  PackReport& report_;
  int digits_ = 3;
  int64_t shard_ = 0, written_ = 0, in_shard_ = 0;
  std::unique_ptr<TarWriter> writer_;
};

void pack_split(const Source& source, const std::string& prefix, const fs::path& folder,
                const PackConfig& pack, PackReport& report, const std::function<void(int64_t)>& advance) {
  const auto order = RandomStream(0, "pack").permutation(source.size());
  const ClassLabels& labels = require_labels(source, "data pack");
  ShardWriter writer(folder, prefix, pack, source.size(), report);
  for (size_t first = 0; first < order.size(); first += kPiece) {
    if (interrupted()) throw Error(ErrorKind::interrupted, "interrupted");
    std::vector<Encoded> pictures(std::min<size_t>(kPiece, order.size() - first));
    parallel_for(static_cast<int64_t>(pictures.size()), 1, [&](int64_t begin, int64_t end) {
      for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) try {
          const RawSample sample = source.read(order[first + i]);
          pictures[i] = encode(sample, pack);
          pictures[i].stem = stem_of(sample.name);
        } catch (const Error& error) {
          pictures[i].error = error.what();
        }
    });
    for (size_t i = 0; i < pictures.size(); ++i) {
      const int64_t index = order[first + i];
      if (!pictures[i].error.empty()) {
        if (!pack.skip_bad) fail(pictures[i].error, "; --skip-bad leaves such images out");
        report.skipped.add(pictures[i].error);
      } else if (labels.multi_label()) {
        writer.add(pictures[i], ".json", nlohmann::json{{"labels", labels.labels(index)}}.dump());
      } else {
        writer.add(pictures[i], ".cls", std::to_string(labels.label(index)));
      }
    }
    advance(static_cast<int64_t>(pictures.size()));
  }
  writer.finish();
}

void check_config(const PackConfig& pack) {
  if (pack.output.empty()) fail_usage("no folder to write to");
  if (pack.shard_size < 1) fail_usage("shard size is ", pack.shard_size, ", must be at least 1");
  if (pack.resize < 0)
    fail_usage("resize is ", pack.resize, ", must be at least 1 pixel, or 0 to keep sizes");
  if (pack.quality < 1 || pack.quality > 100) fail_usage("quality is ", pack.quality, ", must be 1 to 100");
}

// One name a line must read back as it was.
std::string class_lines(const std::vector<std::string>& classes) {
  std::string lines;
  for (const std::string& name : classes) {
    if (name.empty() || name != trim(name) || name.find('\n') != std::string::npos)
      fail("the class '", name,
           "' cannot stand on a line of classes.txt: blanks around it or a line end in it");
    lines += name + "\n";
  }
  return lines;
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
  if (splits.train && splits.validation) require_same_classes(*splits.train, *splits.validation);
  const Source& any = splits.train ? *splits.train : *splits.validation;
  const std::string classes =
      class_lines(require_labels(any, "data pack").class_names());  // fails before the work

  const Interruptible stretch;  // the folder is not left behind
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
  write_text_atomic((folder.path() / "classes.txt").string(), classes);
  report.files.emplace_back("classes.txt");
  folder.put_in_place();
  return report;
}

}  // namespace tessera::data
