#include "data/tools/corrupt_set.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/error.h"
#include "core/progress.h"
#include "core/text.h"
#include "core/threads.h"
#include "data/base/geometry.h"
#include "data/base/image_files.h"
#include "data/tools/pack.h"
#include "data/transforms/resize.h"
#include "io/files/file.h"

namespace tessera::data {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kPiece = 64;         // images processed at a time
constexpr int kSmallImage = 64;        // up to this side, CIFAR's parameters are used instead of ImageNet's
constexpr size_t kMostKeptStem = 100;  // bytes
constexpr double kTestCrop = 0.875;    // ImageNet-C was made from the usual test crop
constexpr uint64_t kHashStart = 14695981039346656037u, kHashPrime = 1099511628211u;  // FNV-1a

// Returns "cat/IMG_1.jpg" of "photos/cat/IMG_1.jpg", which does not depend on the set's location.
std::string own_name(const std::string& name) {
  const size_t last = name.find_last_of('/');
  if (last == std::string::npos || last == 0) return name;
  const size_t before = name.find_last_of('/', last - 1);
  return before == std::string::npos ? name : name.substr(before + 1);
}

uint64_t hash_of(const std::string& bytes) {
  uint64_t hash = kHashStart;
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * kHashPrime;
  return hash;
}

Image test_crop(const Image& image, int64_t size) {
  const int side = static_cast<int>(size);
  const Extent whole =
      resize_short_side({image.height, image.width}, static_cast<int>(std::floor(side / kTestCrop)));
  const Image small = resize(image, whole.width, whole.height, Interpolation::bilinear);
  return cut(small, {(whole.width - side) / 2, (whole.height - side) / 2, side, side});
}

// Returns a class name as a folder name.
std::string folder_of(const std::string& name) {
  if (name.empty() || name == "." || name == ".." ||
      name.find_first_of(std::string("/\0", 2)) != std::string::npos)
    fail("the class '", printable(name), "' cannot be the name of a folder");
  return name;
}

// Returns "000012-IMG_1": unique, and in the order of the set.
std::string file_stem(int64_t index, const std::string& name) {
  std::ostringstream out;
  out << std::setw(6) << std::setfill('0') << index << "-" << kept_stem(name);
  return out.str();
}

// Without fsync: the folder takes effect as a whole.
void write_plain(const fs::path& path, const std::vector<std::byte>& bytes) {
  AppendFile(path.string()).write(bytes);
}

void write_images(const CorruptedSource& source, const fs::path& folder, int64_t quality,
                  const std::function<void(int64_t)>& advance) {
  std::vector<fs::path> classes;
  for (const std::string& name : source.class_names()) {
    classes.push_back(folder / folder_of(name));
    make_directories(classes.back().string());
  }
  for (int64_t first = 0; first < source.size(); first += kPiece) {
    if (interrupted()) throw Error(ErrorKind::interrupted, "interrupted");
    const int64_t count = std::min(kPiece, source.size() - first);
    parallel_for(count, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = first + begin; i < first + end; ++i) {
        const RawSample sample = source.read(i);
        const Image& image = std::get<Image>(sample.picture);
        const fs::path stem = classes[static_cast<size_t>(source.label(i))] / file_stem(i, sample.name);
        if (quality > 0)
          write_plain(stem.string() + ".jpg", encode_jpeg(image, static_cast<int>(quality)));
        else
          write_plain(stem.string() + ".png", encode_png(image));
      }
    });
    advance(count);
  }
}

// Returns the requested corruptions. Throws if a corruption or severity does not exist.
std::vector<std::string> checked(const CorruptConfig& config) {
  std::vector<std::string> corruptions = config.corruptions;
  if (corruptions.empty())
    corruptions.assign(corruption_names().begin(), corruption_names().begin() + kBenchmarkCorruptions);
  for (const std::string& name : corruptions)
    for (const int64_t severity : config.severities)
      imagenet_c_parameters().of(name, static_cast<int>(severity));
  if (config.severities.empty()) fail_usage("no severity to write, there are 1 to ", kSeverities);
  if (config.quality < 0 || config.quality > 100)
    fail_usage("quality is ", config.quality, ", must be 0 (PNG) to 100");
  if (config.size != 0 && (config.size < kLeastCorruptedSide || config.size > 8192))
    fail_usage("size is ", config.size, ", must be ", kLeastCorruptedSide,
               " to 8192 pixels, or 0 to keep the images' own");
  return corruptions;
}

// Returns the sides from the header, without decoding; 0 if the image cannot be read.
Extent sides_of(const Source& source, int64_t index) {
  try {
    const RawSample sample = source.read(index);
    if (const auto* image = std::get_if<Image>(&sample.picture)) return {image->height, image->width};
    const ImageInfo info = image_info(std::get<std::vector<std::byte>>(sample.picture), sample.name);
    return applied_orientation(info, {}) >= 5 ? Extent{info.width, info.height}
                                              : Extent{info.height, info.width};
  } catch (const Error&) {
    return {0, 0};
  }
}

}  // namespace

CorruptedSource::CorruptedSource(std::shared_ptr<const Source> source, Options options)
    : source_(std::move(source)),
      labels_(require_labels(*source_, "a corrupted set")),
      options_(std::move(options)) {
  options_.parameters->of(options_.corruption, options_.severity);
}

RawSample CorruptedSource::read(int64_t index) const {
  RawSample sample = source_->read(index);
  Image image = decode_sample(sample);
  if (options_.size > 0) image = test_crop(image, options_.size);
  const std::vector<double>& parameters = options_.parameters->of(options_.corruption, options_.severity);
  RandomStream stream(options_.seed, "corrupt " + options_.corruption, hash_of(own_name(sample.name)),
                      static_cast<uint64_t>(options_.severity));
  static const FrostImages none;
  try {
    const CorruptionDraws draws = draw_corruption(options_.corruption, parameters, image,
                                                  options_.frosts ? *options_.frosts : none, stream);
    sample.picture = corrupt(image, options_.corruption, parameters, draws);
  } catch (const Error& error) {
    throw Error(error.kind, sample.name + ": " + error.what());
  }
  return sample;
}

