// NumPy's .npz with images: bytes [n, height, width, 3], [n, height, width, 1] or [n, height, width]. Other numbers become
// bytes: floats from 0 to 1 or from 0 to 255, integers up to 255, and the upper 8 bits of larger ones without a sign.
//
// `arr_0` is a batch of generated images in the exchange format of ADM's evaluation (Dhariwal & Nichol 2021), with
// labels `arr_1` [n] for class-conditional samples. Data sets have a pair of arrays for each split, as MedMNIST
// (`train_images`, `train_labels`, …) and Keras (`x_train`, `y_train`, …) write them, or one pair for both (`X`, `y`).
// Labels are numbers, or texts, which are the names of the classes.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <span>

#include "core/error.h"
#include "core/text.h"
#include "data/base/source_kinds.h"
#include "data/base/source_labels.h"
#include "data/base/source_records.h"
#include "io/files/file.h"
#include "io/files/zip.h"

namespace tessera::data {
namespace {

constexpr int64_t kMostSide = 65536;
constexpr size_t kPieceBytes = size_t{1} << 20;

// Roles of arrays, best first.
constexpr std::array<std::string_view, 6> kImages = {"images", "image", "imgs", "x", "data", "pictures"};
constexpr std::array<std::string_view, 7> kLabels = {"labels",  "label",   "y",    "target",
                                                     "targets", "classes", "class"};

// The arrays of a split.
struct Arrays {
  std::string images, labels;  // "" if there are none
  std::optional<Split> split;  // none: both
};

// The part of an array's name that is left without the name of a split, and this split.
struct ArrayName {
  std::string role;
  std::string_view split;
};
ArrayName parse_name(const std::string& name) {
  constexpr std::array<std::string_view, 7> kSplits = {"training", "train",   "validation", "valid",
                                                       "val",      "testing", "test"};
  std::string plain = lower(name);
  std::erase_if(plain, [](char c) { return c == '_' || c == '-' || c == '.' || c == ' '; });
  for (const std::string_view split : kSplits) {
    if (plain.starts_with(split)) return {plain.substr(split.size()), split};
    if (plain.ends_with(split)) return {plain.substr(0, plain.size() - split.size()), split};
  }
  return {plain, ""};
}

// Returns the array of a split with the first of these roles; "" if there is none.
std::string array_of(const NpzFile& file, std::string_view split, std::span<const std::string_view> roles) {
  for (const std::string_view role : roles)
    for (const std::string& name : file.names())
      if (const ArrayName parsed = parse_name(name); parsed.split == split && parsed.role == role)
        return name;
  return "";
}

// Returns the arrays of a split, those of both splits if the file has none for it. Validation precedes test.
Arrays arrays_of(const NpzFile& file, Split split) {
  if (file.holds("arr_0")) return {"arr_0", file.holds("arr_1") ? "arr_1" : "", {}};
  const auto first = [&](std::initializer_list<std::string_view> splits) -> Arrays {
    for (const std::string_view one : splits)
      if (const std::string images = array_of(file, one, kImages); !images.empty())
        return {images, array_of(file, one, kLabels), {}};
    return {};
  };
  Arrays train = first({"training", "train"}),
         other = first({"validation", "valid", "val", "testing", "test"});
  train.split = Split::train, other.split = Split::validation;
  const Arrays both = first({""});
  const Arrays& own = split == Split::train ? train : other;
  if (!own.images.empty()) return own;
  if (!both.images.empty()) return both;
  const Arrays& any = split == Split::train ? other : train;
  return {any.images, any.labels, {}};
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::vector<std::string> extents;
  for (const int64_t extent : shape) extents.push_back(std::to_string(extent));
  return "[" + join(extents, ", ") + "]";
}

void check_label_shape(const std::vector<int64_t>& shape, const NpzFile& file, const Arrays& arrays,
                       int64_t images) {
  const bool column = shape.size() == 2 && shape[1] == 1;  // MedMNIST's
  check((shape.size() == 1 || column) && shape[0] == images, "'", file.path(), "': ", arrays.labels, " is ",
        shape_text(shape), ", must have one label for each of the ", images, " images of ", arrays.images);
}

// Returns the classes of labels that are texts.
std::vector<std::string> classes_of_texts(const std::vector<std::string>& labels, const SourceConfig& config,
                                          Split split, bool held_out) {
  if (!config.class_names.empty()) return read_label_names(config.class_names).names();
  if (split == Split::validation && (held_out || has_training_path(config)))
    if (std::vector<std::string> classes = training_classes(config); !classes.empty()) return classes;
  const std::set<std::string> different(labels.begin(), labels.end());
  std::vector<std::string> names(different.begin(), different.end());
  order_classes(names, config);
  return names;
}

// Adds the records of an array of texts. Texts of whole numbers are numbers.
void add_texts(RecordSet& set, const NpzFile& file, const Arrays& arrays, int64_t images,
               const SourceConfig& config, Split split, bool held_out) {
  std::vector<int64_t> shape;
  std::vector<std::string> labels = file.read_texts(arrays.labels, shape);
  check_label_shape(shape, file, arrays, images);
  for (std::string& label : labels) label = trim(label);
  const auto number = [](const std::string& label) { return class_number(label); };
  const bool numbers = std::ranges::all_of(labels, [&](const auto& one) { return number(one).has_value(); });
  if (!numbers) set.classes = classes_of_texts(labels, config, split, held_out);
  const ClassNames names(set.classes);
  const int64_t first = config.class_names.empty() ? 0 : first_class_number(config.class_names);
  for (int64_t i = 0; i < images; ++i) {
    const std::string& label = labels[static_cast<size_t>(i)];
    const int64_t place = numbers ? *number(label) : names.find(label);
    if (place < 0 && !numbers)
      set.problems.add(file.path(), ": record ", i, " has label '", printable(label, 40),
                       "', which is no class", names.hint(label));
    else
      set.records.push_back({0, i, numbers ? place : place + first});
  }
}

// Adds the records of the images with their labels.
void add_records(RecordSet& set, const NpzFile& file, const Arrays& arrays, int64_t images) {
  std::vector<int64_t> shape;
  std::vector<double> labels;
  if (!arrays.labels.empty()) {
    labels = file.read_doubles(arrays.labels, shape);
    check_label_shape(shape, file, arrays, images);
  }
  for (int64_t i = 0; i < images; ++i) {
    const double label = labels.empty() ? 0 : labels[static_cast<size_t>(i)];
    if (std::abs(label) > 1e9 || label != std::trunc(label))
      fail("'", file.path(), "': ", arrays.labels, " has ", shortest(label), " for record ", i,
           ", must be a whole number or the name of a class");
    set.records.push_back({0, i, static_cast<int64_t>(label)});
  }
}

// Returns a line with the other arrays of a set without labels, except a batch of generated images; else "".
std::string line_of_unread(const NpzFile& file, const Arrays& arrays) {
  std::vector<std::string> others = file.names();
  std::erase_if(others, [](const std::string& name) {
    const std::string role = parse_name(name).role;
    return std::ranges::find(kImages, role) != kImages.end();
  });
  if (!arrays.labels.empty() || arrays.images == "arr_0" || others.empty()) return "";
  return text("'", file.path(), "' has no labels for ", arrays.images, ", such as ", kLabels[0],
              ", y or target; ", some_of(others), others.size() == 1 ? " is" : " are", " not read");
}

// Throws unless the array holds images of a size that is read.
void check_images(const NpzArray& images, const std::string& name, const std::string& path) {
  const auto& shape = images.shape;
  const bool channels = shape.size() == 3 || (shape.size() == 4 && (shape[3] == 3 || shape[3] == 1));
  if (images.is_text() || !channels)
    fail("'", path, "': ", name, " is ", shape_text(shape), images.is_text() ? " of texts" : "",
         ", must hold images, bytes [n, height, width, 3]");
  if (shape[1] < 1 || shape[2] < 1 || shape[1] > kMostSide || shape[2] > kMostSide ||
      shape[1] * shape[2] > DecodeOptions().max_pixels)
    fail("'", path, "': images of ", shape[2], "x", shape[1], ", must have 1 to ", kMostSide,
         " pixels a side");
}

// Calls `f` with each number of an array as its type.
template <class Number, class F>
void each_number(const NpzArray& array, F&& f) {
  for (size_t at = 0; at + sizeof(Number) <= array.bytes.size(); at += sizeof(Number)) {
    Number number;
    std::memcpy(&number, array.bytes.data() + at, sizeof(Number));
    f(number);
  }
}

// Writes the numbers of an array as bytes to a file and sets a line about their range. Throws unless they fit.
template <class Number>
void write_bytes(TemporaryFile& file, const NpzArray& array, const std::string& where, std::string& line) {
  double least = 0, most = 0;
  each_number<Number>(array, [&](Number number) {
    const auto value = static_cast<double>(number);
    if (!std::isfinite(value)) fail(where, " has ", shortest(value), ", must hold images");
    least = std::min(least, value), most = std::max(most, value);
  });
  const bool shares = std::is_floating_point_v<Number> && most <= 1;
  const bool wide = std::is_same_v<Number, uint16_t> && most > 255;
  if (least < 0 || (most > 255 && !wide))
    fail(where, " has numbers from ", shortest(least), " to ", shortest(most),
         ", must be bytes, 0 to 255, or floats from 0 to 1");
  const double scale = shares ? 255 : wide ? 1.0 / 256 : 1;
  line = text(where, " has numbers up to ", shortest(most), ", read as ",
              shares ? "0 to 1"
              : wide ? "0 to 65535, their upper 8 bits"
                     : "0 to 255");
  std::vector<std::byte> piece;
  each_number<Number>(array, [&](Number number) {
    const double value = static_cast<double>(number) * scale;
    piece.push_back(static_cast<std::byte>(wide ? value : value + 0.5));
    if (piece.size() < kPieceBytes) return;
    file.write(piece);
    piece.clear();
  });
  file.write(piece);
}

// Converts the numbers of images to bytes. Returns a line about their range, "" for bytes.
std::string make_bytes(NpzArray& images, const std::string& where) {
  if (images.dtype == DType::u8 || images.bytes.empty()) return "";
  std::string line;
  const bool no_sign = images.kind == NpyKind::without_sign;
  TemporaryFile file("converting " + where);
  switch (images.dtype) {
    case DType::f64:
      write_bytes<double>(file, images, where, line);
      break;
    case DType::f32:
      write_bytes<float>(file, images, where, line);
      break;
    case DType::i64:
      write_bytes<int64_t>(file, images, where, line);
      break;
    case DType::i32:
      write_bytes<int32_t>(file, images, where, line);
      break;
    case DType::i16:
      no_sign ? write_bytes<uint16_t>(file, images, where, line)
              : write_bytes<int16_t>(file, images, where, line);
      break;
    default:
      fail(where, " is of a type that is not read, must be bytes, u2, i2, i4, i8, f4 or f8");
  }
  const auto kept = std::make_shared<const MappedFile>(file.map());
  images.bytes = kept->bytes(), images.memory = kept, images.dtype = DType::u8, images.element = 1;
  return line;
}

Image picture_of(const NpzArray& images, int64_t number) {
  const int64_t height = images.shape[1], width = images.shape[2];
  const int64_t channels = images.shape.size() == 4 ? images.shape[3] : 1;
  Image image(static_cast<int>(width), static_cast<int>(height), 3);
  const auto* from =
      reinterpret_cast<const uint8_t*>(images.bytes.data()) + number * height * width * channels;
  if (channels == 3)
    std::copy_n(from, image.pixels.size(), image.pixels.begin());
  else
    for (size_t i = 0; i < image.pixels.size(); ++i) image.pixels[i] = from[i / 3];
  return image;
}

}  // namespace

bool is_npz_path(const std::string& path) {
  std::error_code error;
  return path.ends_with(".npz") && std::filesystem::is_regular_file(path, error);
}

std::unique_ptr<Source> open_npz(const SourceConfig& config, Split split) {
  const std::string path = path_of(config, split);
  const NpzFile file(path);
  if (!file.holds("arr_0") && file.holds("mu"))
    fail("'", path, "' holds statistics of features, no images: it is a reference for `tessera fid` alone");
  const Arrays arrays = arrays_of(file, split);
  if (arrays.images.empty())
    fail("'", path, "' has no images, it holds ", some_of(file.names(), 12),
         ": arrays of images are arr_0, images, x or data, also with train_, val_ or test_");
  NpzArray read = file.read(arrays.images);
  check_images(read, arrays.images, path);
  RecordSet set;
  if (const std::string line = make_bytes(read, text("'", path, "': ", arrays.images)); !line.empty())
    set.warnings.push_back(line);
  if (const std::string line = line_of_unread(file, arrays); !line.empty()) set.warnings.push_back(line);
  const auto images = std::make_shared<const NpzArray>(std::move(read));
  const bool held_out = arrays_of(file, Split::validation).split.has_value();
  const int64_t count = images->shape[0];
  if (!arrays.labels.empty() && file.read(arrays.labels).is_text())
    add_texts(set, file, arrays, count, config, split, held_out);
  else
    add_records(set, file, arrays, count);
  set.kind = "npz";
  set.shown = path;
  set.files = {{path, images->bytes}};
  set.picture = [images](const Record& record) { return picture_of(*images, record.number); };
  auto source = make_record_source(std::move(set), config, split, config.val_path.empty() && !held_out);
  return arrays.labels.empty() ? without_labels(std::move(source)) : std::move(source);
}

}  // namespace tessera::data
