#include "data/transforms/augment_policy.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "core/text.h"
#include "data/transforms/augment_operations.h"

namespace tessera::data {
namespace {

constexpr double kTop = 10;  // magnitudes range from 0 to this

// ---- operations: their arguments by level, and their implementations ----

using ToArgument = double (*)(double share, const OpSettings& settings,
                              bool negative);  // share = magnitude / 10
struct Work {
  Image& image;
  double argument;
  const OpSettings& settings;
  Draws& draws;
};
using Apply = void (*)(const Work& work);

struct Op {
  const char* name;
  ToArgument argument;  // null: no argument
  Apply apply;
};

double signed_by(double v, bool negative) { return negative ? -v : v; }
double keep_bits(double share) { return std::trunc(share * 4); }
double threshold(double share) { return std::min(256.0, std::trunc(share * 256)); }

double enhance(double share, const OpSettings&, bool) { return share * 1.8 + 0.1; }
double enhance_increasing(double share, const OpSettings&, bool negative) {
  return std::max(0.1, 1.0 + signed_by(share * 0.9, negative));
}
double shear(double share, const OpSettings&, bool negative) { return signed_by(share * 0.3, negative); }
double translate(double share, const OpSettings& s, bool negative) {
  return signed_by(share * s.translate_pixels, negative);
}
double translate_share(double share, const OpSettings& s, bool negative) {
  return signed_by(share * s.translate_share, negative);
}
double interpolate(double low, double high, double share) {
  return std::clamp(low + (high - low) * share, low, high);
}

void move(const Work& w, const std::array<double, 6>& matrix) {
  Interpolation interpolation = Interpolation::bilinear;
  if (w.settings.interpolation)
    interpolation = *w.settings.interpolation;
  else if (w.draws.integer(0, 1) == 1)
    interpolation = Interpolation::bicubic;
  w.image = affine(w.image, matrix, interpolation, w.settings.fill);
}

void apply_rotate(const Work& w) {
  Interpolation interpolation = Interpolation::bilinear;
  if (w.settings.interpolation)
    interpolation = *w.settings.interpolation;
  else if (w.draws.integer(0, 1) == 1)
    interpolation = Interpolation::bicubic;
  w.image = rotate(w.image, w.argument, interpolation, w.settings.fill);
}

void apply_posterize(const Work& w) {
  const int bits = static_cast<int>(w.argument);
  if (bits <= 0)
    std::fill(w.image.pixels.begin(), w.image.pixels.end(), uint8_t{0});
  else if (bits < 8)
    posterize(w.image, bits);
}

void apply_solarize(const Work& w) { solarize(w.image, static_cast<int>(w.argument)); }
void apply_color(const Work& w) { adjust_saturation(w.image, w.argument); }
void apply_contrast(const Work& w) { adjust_contrast(w.image, w.argument); }
void apply_brightness(const Work& w) { adjust_brightness(w.image, w.argument); }
void apply_sharpness(const Work& w) { adjust_sharpness(w.image, w.argument); }

const Op kOps[] = {
    {"AutoContrast", nullptr, [](const Work& w) { autocontrast(w.image); }},
    {"Equalize", nullptr, [](const Work& w) { equalize(w.image); }},
    {"Invert", nullptr, [](const Work& w) { invert(w.image); }},
    {"Rotate", [](double s, const OpSettings&, bool n) { return signed_by(s * 30, n); }, apply_rotate},
    {"Posterize", [](double s, const OpSettings&, bool) { return keep_bits(s); }, apply_posterize},
    {"PosterizeIncreasing", [](double s, const OpSettings&, bool) { return 4 - keep_bits(s); },
     apply_posterize},
    {"PosterizeOriginal", [](double s, const OpSettings&, bool) { return 4 + keep_bits(s); },
     apply_posterize},
    {"Solarize", [](double s, const OpSettings&, bool) { return threshold(s); }, apply_solarize},
    {"SolarizeIncreasing", [](double s, const OpSettings&, bool) { return 256 - threshold(s); },
     apply_solarize},
    {"SolarizeAdd", [](double s, const OpSettings&, bool) { return std::min(128.0, std::trunc(s * 110)); },
     [](const Work& w) { solarize_add(w.image, static_cast<int>(w.argument)); }},
    {"Color", enhance, apply_color},
    {"ColorIncreasing", enhance_increasing, apply_color},
    {"Contrast", enhance, apply_contrast},
    {"ContrastIncreasing", enhance_increasing, apply_contrast},
    {"Brightness", enhance, apply_brightness},
    {"BrightnessIncreasing", enhance_increasing, apply_brightness},
    {"Sharpness", enhance, apply_sharpness},
    {"SharpnessIncreasing", enhance_increasing, apply_sharpness},
    {"ShearX", shear,
     [](const Work& w) {
       move(w, {1, w.argument, 0, 0, 1, 0});
     }},
    {"ShearY", shear,
     [](const Work& w) {
       move(w, {1, 0, 0, w.argument, 1, 0});
     }},
    {"TranslateX", translate,
     [](const Work& w) {
       move(w, {1, 0, w.argument, 0, 1, 0});
     }},
    {"TranslateY", translate,
     [](const Work& w) {
       move(w, {1, 0, 0, 0, 1, w.argument});
     }},
    {"TranslateXRel", translate_share,
     [](const Work& w) {
       move(w, {1, 0, w.argument * w.image.width, 0, 1, 0});
     }},
    {"TranslateYRel", translate_share,
     [](const Work& w) {
       move(w, {1, 0, 0, 0, 1, w.argument * w.image.height});
     }},
    {"Desaturate", [](double s, const OpSettings&, bool) { return interpolate(0.5, 1, s); },
     [](const Work& w) { adjust_saturation(w.image, std::clamp(1 - w.argument, 0.0, 1.0)); }},
    {"GaussianBlur", [](double s, const OpSettings&, bool) { return interpolate(0.1, 2, s); },
     [](const Work& w) { w.image = gaussian_blur(w.image, w.argument); }},
    {"GaussianBlurRand", [](double s, const OpSettings&, bool) { return interpolate(0, 1, s); },
     [](const Work& w) { w.image = gaussian_blur(w.image, w.draws.uniform(0.1, 2 * w.argument)); }},
};

const Op& op_called(const std::string& name) {
  for (const Op& op : kOps)
    if (name == op.name) return op;
  fail_usage("unknown augmentation '", name, "'", did_you_mean(name, op_names()));
}

// ---- RandAugment's sets and AutoAugment's policies ----

using Names = std::vector<std::string>;
const Names kPlain = {"AutoContrast", "Equalize",    "Invert", "Rotate",        "Posterize",
                      "Solarize",     "SolarizeAdd", "Color",  "Contrast",      "Brightness",
                      "Sharpness",    "ShearX",      "ShearY", "TranslateXRel", "TranslateYRel"};
const Names kIncreasing = {"AutoContrast",
                           "Equalize",
                           "Invert",
                           "Rotate",
                           "PosterizeIncreasing",
                           "SolarizeIncreasing",
                           "SolarizeAdd",
                           "ColorIncreasing",
                           "ContrastIncreasing",
                           "BrightnessIncreasing",
                           "SharpnessIncreasing",
                           "ShearX",
                           "ShearY",
                           "TranslateXRel",
                           "TranslateYRel"};
const Names kThree = {"SolarizeIncreasing", "Desaturate", "GaussianBlur"};

struct Weighted {
  const char* name;
  double weight;
};
const std::vector<Weighted> kThreeWeighted = {{"SolarizeIncreasing", 6},
                                              {"Desaturate", 6},
                                              {"GaussianBlur", 6},
                                              {"Rotate", 3},
                                              {"ShearX", 2},
                                              {"ShearY", 2},
                                              {"PosterizeIncreasing", 1},
                                              {"AutoContrast", 1},
                                              {"ColorIncreasing", 1},
                                              {"SharpnessIncreasing", 1},
                                              {"ContrastIncreasing", 1},
                                              {"BrightnessIncreasing", 1},
                                              {"Equalize", 1},
                                              {"Invert", 1}};
const std::vector<Weighted> kWeighted = {{"Rotate", 3},
                                         {"ShearX", 2},
                                         {"ShearY", 2},
                                         {"TranslateXRel", 1},
                                         {"TranslateYRel", 1},
                                         {"ColorIncreasing", 0.25},
                                         {"SharpnessIncreasing", 0.25},
                                         {"AutoContrast", 0.25},
                                         {"SolarizeIncreasing", 0.05},
                                         {"SolarizeAdd", 0.05},
                                         {"ContrastIncreasing", 0.05},
                                         {"BrightnessIncreasing", 0.05},
                                         {"Equalize", 0.05},
                                         {"PosterizeIncreasing", 0.05},
                                         {"Invert", 0.05}};

struct Step {
  const char* name;
  double probability, magnitude;
};
using Steps = std::vector<std::vector<Step>>;

// The policy for ImageNet from the paper (table 9).
const Steps kOriginal = {{{"PosterizeOriginal", 0.4, 8}, {"Rotate", 0.6, 9}},
                         {{"Solarize", 0.6, 5}, {"AutoContrast", 0.6, 5}},
                         {{"Equalize", 0.8, 8}, {"Equalize", 0.6, 3}},
                         {{"PosterizeOriginal", 0.6, 7}, {"PosterizeOriginal", 0.6, 6}},
                         {{"Equalize", 0.4, 7}, {"Solarize", 0.2, 4}},
                         {{"Equalize", 0.4, 4}, {"Rotate", 0.8, 8}},
                         {{"Solarize", 0.6, 3}, {"Equalize", 0.6, 7}},
                         {{"PosterizeOriginal", 0.8, 5}, {"Equalize", 1.0, 2}},
                         {{"Rotate", 0.2, 3}, {"Solarize", 0.6, 8}},
                         {{"Equalize", 0.6, 8}, {"PosterizeOriginal", 0.4, 6}},
                         {{"Rotate", 0.8, 8}, {"Color", 0.4, 0}},
                         {{"Rotate", 0.4, 9}, {"Equalize", 0.6, 2}},
                         {{"Equalize", 0.0, 7}, {"Equalize", 0.8, 8}},
                         {{"Invert", 0.6, 4}, {"Equalize", 1.0, 8}},
                         {{"Color", 0.6, 4}, {"Contrast", 1.0, 8}},
                         {{"Rotate", 0.8, 8}, {"Color", 1.0, 2}},
                         {{"Color", 0.8, 8}, {"Solarize", 0.8, 7}},
                         {{"Sharpness", 0.4, 7}, {"Invert", 0.6, 8}},
                         {{"ShearX", 0.6, 5}, {"Equalize", 1.0, 9}},
                         {{"Color", 0.4, 0}, {"Equalize", 0.6, 3}},
                         {{"Equalize", 0.4, 7}, {"Solarize", 0.2, 4}},
                         {{"Solarize", 0.6, 5}, {"AutoContrast", 0.6, 5}},
                         {{"Invert", 0.6, 4}, {"Equalize", 1.0, 8}},
                         {{"Color", 0.6, 4}, {"Contrast", 1.0, 8}},
                         {{"Equalize", 0.8, 8}, {"Equalize", 0.6, 3}}};

// The policy of the EfficientNet code.
const Steps kVersion0 = {{{"Equalize", 0.8, 1}, {"ShearY", 0.8, 4}},
                         {{"Color", 0.4, 9}, {"Equalize", 0.6, 3}},
                         {{"Color", 0.4, 1}, {"Rotate", 0.6, 8}},
                         {{"Solarize", 0.8, 3}, {"Equalize", 0.4, 7}},
                         {{"Solarize", 0.4, 2}, {"Solarize", 0.6, 2}},
                         {{"Color", 0.2, 0}, {"Equalize", 0.8, 8}},
                         {{"Equalize", 0.4, 8}, {"SolarizeAdd", 0.8, 3}},
                         {{"ShearX", 0.2, 9}, {"Rotate", 0.6, 8}},
                         {{"Color", 0.6, 1}, {"Equalize", 1.0, 2}},
                         {{"Invert", 0.4, 9}, {"Rotate", 0.6, 0}},
                         {{"Equalize", 1.0, 9}, {"ShearY", 0.6, 3}},
                         {{"Color", 0.4, 7}, {"Equalize", 0.6, 0}},
                         {{"Posterize", 0.4, 6}, {"AutoContrast", 0.4, 7}},
                         {{"Solarize", 0.6, 8}, {"Color", 0.6, 9}},
                         {{"Solarize", 0.2, 4}, {"Rotate", 0.8, 9}},
                         {{"Rotate", 1.0, 7}, {"TranslateYRel", 0.8, 9}},
                         {{"ShearX", 0.0, 0}, {"Solarize", 0.8, 4}},
                         {{"ShearY", 0.8, 0}, {"Color", 0.6, 4}},
                         {{"Color", 1.0, 0}, {"Rotate", 0.6, 2}},
                         {{"Equalize", 0.8, 4}, {"Equalize", 0.0, 8}},
                         {{"Equalize", 1.0, 4}, {"AutoContrast", 0.6, 2}},
                         {{"ShearY", 0.4, 7}, {"SolarizeAdd", 0.6, 7}},
                         {{"Posterize", 0.8, 2}, {"Solarize", 0.6, 10}},
                         {{"Solarize", 0.6, 8}, {"Equalize", 0.6, 1}},
                         {{"Color", 0.8, 6}, {"Rotate", 0.4, 5}}};

const Steps kThreeAugment = {{{"Solarize", 1, 5}}, {{"Desaturate", 1, 10}}, {{"GaussianBlurRand", 1, 10}}};

// ---- parsing a description ----

// Splits "mstd0.5" into word and number. Unlike timm, treats a section without a number as an error.
std::pair<std::string, double> section(const std::string& part, const std::string& description) {
  const size_t digits = part.find_first_of("0123456789.");
  const auto number = digits == std::string::npos ? std::nullopt : parse_double(part.substr(digits));
  if (!number || digits == 0)
    fail_usage("augmentation '", description, "': '", part,
               "' is no setting, one is a word and a number as in m9");
  return {part.substr(0, digits), *number};
}

double deviation_of(double value) { return value > 100 ? std::numeric_limits<double>::infinity() : value; }

Policy named_policy(const std::string& name, const std::string& description) {
  const bool research = name == "originalr" || name == "v0r";  // posterisation increases with the magnitude
  const Steps* steps = name == "3a" ? &kThreeAugment : name.starts_with("v0") ? &kVersion0 : &kOriginal;
  if (name != "3a" && name != "v0" && name != "original" && !research)
    fail_usage("unknown augmentation '", description,
               "', must be rand-…, original, originalr, v0, v0r or 3a, as in rand-m9-mstd0.5-inc1");
  Policy policy;
  for (const auto& choice : *steps) {
    auto& ops = policy.choices.emplace_back();
    for (const Step& step : choice) {
      const bool swapped = research && std::string(step.name).starts_with("Posterize");
      ops.push_back({swapped ? "PosterizeIncreasing" : step.name, step.probability, step.magnitude});
    }
  }
  return policy;
}

Policy parse_named(const std::vector<std::string>& parts, const std::string& description) {
  Policy policy = named_policy(parts[0], description);
  for (size_t i = 1; i < parts.size(); ++i) {
    const auto [key, value] = section(parts[i], description);
    if (key != "mstd") fail_usage("augmentation '", description, "': '", key, "' is unknown, must be mstd");
    for (auto& choice : policy.choices)
      for (PolicyOp& op : choice) op.deviation = deviation_of(value);
  }
  return policy;
}

// Adds the operations of a set, each with the settings of `model`.
void add_set(const std::string& set, bool increasing, PolicyOp model, const std::string& description,
             Policy& policy) {
  if (!set.empty() && set != "3a" && set != "3aw" && set != "weights")
    fail_usage("augmentation '", description, "': the set '", set,
               "' is unknown, must be 3a, 3aw or weights");
  const auto add = [&](const std::string& name) {
    model.name = name;
    policy.choices.push_back({model});
  };
  if (set != "3aw" && set != "weights") {
    for (const std::string& name : set == "3a" ? kThree : increasing ? kIncreasing : kPlain) add(name);
    return;
  }
  for (const Weighted& op : set == "3aw" ? kThreeWeighted : kWeighted) {
    add(op.name);
    policy.weights.push_back(op.weight);
  }
  if (policy.layers > static_cast<int>(policy.choices.size()))
    fail_usage("augmentation '", description, "': n is more than the ", policy.choices.size(),
               " operations of the set");
}

Policy parse_rand(const std::vector<std::string>& parts, const std::string& description) {
  Policy policy;
  policy.layers = 2;
  PolicyOp model;
  bool increasing = false;
  std::string set;
  for (size_t i = 1; i < parts.size(); ++i) {
    if (parts[i].starts_with("t")) {
      set = parts[i].substr(1);
      continue;
    }
    const auto [key, value] = section(parts[i], description);
    if (key == "m")
      model.magnitude = value;
    else if (key == "n")
      policy.layers = static_cast<int>(std::clamp(value, 0.0, 100.0));
    else if (key == "p")
      model.probability = value;
    else if (key == "mstd")
      model.deviation = deviation_of(value);
    else if (key == "mmax")
      model.most = value;
    else if (key == "inc")
      increasing = value != 0;
    else
      fail_usage("augmentation '", description, "': '", key,
                 "' is unknown, must be m, n, p, mstd, mmax, inc or t");
  }
  add_set(set, increasing, model, description, policy);
  return policy;
}

// ---- drawing ----

size_t weighted_choice(const std::vector<double>& weights, Draws& draws) {
  double total = 0;
  for (const double w : weights) total += w;
  double at = draws.uniform(0, total);
  size_t last = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] <= 0) continue;
    last = i;
    if ((at -= weights[i]) < 0) break;
  }
  return last;
}