uint64_t CorruptedSource::fingerprint() const {
  return hash_of(text(source_->fingerprint(), " ", describe(), " ", options_.seed));
}

std::string CorruptedSource::describe() const {
  return text(source_->describe(), ", ", options_.corruption, " ", options_.severity, " of ",
              options_.parameters->name);
}

const CorruptionParameters& parameters_for(const std::string& name, int64_t size, const Source& source) {
  if (!name.empty()) return corruption_parameters(name);
  int64_t side = size;
  if (side == 0) {
    const Image first = decode_sample(source.read(0));
    side = std::min(first.width, first.height);
  }
  return side <= kSmallImage ? cifar_10_c_parameters() : imagenet_c_parameters();
}

std::string published_name(const CorruptionParameters& parameters) {
  return parameters.name == "cifar" ? "CIFAR-10-C" : "ImageNet-C";
}

void require_corruptible(const Source& source, int64_t most) {
  const int64_t count = most > 0 ? std::min(most, source.size()) : source.size();
  const auto place = [&](int64_t k) { return k * source.size() / count; };
  std::vector<Extent> extents(static_cast<size_t>(count));
  for (int64_t first = 0; first < count; first += kPiece) {
    if (interrupted()) throw Error(ErrorKind::interrupted, "interrupted");
    parallel_for(std::min(kPiece, count - first), 1, [&](int64_t begin, int64_t end) {
      for (int64_t k = first + begin; k < first + end; ++k)
        extents[static_cast<size_t>(k)] = sides_of(source, place(k));
    });
  }
  int64_t small = 0, example = -1;
  for (int64_t k = 0; k < count; ++k) {
    const Extent& extent = extents[static_cast<size_t>(k)];
    const int side = std::min(extent.width, extent.height);
    if (side == 0 || side >= kLeastCorruptedSide) continue;
    if (small++ == 0) example = k;
  }
  if (small == 0) return;
  const Extent& extent = extents[static_cast<size_t>(example)];
  fail(small, " of ", counted(count, "image"), small == 1 ? " is" : " are", " too small to be corrupted, as ",
       source.read(place(example)).name, " of ", extent.width, "x", extent.height,
       ": each must have at least ", kLeastCorruptedSide, " pixels a side");
}

std::string kept_stem(const std::string& name) {
  std::string stem = fs::path(own_name(name)).stem().string().substr(0, kMostKeptStem);
  for (char& c : stem)
    if (static_cast<unsigned char>(c) < 0x80 && !std::isalnum(static_cast<unsigned char>(c)) && c != '-')
      c = '_';
  return stem;
}

std::string kept_stem_of_written(const std::string& file) {
  const std::string stem = fs::path(file).stem().string();
  const size_t number = stem.find_first_not_of("0123456789");
  return number == std::string::npos || stem[number] != '-' ? stem : stem.substr(number + 1);
}

std::shared_ptr<const FrostImages> read_frosts(const std::string& folder) {
  const ImageFiles files({folder});
  auto frosts = std::make_shared<FrostImages>();
  for (int64_t i = 0; i < files.size(); ++i) {
    if (i == 100) fail_usage(folder, " holds ", files.size(), " images of frost, at most 100 are read");
    frosts->push_back(decode_sample(files.read(i)));
  }
  if (frosts->empty()) fail_usage(folder, " holds no image of frost");
  return frosts;
}

CorruptReport corrupt_set(std::shared_ptr<const Source> source, const CorruptConfig& config,
                          const Progress& progress) {
  const std::vector<std::string> corruptions = checked(config);
  const std::string target = folder_to_write(config.output);
  if (source->size() == 0) fail(source->describe(), ": there is no image to corrupt");
  if (require_labels(*source, "data corrupt").multi_label())
    fail_usage("data corrupt writes one folder a class, images of ", source->describe(), " have several");
  const CorruptionParameters& parameters = parameters_for(config.parameters, config.size, *source);
  const auto frosts = config.frost.empty() ? nullptr : read_frosts(config.frost);
  CorruptReport report{.parameters = parameters.name};
  const auto total = static_cast<int64_t>(corruptions.size() * config.severities.size()) * source->size();
  const Interruptible stretch;  // an interrupt removes the folder
  PartialFolder folder(target);
  for (const std::string& corruption : corruptions)
    for (const int64_t severity : config.severities) {
      const CorruptedSource corrupted(source, {.corruption = corruption,
                                               .severity = static_cast<int>(severity),
                                               .parameters = &parameters,
                                               .frosts = frosts,
                                               .size = config.size,
                                               .seed = static_cast<uint64_t>(config.seed)});
      write_images(corrupted, folder.path() / corruption / std::to_string(severity), config.quality,
                   [&](int64_t count) {
                     report.pictures += count;
                     if (progress) progress(report.pictures, total);
                   });
      report.drawn_frost = report.drawn_frost || (corruption == "frost" && !frosts);
    }
  nlohmann::ordered_json made = {{"source", source->describe()},
                                 {"parameters", parameters.name},
                                 {"seed", config.seed},
                                 {"size", config.size},
                                 {"corruptions", corruptions},
                                 {"severities", config.severities},
                                 {"frost", config.frost.empty() ? "drawn" : config.frost}};
  write_text_atomic((folder.path() / "corruptions.json").string(),
                    made.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
  folder.put_in_place();
  return report;
}

}  // namespace tessera::data
