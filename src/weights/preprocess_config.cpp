#include "weights/hub_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

#include "core/error.h"
#include "core/published_config.h"
#include "core/text.h"

namespace tessera::train {
namespace {

const Value::Array kImageNetMean = {0.485, 0.456, 0.406}, kImageNetStd = {0.229, 0.224, 0.225},
                   kClipMean = {0.48145466, 0.4578275, 0.40821073},
                   kClipStd = {0.26862954, 0.26130258, 0.27577711}, kHalf = {0.5, 0.5, 0.5};

// An image processor of transformers. Absent keys have the defaults of its class (defaults_of).
struct ProcessorConfig {
  std::string image_processor_type = "", feature_extractor_type = "";
  bool do_resize = true, do_center_crop = false, do_rescale = true, do_normalize = true, do_pad = false;
  Value size = {}, crop_size = {}, resample = 3, rescale_factor = 1.0 / 255;
  Value image_mean = kImageNetMean, image_std = kImageNetStd;
  double crop_pct = 224.0 / 256;

  template <class V>
  void visit(V& v) {
    v("image_processor_type", image_processor_type, "class");
    v("feature_extractor_type", feature_extractor_type, "its older name");
    v("do_resize", do_resize, "resizes to size");
    v("do_center_crop", do_center_crop, "crops to crop_size");
    v("do_rescale", do_rescale, "multiplies by rescale_factor");
    v("do_normalize", do_normalize, "subtracts image_mean and divides by image_std");
    v("do_pad", do_pad, "pads to a square first");
    v("size", size, "a number, {height, width} or {shortest_edge}");
    v("crop_size", crop_size, "a number or {height, width}");
    v("resample", resample, "Pillow's number of a filter");
    v("rescale_factor", rescale_factor, "of bytes");
    v("image_mean", image_mean, "per channel");
    v("image_std", image_std, "per channel");
    v("crop_pct", crop_pct, above_to(0, 16), "ConvNeXt, PoolFormer: the short side becomes size / crop_pct");
  }
};

struct OpenClipConfig {
  Value size = 224;
  std::string interpolation = "bicubic", resize_mode = "shortest", mode = "RGB";
  Value fill_color = 0;  // colour of the border if resize_mode is longest
  std::vector<double> mean = {0.48145466, 0.4578275, 0.40821073}, std = {0.26862954, 0.26130258, 0.27577711};

