// components/aug_segmentation, aug_photometric_mmseg, metric_segmentation, metric_slide_inference.
#include <algorithm>
#include <cmath>
#include <regex>

#include "core/error.h"
#include "core/text.h"
#include "data/transforms/augment_operations.h"
#include "data/transforms/segmentation_crop.h"
#include "eval/segmentation.h"
#include "tasks/dense/pixel_scores.h"
#include "tests/parity/image_case.h"

namespace tessera::parity::mask_cases {
namespace {

using Json = nlohmann::json;

// [kind, low, high, [values]] each; NumPy's randint leaves out its upper bound.
data::ListedDraws numpy_draws(const Json& draws) {
  std::vector<data::RecordedDraw> out;
  for (const Json& draw : draws) {
    const std::string kind = draw.at(0);
    const Json& value = draw.at(3).is_array() ? draw.at(3).at(0) : draw.at(3);
    out.push_back({kind, draw.at(1), draw.at(2).get<double>() - (kind == "randint" ? 1 : 0), value});
  }
  return data::ListedDraws(std::move(out));
}

torch::Tensor bytes_of(const Image& image) {
  const torch::Tensor flat =
      torch::tensor(at::ArrayRef<uint8_t>(image.pixels.data(), image.pixels.size()), torch::kUInt8);
  if (image.channels == 1) return flat.reshape({image.height, image.width});
  return flat.reshape({image.height, image.width, image.channels});
}

// Whether the third or fourth coin of the draws of one image says yes: saturation or hue.
bool passes_hsv(const Json& draws) {
  size_t at = 0;
  const auto coin = [&](bool draws_more) {
    const bool yes = draws.at(at).at(3).at(0).get<int>() == 1;
    at += yes && draws_more ? 2 : 1;
    return yes;
  };
  coin(true);                   // brightness
  if (coin(false)) coin(true);  // contrast now
  return coin(true) || coin(true);
}

// Returns the scale that the drawn factors multiply: the config's, else the smallest with the steps' scales.
std::vector<int64_t> base_scale(const Json& config) {
  if (config.contains("base_scale")) return config.at("base_scale").get<std::vector<int64_t>>();
  std::vector<int64_t> base = {1, 1};
  for (const auto& [name, step] : config.items()) {
    if (!name.starts_with("step")) continue;
    const double factor = step.at("draws").at(0).at(3).at(0);
    for (size_t side = 0; side < 2; ++side) {
      const double least = step.at("scale").at(side).get<double>() / factor;
      base[side] = std::max(base[side], static_cast<int64_t>(std::ceil(least - 1e-9)));
    }
  }
  return base;
}

// Returns the largest share of one class in a crop, which the notes give: "with cat_max_ratio 0.75".
double most_of_one_class(const Golden& golden) {
  std::smatch found;
  const std::string notes = golden.meta.value("notes", Json()).dump();
  static const std::regex share("cat_max_ratio (\\d*\\.?\\d+)");
  const double noted = std::regex_search(notes, found, share) ? std::stod(found[1]) : 0.75;
  return golden.config().value("cat_max_ratio", noted);
}

// The sides that every size of the table, and the crops of the steps, were made with.
void check_steps(const Golden& golden, Comparison& compare) {
  const Json& config = golden.config();
  const Image picture = image_of(golden.view("input.image")), mask = image_of(golden.view("input.label"));
  for (const auto& [name, step] : config.items()) {
    if (!name.starts_with("step")) continue;
    const auto& shape = golden.view(name + "/output.label").shape;
    const data::Extent size{static_cast<int>(shape.at(0)), static_cast<int>(shape.at(1))};
    data::SegmentationCrop crop;
    crop.scale = base_scale(config);
    crop.ratio = {step["draws"][0][1], step["draws"][0][2]};
    crop.most_of_one_class = most_of_one_class(golden);
    data::ListedDraws draws = numpy_draws(step["draws"]);
    const data::CropPlan plan = data::plan_crop(mask, crop, size, 255, draws);
    compare.holds(name + " draws", draws.used_up(), "are not all used");
    compare.holds(name + " size", Json({plan.resized.width, plan.resized.height}) == step["resized_wh"],
                  text("is ", plan.resized.width, "x", plan.resized.height));
    const Box& w = plan.window;
    if (const Json& wanted = step["crop_y0y1x0x1"]; wanted.is_array())
      compare.holds(name + " crop", w.top == wanted[0].get<int>() && w.left == wanted[2].get<int>(),
                    "is elsewhere");
    compare.holds(name + " flip", plan.mirrored == step["flip"].get<bool>(), "is another");
    compare.equal(name + "/output.label", bytes_of(data::padded_to(data::crop_mask(mask, plan), size, 255)),
                  golden.tensor(name + "/output.label"));
    compare.equal(name + "/output.image",
                  bytes_of(data::padded_to(data::crop_picture(picture, plan), size, 0)),
                  golden.tensor(name + "/output.image"));
  }
}

CaseResult check_segmentation_augment(const Golden& golden) {
  Comparison compare;
  for (const Json& row : golden.config().at("rescale_table")) {
    const data::Extent got = data::fit_into({row.at(1), row.at(0)}, {row.at(2), row.at(3)});
    compare.holds("rescale " + row.dump(),
                  got.width == row.at(4).get<int>() && got.height == row.at(5).get<int>(),
                  text("gives ", got.width, "x", got.height));
  }
  check_steps(golden, compare);
  Image labels = image_of(golden.view("reduce_zero/input.label"));
  eval::reduce_zero_label(labels.pixels);
  compare.equal("reduce_zero", bytes_of(labels), golden.tensor("reduce_zero/output.label"));
  return compare.result();
}

CaseResult check_photometric(const Golden& golden) {
  Comparison compare;
  const Json& config = golden.config();
  data::PhotometricConfig photometric;
  photometric.brightness = config.value("brightness_delta", 32.0);
  photometric.hue = config.value("hue_delta", 18);
  for (size_t i = 0; i < 2; ++i) {
    photometric.contrast[i] = config.at("contrast_range").at(i);
    photometric.saturation[i] = config.at("saturation_range").at(i);
  }
  for (const auto& [name, listed] : config.at("draws").items()) {
    const std::string word = name.substr(0, name.find_last_not_of("0123456789") + 1);
    Image image = image_of(golden.view("input." + (word == "rgb" ? "image" : word)));
    data::ListedDraws draws = numpy_draws(listed);
    distort_photometrically(photometric, draws, image);
    compare.holds(name + " draws", draws.used_up(), "are not all used");
    const torch::Tensor got = bytes_of(image).to(torch::kFloat64),
                        want = golden.tensor(name + "/output.image").to(torch::kFloat64);
    const torch::Tensor apart = (got - want).abs();
    const double most = apart.max().item<double>(), mean = apart.mean().item<double>();
    // Bytes pass through HSV where a saturation or a hue was drawn; OpenCV rounds otherwise there.
    const bool exact = !passes_hsv(listed);
    compare.holds(name, exact ? most == 0 : most <= 8 && mean < 0.5,
                  text("differs by at most ", most, ", ", mean, " on average"));
  }
  const Image input = image_of(golden.view("input.image"));
  const Image hsv = image_of(golden.view("hsv/output.hsv"));
  torch::Tensor apart = (bytes_of(data::to_half_degree_hsv(input)).to(torch::kInt32) -
                         golden.tensor("hsv/output.hsv").to(torch::kInt32))
                            .abs();
  apart.select(2, 0).copy_(torch::minimum(apart.select(2, 0), 180 - apart.select(2, 0)));
  compare.holds("hsv", apart.max().item<int>() <= 1, text("differs by ", apart.max().item<int>()));
  const torch::Tensor back = (bytes_of(data::from_half_degree_hsv(hsv)).to(torch::kInt32) -
                              golden.tensor("hsv/output.back").to(torch::kInt32))
                                 .abs();
  compare.holds("back from hsv", back.max().item<int>() <= 1, text("differs by ", back.max().item<int>()));
  return compare.result();
}

CaseResult check_segmentation_metric(const Golden& golden) {
  Comparison compare;
  const Json& config = golden.config();
  const Json& results = config.at("results");
  const int ignored = config.value("ignore_index", 255);
  eval::SegmentationMeter meter(config.at("num_classes"));
  for (const std::string& name : golden.names("input.raw_label")) {
    Image labels = image_of(golden.view("input.raw_label" + name));
    const Image predicted = image_of(golden.view("input.pred" + name));
    eval::reduce_zero_label(labels.pixels, static_cast<uint8_t>(ignored));
    compare.equal("output.label" + name, bytes_of(labels), golden.tensor("output.label" + name));
    meter.add(predicted.pixels, labels.pixels, ignored);
  }
  const eval::SegmentationScores scores = meter.scores();
  const auto same = [&](const std::string& what, double got, const Json& want) {
    const bool close =
        want.is_null() ? std::isnan(got) : std::abs(got - want.get<double>()) <= 1e-9 * std::abs(got);
    compare.holds(what, close, text("is ", got, ", must be ", want.dump()));
  };
  for (size_t c = 0; c < scores.classes.size(); ++c) {
    const eval::SegmentationClass& one = scores.classes[c];
    const auto counted = [&](const char* key, int64_t got) {
      compare.holds(text(key, " of class ", c), results.at(key).at(c) == got, text("is ", got));
    };
    counted("intersect", one.right), counted("union", one.joined);
    counted("pred", one.predicted), counted("label", one.labelled);
    same(text("iou of class ", c), one.iou, results.at("iou").at(c));
    same(text("acc of class ", c), one.accuracy, results.at("acc").at(c));
    same(text("dice of class ", c), one.dice, results.at("dice").at(c));
  }
  same("mIoU", scores.mean_iou, results.at("mIoU"));
  same("mAcc", scores.mean_accuracy, results.at("mAcc"));
  same("aAcc", scores.pixel_accuracy, results.at("aAcc"));
  same("mDice", scores.mean_dice, results.at("mDice"));
  return compare.result();
}

CaseResult check_sliding(const Golden& golden) {
  Comparison compare;
  const Json& config = golden.config();
  for (const Json& row : config.at("windows")) {
    Json got = Json::array();
    for (const eval::Window& w :
         eval::sliding_windows(row.at("h"), row.at("w"), row.at("crop"), row.at("stride")))
      got.push_back({w.top, w.bottom, w.left, w.right});
    compare.holds(text("windows of ", row.at("h"), "x", row.at("w")), got == row.at("windows_y1y2x1x2"),
                  "are others");
  }
  const Json& toy = config.at("toy");
  const int crop = toy.at("crop"), stride = toy.at("stride");
  for (const torch::ScalarType dtype : {torch::kFloat64, torch::kFloat32}) {
    const torch::Tensor x = golden.tensor("input.x", dtype), weight = golden.tensor("input.weight", dtype),
                        bias = golden.tensor("input.bias", dtype);
    const int64_t height = x.size(2), width = x.size(3);
    const auto score = [&](const torch::Tensor& images) { return torch::conv2d(images, weight, bias, 1, 1); };
    const auto close = [&](const std::string& name, const torch::Tensor& got) {
      compare.close(name, got, golden.tensor("output." + name), 1e-5, 1e-5);
    };
    for (const int64_t at_once : {1, 3})
      close("slide.logits", tasks::sliding_scores(x, {crop, stride}, at_once, score));
    torch::Tensor count = torch::zeros({1, 1, height, width}, dtype);
    for (const eval::Window& w :
         eval::sliding_windows(static_cast<int>(height), static_cast<int>(width), crop, stride))
      count.slice(2, w.top, w.bottom).slice(3, w.left, w.right).add_(1);
    close("slide.count", count);
    std::vector<tasks::ScoredView> views;
    for (const Json& scale : toy.at("scales")) {
      const auto side = [&](int64_t length) {
        return static_cast<int64_t>(static_cast<double>(length) * scale.get<double>() + 0.5);
      };
      const torch::Tensor scaled = tasks::resize_scores(x, side(height), side(width));
      for (const bool mirrored : {false, true})
        views.push_back(
            {tasks::sliding_scores(mirrored ? scaled.flip({3}) : scaled, {crop, stride}, 2, score),
             mirrored});
    }
    const torch::Tensor fused = tasks::fuse_views(views, height, width, tasks::Fusion::probabilities);
    close("msflip.mean_prob", fused);
    close("msflip.mean_logits", tasks::fuse_views(views, height, width, tasks::Fusion::scores));
    compare.equal("msflip.pred", fused.argmax(1).to(torch::kUInt8), golden.tensor("output.msflip.pred"));
  }
  return compare.result();
}

const Registered registered({
    {"segmentation_augment", check_segmentation_augment, {"components/aug_segmentation"}},
    {"photometric_augment", check_photometric, {"components/aug_photometric"}},
    {"segmentation_metric", check_segmentation_metric, {"components/metric_segmentation"}},
    {"sliding_windows", check_sliding, {"components/metric_slide"}},
});

}  // namespace
}  // namespace tessera::parity::mask_cases
