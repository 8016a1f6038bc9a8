// components/aug_*: colours, blurs, RandAugment's operations and tables, random erasing.
#include <cmath>
#include <cstring>

#include "core/error.h"
#include "core/text.h"
#include "data/transforms/augment_erase.h"
#include "data/transforms/augment_operations.h"
#include "data/transforms/augment_policy.h"
#include "nn/position.h"
#include "tests/parity/case.h"
#include "tests/parity/image_case.h"

namespace tessera::parity::augment_cases {
namespace {

using Json = nlohmann::json;
using namespace data;  // NOLINT: the operations are what this file is about

// "output.hue.-0.5" begins with the name of a thing done; what follows it is a number.
double number_after(const std::string& name, size_t prefix) {
  const auto value = parse_double(name.substr(prefix));
  check(value.has_value(), "'", name, "' does not end in a number");
  return *value;
}

void adjust(const std::string& what, double value, Image& image) {
  if (what == "brightness")
    adjust_brightness(image, value);
  else if (what == "contrast")
    adjust_contrast(image, value);
  else if (what == "saturation")
    adjust_saturation(image, value);
  else if (what == "hue")
    adjust_hue(image, value);
  else if (what == "gamma")
    adjust_gamma(image, value);
  else if (what == "grayscale")
    grayscale(image);
  else if (what == "solarize")
    solarize(image, static_cast<int>(value));
  else if (what == "gaussian_blur")
    image = gaussian_blur(image, value);
  else if (what == "box_blur")
    image = box_blur(image, value);
  else if (what == "gray_L")
    image = luma(image);
  else if (what == "hsv")
    image = to_hsv(image);
  else
    fail("no operation is called '", what, "'");
}

// output.WHAT, output.WHAT.NUMBER and output.sequenceN.
CaseResult check_adjustments(const Golden& golden) {
  Comparison compare;
  const Image input = image_of(golden.view("input.rgb"));
  for (const std::string& name : golden.names("output.")) {
    Image got = input;
    if (name.starts_with("sequence")) {
      const auto index = static_cast<size_t>(number_after(name, 8));
      for (const Json& step : golden.config()["sequences"].at(index)) adjust(step[0], step[1], got);
    } else {
      const size_t dot = name.find('.');
      adjust(name.substr(0, dot), dot == std::string::npos ? 0 : number_after(name, dot + 1), got);
    }
    expect_picture(compare, golden, "output." + name, got);
  }
  return compare.result();
}

// output.OP.mMAGNITUDE[.neg][.FILTER], its argument in config, and output.rotate_deg.DEGREES.FILTER.
CaseResult check_operations(const Golden& golden) {
  Comparison compare;
  const Json& config = golden.config();
  const Image input = image_of(golden.view("input.rgb"));
  RandomStream stream(0, "unused");
  StreamDraws draws(stream);
  OpSettings settings;
  settings.translate_pixels = config["translate_const"];
  for (size_t c = 0; c < 3; ++c) settings.fill[c] = config["img_mean"][c];
  for (const auto& [key, arguments] : config["args"].items()) {
    const std::vector<std::string> parts = split(key, '.');
    const std::string &op = parts.at(1), rest = key.substr(parts[0].size() + op.size() + 3);
    const bool negative = rest.find(".neg") != std::string::npos;
    const bool bilinear = parts.back() == "bilinear";
    settings.interpolation = bilinear ? Interpolation::bilinear : Interpolation::bicubic;
    const std::string number = rest.substr(0, rest.find_first_not_of("0123456789."));
    const double magnitude =
        *parse_double(number.ends_with('.') ? number.substr(0, number.size() - 1) : number);
    const auto argument = op_argument(op, magnitude, settings, negative);
    compare.holds("argument of " + key,
                  argument.has_value() == !arguments.empty() &&
                      (!argument || std::abs(*argument - arguments[0].get<double>()) <= 1e-12),
                  text("is ", argument.value_or(0), ", must be ", arguments.dump()));
    Image got = input;
    apply_op(op, argument.value_or(0), settings, draws, got);
    if (golden.has(key)) expect_picture(compare, golden, key, got);
  }
  for (const std::string& name : golden.names("output.rotate_deg.")) {
    const std::string filter = split(name, '.').back();
    const double degrees = *parse_double(name.substr(0, name.size() - filter.size() - 1));
    expect_picture(compare, golden, "output.rotate_deg." + name,
                   rotate(input, degrees, parse_interpolation(filter), settings.fill));
  }
  return compare.result();
}

bool same_ops(const std::vector<PolicyOp>& got, const Json& want) {
  if (got.size() != want.size()) return false;
  for (size_t i = 0; i < got.size(); ++i) {
    const bool bounded = want[i].contains("mmax") && !want[i]["mmax"].is_null();
    if (got[i].name != want[i]["name"].get<std::string>() ||
        got[i].probability != want[i]["prob"].get<double>() ||
        got[i].magnitude != want[i]["magnitude"].get<double>() ||
        got[i].deviation != want[i].value("mstd", 0.0) ||
        got[i].most != (bounded ? want[i]["mmax"].get<double>() : 10))
      return false;
  }
  return true;
}

CaseResult check_policies(const Golden& golden) {
  Comparison compare;
  const Json& config = golden.config();
  for (const auto& [description, want] : config["rand_augment"].items()) {
    const Policy policy = parse_policy(description);
    std::vector<PolicyOp> ops;
    for (const auto& choice : policy.choices) ops.push_back(choice.at(0));
    compare.holds(description, policy.layers == want["num_layers"].get<int>() && same_ops(ops, want["ops"]),
                  "has other operations");
  }
  for (const auto& [name, want] : config["policies"].items()) {
    const Policy policy = parse_policy(name);
    bool same = policy.choices.size() == want.size();
    for (size_t i = 0; same && i < want.size(); ++i) same = same_ops(policy.choices[i], want[i]);
    compare.holds(name, same, "has other operations");
  }
  OpSettings settings;
  settings.translate_pixels = config["level_translate_const"];
  for (const auto& [op, levels] : config["level_to_arg"].items())
    for (const auto& [level, arguments] : levels.items()) {
      const double got = op_argument(op, *parse_double(level), settings, false).value_or(NAN);
      const double want = arguments[0];
      compare.holds(op + " at " + level, std::abs(got - want) <= 1e-12 * std::abs(want),
                    text("is ", got, ", must be ", want));
    }
  return compare.result();
}

CaseResult check_erasing(const Golden& golden) {
  Comparison compare;
  const Json& cases = golden.config()["cases"];
  for (size_t i = 0; i < cases.size(); ++i) {
    const Json& c = cases[i];
    EraseConfig config;
    config.mode = c.value("mode", "const");
    config.probability = c["probability"];
    config.least_count = c["min_count"];
    config.most_count = c["max_count"];
    config.least_area = c["min_area"];
    config.most_area = c["max_area"];
    config.least_aspect = c["min_aspect"];
    ListedDraws draws = recorded_draws(c["draws"]);
    torch::Tensor x = golden.tensor(text("input.case", i)).contiguous();
    erase(config, 3, c["h"], c["w"], draws, x.data_ptr<float>());
    compare.holds(text("draws of case ", i), draws.used_up(), "are not all used");
    compare.equal(text("output.case", i), x, golden.tensor(text("output.case", i)));
  }
  return compare.result();
}

// output.FILTER.aaN.HEIGHTxWIDTH of float pictures: what positions and features are interpolated with.
CaseResult check_resample(const Golden& golden) {
  const Json tolerance = golden.meta.value("tolerance", Json::object());
  Comparison compare;
  for (const torch::ScalarType dtype : {torch::kFloat64, torch::kFloat32})
    for (const std::string& name : golden.names("output.")) {
      const std::vector<std::string> parts = split(name, '.'), sides = split(parts.at(2), 'x');
      const bool smooth = parts[1] == "aa1", cubic = parts[0] == "bicubic";
      const nn::Resample how = cubic ? (smooth ? nn::Resample::bicubic_antialias : nn::Resample::bicubic)
                                     : (smooth ? nn::Resample::bilinear_antialias : nn::Resample::bilinear);
      const torch::Tensor grid = golden.tensor("input.x", dtype)[0].permute({1, 2, 0});
      const torch::Tensor got =
          nn::resample_grid(grid, parse_int(sides.at(0)).value(), parse_int(sides.at(1)).value(), how);
      compare.close(name, got.permute({2, 0, 1}).unsqueeze(0), golden.tensor("output." + name),
                    tolerance.value("rtol", 1e-4), tolerance.value("atol", 1e-4));
    }
  return compare.result();
}

const Registered registered({
    {"augment_adjustments",
     check_adjustments,
     {"components/aug_color_jitter", "components/aug_three_augment"}},
    {"augment_operations", check_operations, {"components/aug_randaugment_ops"}},
    {"policies", check_policies, {"components/aug_randaugment_config"}},
    {"random_erasing", check_erasing, {"components/aug_random_erasing"}},
    {"resize_tensor", check_resample, {"components/aug_resize_tensor"}},
});

}  // namespace
}  // namespace tessera::parity::augment_cases