  template <class V>
  void visit(V& v) {
    v("size", size, "a number or [height, width]");
    v("interpolation", interpolation, "bicubic or bilinear");
    v("resize_mode", resize_mode, "shortest, longest or squash");
    v("mode", mode, "of colours");
    v("fill_color", fill_color, "colour of the border");
    v("mean", mean, "per channel");
    v("std", std, "per channel");
  }
};

// Keys that do not concern the numbers of an image for a classifier.
constexpr std::array kUnusedProcessorKeys = {
    "do_convert_rgb",        "processor_class",  "data_format",      "return_tensors", "disable_grouping",
    "input_data_format",     "device",           "do_reduce_labels", "reduce_labels",  "default_to_square",
    "_valid_processor_keys", "image_seq_length", "auto_map",         "pad_size"};

// Returns the crop ratio for which the quotient, rounded down, is `resized`.
double crop_ratio(int64_t size, int64_t resized) {
  const double ratio = static_cast<double>(size) / static_cast<double>(resized);
  const bool exact = std::floor(static_cast<double>(size) / ratio) == static_cast<double>(resized);
  return exact ? ratio : std::nextafter(ratio, 0);
}

[[noreturn]] void refuse(const std::string& where, const std::string& key, const std::string& is,
                         const char* must) {
  fail_usage(where, ": ", key, " is ", printable(is), ", must be ", must);
}

// Returns the class of a processor without its ending: "ViT" of ViTImageProcessorFast and ViTFeatureExtractor.
// A file without a class has the one of its model, which config.json names.
std::string processor_class(const Value& tree, const Value& model) {
  for (const char* key : {"image_processor_type", "feature_extractor_type"})
    if (const Value* name = tree.find(key); name && name->is_string()) {
      const std::string& whole = name->as_string();
      return whole.substr(0, std::min(whole.find("ImageProcessor"), whole.find("FeatureExtractor")));
    }
  static const std::map<std::string, std::string> of_models = {{"vit", "ViT"},
                                                               {"vit_msn", "ViT"},
                                                               {"swin", "ViT"},
                                                               {"deit", "DeiT"},
                                                               {"beit", "Beit"},
                                                               {"data2vec-vision", "Beit"},
                                                               {"convnext", "ConvNext"},
                                                               {"convnextv2", "ConvNext"},
                                                               {"resnet", "ConvNext"},
                                                               {"clip", "CLIP"},
                                                               {"siglip", "Siglip"},
                                                               {"llava", "Llava"},
                                                               {"dinov2", "Bit"},
                                                               {"vit_mae", "ViT"},
                                                               {"clip_vision_model", "CLIP"},
                                                               {"poolformer", "PoolFormer"}};
  const Value* type = model.find("model_type");
  const auto found = type && type->is_string() ? of_models.find(type->as_string()) : of_models.end();
  return found == of_models.end() ? "" : found->second;
}

// Returns what transformers' class has for keys that a file leaves out.
ProcessorConfig defaults_of(const std::string& processor) {
  const auto edge = [](int64_t side) { return Value(Value::Table{{"shortest_edge", side}}); };
  const auto square = [](int64_t side) { return Value(Value::Table{{"height", side}, {"width", side}}); };
  constexpr int64_t kUsual = 224;
  ProcessorConfig config;
  if (processor == "ViT" || processor == "DeiT" || processor == "Beit" || processor == "ConvNext" ||
      processor == "Siglip") {
    config.image_mean = config.image_std = kHalf;
    config.size = processor == "ConvNext" ? edge(384) : square(processor == "DeiT" ? 256 : kUsual);
    config.do_center_crop = processor == "DeiT";
    if (processor == "ViT") config.resample = 2;
  } else if (processor == "PoolFormer") {
    config.size = edge(kUsual);
    config.do_center_crop = true, config.crop_pct = 0.9;
  } else if (processor == "CLIP" || processor == "Bit" || processor == "Llava") {
    config.image_mean = kClipMean;
    config.image_std = kClipStd;
    config.size = edge(kUsual);
    config.do_center_crop = true;
  }
  config.crop_size = square(kUsual);
  return config;
}

// A size in transformers' form: the short side, or both sides.
struct Size {
  int64_t side = 0;
  bool shortest = false;
};
Size size_of(const Value& given, bool square_number, const std::string& where, const char* key) {
  constexpr int64_t kMost = 65536;
  const auto checked = [&](const Value* side) {
    if (!side || !side->is_int() || side->as_int() < 1 || side->as_int() > kMost)
      refuse(where, key, toml_text(given), "a number of pixels, {height, width} or {shortest_edge}");
    return side->as_int();
  };
  if (given.is_array() && given.as_array().size() == 2 && given.as_array()[0] == given.as_array()[1])
    return {checked(given.as_array().data()), false};
  if (!given.is_table()) return {checked(&given), !square_number};
  if (const Value* edge = given.find("shortest_edge")) {
    if (given.find("longest_edge")) refuse(where, key, toml_text(given), "the size of a square");
    return {checked(edge), true};
  }
  const int64_t height = checked(given.find("height")), width = checked(given.find("width"));
  if (height != width) refuse(where, key, toml_text(given), "a square");
  return {height, false};
}

// Older files have a single number, which is the short side for these classes.
bool number_is_square(const std::string& type) {
  for (const char* name : {"CLIP", "ConvNext", "Bit", "Levit", "MobileNet", "PoolFormer", "Llava"})
    if (type.starts_with(name)) return false;
  return true;
}

std::string filter_name(const Value& resample, const std::string& where) {
  constexpr std::array kNames = {"nearest", "lanczos", "bilinear", "bicubic", "box", "hamming"};
  if (!resample.is_int() || resample.as_int() < 0 || resample.as_int() >= std::ssize(kNames))
    refuse(where, "resample", toml_text(resample), "a number of 0 to 5");
  return kNames[static_cast<size_t>(resample.as_int())];
}

// Returns three numbers from a list or from a single number.
std::vector<double> numbers_of(const Value& given, double otherwise, const std::string& where,
                               const char* key) {
  if (given.is_table() && given.as_table().empty()) return std::vector<double>(3, otherwise);
  if (given.is_number()) return std::vector<double>(3, given.as_double());
  std::vector<double> numbers;
  if (given.is_array())
    for (const Value& one : given.as_array())
      if (one.is_number()) numbers.push_back(one.as_double());
  if (numbers.empty() || numbers.size() != given.as_array().size())
    refuse(where, key, toml_text(given), "numbers, one per channel");
  return numbers;
}

// (r x - m) / s with bytes x is (x / 255 - m') / s' with m' = m / (255 r) and s' = s / (255 r).
void set_pixels(Value& keys, const ProcessorConfig& config, const std::string& where) {
  std::vector<double> mean = numbers_of(config.image_mean, 0, where, "image_mean"),
                      deviation = numbers_of(config.image_std, 1, where, "image_std");
  if (!config.do_normalize) mean.assign(mean.size(), 0), deviation.assign(deviation.size(), 1);
  if (!config.rescale_factor.is_number() || config.rescale_factor.as_double() <= 0)
    refuse(where, "rescale_factor", toml_text(config.rescale_factor), "above 0");
  const double factor = config.do_rescale ? config.rescale_factor.as_double() : 1;
  const double scale = std::abs(255 * factor - 1) < 1e-9 ? 1 : 255 * factor;
  for (std::vector<double>* numbers : {&mean, &deviation})
    for (double& number : *numbers) number /= scale;
  keys.set("mean", Value::Array(mean.begin(), mean.end()));
  keys.set("std", Value::Array(deviation.begin(), deviation.end()));
}

Value keys_of(const ProcessorConfig& config, const std::string& type, const std::string& where) {
  if (!config.do_resize) refuse(where, "do_resize", "false", "true: images are resized");
  const bool squares = number_is_square(type);
  const Size size = size_of(config.size, squares, where, "size");
  Value keys;
  int64_t side = size.side, resized = size.side;
  std::string mode = size.shortest ? "center" : "squash";
  if (type == "PoolFormer")  // the side of a square is the short side too
    resized = static_cast<int64_t>(static_cast<double>(side) / config.crop_pct), mode = "center";
  if (type.starts_with("ConvNext") && size.shortest && !config.do_center_crop) {
    constexpr int64_t kWarped = 384;  // from this side on, images are stretched
    if (side >= kWarped) mode = "squash";
    if (side < kWarped) resized = static_cast<int64_t>(static_cast<double>(side) / config.crop_pct);
  } else if (config.do_center_crop) {
    side = size_of(config.crop_size, true, where, "crop_size").side;
  } else if (size.shortest) {
    refuse(where, "do_center_crop", "false", "true: images are squares");
  }
  if (side > resized)
    refuse(where, "crop_size", std::to_string(side), "at most the size that images are resized to");
  if (config.do_pad && mode == "center") mode = "pad";
  if (mode == "center") mode = "center_floor";  // torchvision rounds half to even
  keys.set("size", side);
  keys.set("crop", crop_ratio(side, resized));
  keys.set("crop_mode", mode);
  keys.set("interpolation", filter_name(config.resample, where));
  set_pixels(keys, config, where);
  return keys;
}

Value keys_of(const OpenClipConfig& config, int64_t side, const std::string& where) {
  const auto refused = [&](const char* key, const std::string& is, const char* must) {
    refuse(where, text("preprocess_cfg.", key), is, must);
  };
  const Value* size = &config.size;
  if (size->is_array() && size->as_array().size() == 2 && size->as_array()[0] == size->as_array()[1])
    size = &size->as_array()[0];
  if (side == 0 && !size->is_int()) refused("size", toml_text(config.size), "the side of a square");
  if (config.mode != "RGB") refused("mode", config.mode, "RGB");
  Value keys;
  keys.set("size", side > 0 ? side : size->as_int());
  keys.set("crop", 1.0);
  const std::map<std::string, std::string> modes = {
      {"shortest", "center"}, {"longest", "longest"}, {"squash", "squash"}};
  if (!modes.contains(config.resize_mode))
    refused("resize_mode", config.resize_mode, "shortest, longest or squash");
  const std::vector<double> colour = numbers_of(config.fill_color, 0, where, "preprocess_cfg.fill_color");
  if (config.resize_mode == "longest" && colour != std::vector<double>(colour.size(), 0))
    refused("fill_color", toml_text(config.fill_color), "0, which is black");
  keys.set("crop_mode", modes.at(config.resize_mode));
  keys.set("interpolation", config.interpolation == "bilinear" ? "bilinear" : "bicubic");
  keys.set("mean", Value::Array(config.mean.begin(), config.mean.end()));
  keys.set("std", Value::Array(config.std.begin(), config.std.end()));
  return keys;
}

template <class Config>
Config read_part(PublishedFolder& folder, const Value& tree, const std::string& where, Config defaults = {}) {
  std::vector<std::string> unread;
  Config config = read_published<Config>(tree, where, unread, std::move(defaults));
  std::erase_if(unread, [](const std::string& key) {
    return std::find(kUnusedProcessorKeys.begin(), kUnusedProcessorKeys.end(), key) !=
           kUnusedProcessorKeys.end();
  });
  folder.note_unread(where, unread);
  return config;
}

}  // namespace

std::optional<Value> read_preprocess_config(PublishedFolder& folder, int64_t side) {
  if (const std::string own = folder.find({"open_clip_config.json"}); !own.empty()) {
    const Value tree = folder.read({"open_clip_config.json"});
    if (const Value* part = tree.find("preprocess_cfg"))
      return keys_of(read_part<OpenClipConfig>(folder, *part, own), side, own);
  }
  const std::string path = folder.find({"preprocessor_config.json"});
  Value tree = folder.read({"preprocessor_config.json"});
  std::string where = path;
  if (path.empty()) {  // transformers 5 writes it as a part of the processor
    where = folder.find({"processor_config.json"});
    const Value processor = folder.read({"processor_config.json"});
    const Value* part = processor.find("image_processor");
    if (!part || !part->is_table()) return std::nullopt;
    tree = *part;
  }
  const std::string type = processor_class(tree, folder.read({"config.json"}));
  return keys_of(read_part<ProcessorConfig>(folder, tree, where, defaults_of(type)), type, where);
}

}  // namespace tessera::train