void apply_policy_op(const PolicyOp& op, const OpSettings& settings, Draws& draws, Image& image) {
  if (op.probability < 1 && draws.fraction() > op.probability) return;
  double magnitude = op.magnitude;
  if (std::isinf(op.deviation))
    magnitude = draws.uniform(0, magnitude);
  else if (op.deviation > 0)
    magnitude += op.deviation * draws.normal();
  magnitude = std::clamp(magnitude, 0.0, op.most);
  // Every operation draws a sign, so that later draws do not depend on the choice of the operation.
  const bool negative = draws.fraction() > 0.5;
  apply_op(op.name, op_argument(op.name, magnitude, settings, negative).value_or(0), settings, draws, image);
}

}  // namespace

std::vector<std::string> op_names() {
  std::vector<std::string> names;
  for (const Op& op : kOps) names.emplace_back(op.name);
  return names;
}

std::optional<double> op_argument(const std::string& name, double magnitude, const OpSettings& settings,
                                  bool negative) {
  const Op& op = op_called(name);
  if (!op.argument) return std::nullopt;
  return op.argument(magnitude / kTop, settings, negative);
}

void apply_op(const std::string& name, double argument, const OpSettings& settings, Draws& draws,
              Image& image) {
  op_called(name).apply({image, argument, settings, draws});
}

Policy parse_policy(const std::string& description) {
  const std::vector<std::string> parts = split(description, '-');
  return parts[0] == "rand" ? parse_rand(parts, description) : parse_named(parts, description);
}

void apply_policy(const Policy& policy, const OpSettings& settings, Draws& draws, Image& image) {
  std::vector<double> weights = policy.weights;
  for (int layer = 0; layer < policy.layers; ++layer) {
    size_t choice = 0;
    if (weights.empty()) {
      choice = static_cast<size_t>(draws.integer(0, static_cast<int64_t>(policy.choices.size()) - 1));
    } else {
      choice = weighted_choice(weights, draws);
      weights[choice] = 0;
    }
    for (const PolicyOp& op : policy.choices[choice]) apply_policy_op(op, settings, draws, image);
  }
}

}  // namespace tessera::data
