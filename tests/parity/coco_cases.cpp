// components/metric_coco* and aug_detection.
#include <algorithm>
#include <cmath>
#include <regex>
#include <set>

#include "core/error.h"
#include "core/text.h"
#include "data/base/geometry_map.h"
#include "data/sources/coco_file.h"
#include "data/transforms/resize.h"
#include "eval/coco.h"
#include "tests/parity/detection_case.h"
#include "tests/parity/image_case.h"

namespace tessera::parity::coco_cases {
namespace {

using Json = nlohmann::json;

// --- AP and AR ---

std::vector<eval::CocoObject> truths_of(const data::CocoFile& file) {
  std::map<int64_t, const data::CocoImage*> images;
  for (const data::CocoImage& image : file.images) images[image.number] = &image;
  std::vector<eval::CocoObject> out;
  for (const data::CocoAnnotation& a : file.annotations) {
    eval::CocoObject object{
        .image = a.image, .category = a.category, .box = a.box, .area = a.area, .crowd = a.crowd};
    const data::CocoImage& image = *images.at(a.image);
    object.mask = std::make_shared<RunLengths>(data::runs_of_outline(a.outline, image.height, image.width));
    out.push_back(std::move(object));
  }
  return out;
}

std::vector<eval::CocoObject> detections_of(const std::vector<data::CocoResult>& results) {
  std::vector<eval::CocoObject> out;
  for (const data::CocoResult& r : results) {
    eval::CocoObject object{.image = r.image, .category = r.category, .box = r.box, .score = r.score};
    const bool masked = !r.mask.counts.empty();
    object.area = masked ? static_cast<double>(area_of(r.mask)) : r.box.width * r.box.height;
    if (masked) object.mask = std::make_shared<RunLengths>(r.mask);
    out.push_back(std::move(object));
  }
  return out;
}

class CocoCase {
 public:
  explicit CocoCase(const Golden& golden) : golden_(golden), files_(golden.config().at("files")) {
    file_ = data::read_coco(path("gt"));
    truths_ = truths_of(file_);
    for (const char* kind : {"bbox", "segm"})
      detections_[kind] = detections_of(data::read_coco_results(path(kind)));
    for (const data::CocoImage& image : file_.images) images_.push_back(image.number);
    for (const data::CocoCategory& category : file_.categories) categories_.push_back(category.number);
  }

  void check_result(Comparison& comparison, const std::string& name, const Json& wanted) {
    eval::CocoSettings settings{.images = images_, .categories = categories_};
    const bool of_masks = name.starts_with("segm") && name.find("bbox_from") == std::string::npos;
    std::vector<eval::CocoObject> detections =
        detections_[name.starts_with("segm") || name == "bbox_from_masks" ? "segm" : "bbox"];
    settings.overlap = of_masks ? eval::Overlap::masks : eval::Overlap::boxes;
    settings.by_class = name.find("class_agnostic") == std::string::npos;
    if (wanted.contains("imgIds")) settings.images = numbers(wanted.at("imgIds"));
    if (wanted.contains("catIds")) settings.categories = numbers(wanted.at("catIds"));
    if (wanted.contains("maxDets")) settings.most = numbers(wanted.at("maxDets"));
    if (name.ends_with("own_areas")) {
      settings.areas.clear();
      for (const Json& range : golden_.config().at("own_areas"))
        settings.areas.emplace_back(range[0].get<double>(), range[1].get<double>());
    }
    if (name.find("no_crowd_images") != std::string::npos || name.find("only_") != std::string::npos)
      settings.images = images_like(name);
    if (name.ends_with("perfect")) {
      detections.clear();
      for (eval::CocoObject object : truths_)
        if (!object.crowd) {
          object.score = 1, object.area = object.box.width * object.box.height;
          detections.push_back(object);
        }
    }
    std::vector<eval::CocoObject> truths = truths_;
    if (name == "fakebbox_vs_fakesegm_boxes" || golden_.name.find("fake") != std::string::npos)
      settings.images = half_of_images(settings.images);
    const eval::CocoScores scores = eval::evaluate_coco(truths, detections, settings);
    compare_scores(comparison, name, wanted, scores, settings);
    if (wanted.contains("num_gt"))
      comparison.holds(name + " num_gt", wanted.at("num_gt") == truths.size(),
                       text(truths.size(), " of them"));
  }

  void check_matches(Comparison& comparison, const Json& wanted) {
    const eval::CocoSettings settings{.images = images_, .categories = categories_};
    const auto& detections = detections_["bbox"];
    for (const Json& one : wanted) {
      const eval::CocoMatches m =
          eval::match_coco(truths_, detections, settings, one.at("image_id"), one.at("category_id"), 0.5);
      std::vector<int64_t> ids, partners, truths, taken;
      for (size_t i = 0; i < m.detections.size(); ++i) {
        ids.push_back(m.detections[i] + 1);
        partners.push_back(m.of_detection[i] < 0 ? 0 : number_of(m.of_detection[i]));
      }
      for (size_t i = 0; i < m.truths.size(); ++i) {
        truths.push_back(number_of(m.truths[i]));
        taken.push_back(m.of_truth[i] + 1);
      }
      const std::string where = text("image ", one.at("image_id"), " category ", one.at("category_id"), " ");
      comparison.holds(where + "dtIds", ids == numbers(one.at("dtIds")), "other detections");
      comparison.holds(where + "gtIds", truths == numbers(one.at("gtIds")), "other truths");
      comparison.holds(where + "dtMatches", partners == numbers(one.at("dtMatches_iou50")), "other matches");
      comparison.holds(where + "gtMatches", taken == numbers(one.at("gtMatches_iou50")), "other matches");
    }
  }

  void check_overlaps(Comparison& comparison, const Json& wanted) {
    const eval::CocoSettings settings{.images = images_, .categories = categories_};
    for (const auto& [key, rows] : wanted.items()) {
      const size_t mark = key.find('_');
      const auto got = eval::coco_overlaps(truths_, detections_["bbox"], settings,
                                           std::stoll(key.substr(0, mark)), std::stoll(key.substr(mark + 1)));
      const auto want = rows.get<std::vector<std::vector<double>>>();
      bool same = got.size() == want.size();
      for (size_t i = 0; same && i < got.size(); ++i)
        for (size_t j = 0; j < got[i].size(); ++j) same = same && std::abs(got[i][j] - want[i][j]) < 1e-12;
      comparison.holds("overlaps " + key, same, "other numbers");
    }
  }

 private:
  std::string path(const char* kind) const {
    return golden_.directory + "/" + files_.at(kind).get<std::string>();
  }
  int64_t number_of(int64_t truth) const { return file_.annotations[static_cast<size_t>(truth)].number; }

  std::vector<int64_t> half_of_images(std::vector<int64_t> images) const {
    if (!golden_.config().contains("images")) return images;
    std::sort(images.begin(), images.end());
    return images;
  }

  // Images by what is annotated in them: "no_crowd_images", "only_crowd_image", "only_empty_image".
  std::vector<int64_t> images_like(const std::string& name) const {
    std::vector<int64_t> out;
    for (const int64_t image : images_) {
      int64_t crowds = 0, others = 0;
      for (const eval::CocoObject& truth : truths_)
        if (truth.image == image) (truth.crowd ? crowds : others) += 1;
      const bool taken = name.ends_with("no_crowd_images")    ? crowds == 0
                         : name.ends_with("only_crowd_image") ? crowds > 0 && others == 0
                                                              : crowds == 0 && others == 0;
      if (taken) out.push_back(image);
    }
    return out;
  }

  static void compare_scores(Comparison& comparison, const std::string& name, const Json& wanted,
                             const eval::CocoScores& scores, const eval::CocoSettings& settings) {
    const auto close = [&](const std::string& key, double got, const Json& want) {
      comparison.close(name + " " + key, torch::tensor(got, torch::kFloat64),
                       torch::tensor(want.get<double>(), torch::kFloat64), 0, 1e-9);
    };
    const auto stats = [&](const Json& of) {
      for (const auto& [key, want] : of.items()) {
        if (key == "AP")
          close(key, scores.precision(), want);
        else if (key == "AP50")
          close(key, scores.precision(0), want);
        else if (key == "AP75")
          close(key, scores.precision(5), want);
        else if (name.ends_with("own_areas"))
          continue;  // own ranges have no such names
        else if (key == "APs")
          close(key, scores.precision(-1, 1), want);
        else if (key == "APm")
          close(key, scores.precision(-1, 2), want);
        else if (key == "APl")
          close(key, scores.precision(-1, 3), want);
        else if (key == "AR1")
          close(key, scores.recall(0, -1, 0), want);
        else if (key == "AR10")
          close(key, scores.recall(0, -1, 1), want);
        else if (key == "AR100")
          close(key, scores.recall(0, -1, 2), want);
        else if (key == "ARs")
          close(key, scores.recall(1), want);
        else if (key == "ARm")
          close(key, scores.recall(2), want);
        else if (key == "ARl")
          close(key, scores.recall(3), want);
      }
    };
    stats(wanted.contains("stats") ? wanted.at("stats") : wanted);
    for (const char* key : {"AP", "AP50", "AP75"})
      if (wanted.contains(key)) stats(Json{{key, wanted.at(key)}});
    const auto each = [&](const char* key, const auto& value) {
      if (!wanted.contains(key)) return;
      for (size_t i = 0; i < wanted.at(key).size(); ++i)
        close(text(key, " ", i), value(static_cast<int64_t>(i)), wanted.at(key)[i]);
    };
    each("AP_area", [&](int64_t i) { return scores.precision(-1, i); });
    each("AR_area", [&](int64_t i) { return scores.recall(i); });
    each("AR_maxdets", [&](int64_t i) { return scores.recall(0, -1, i); });
    each("AP_per_iou", [&](int64_t i) { return scores.precision(i); });
    std::vector<int64_t> categories = settings.categories;
    std::sort(categories.begin(), categories.end());
    const auto by_category = [&](const char* key, const auto& value) {
      if (!wanted.contains(key)) return;
      for (const auto& [category, want] : wanted.at(key).items()) {
        const auto at =
            std::find(categories.begin(), categories.end(), std::stoll(category)) - categories.begin();
        close(text(key, " ", category), value(static_cast<int64_t>(at)), want);
      }
    };
    by_category("AP_per_category", [&](int64_t k) { return scores.precision(-1, 0, k); });
    by_category("per_category_AP", [&](int64_t k) { return scores.precision(-1, 0, k); });
    by_category("AP50_per_category", [&](int64_t k) { return scores.precision(0, 0, k); });
    by_category("AR_per_category", [&](int64_t k) { return scores.recall(0, k); });
  }

  const Golden& golden_;
  Json files_;
  data::CocoFile file_;
  std::vector<eval::CocoObject> truths_;
  std::map<std::string, std::vector<eval::CocoObject>> detections_;
  std::vector<int64_t> images_, categories_;
};

// --- Run lengths ---

RunLengths stored_runs(const Json& entry) {
  const std::vector<int64_t> size = numbers(entry.at("size"));
  return parse_runs(entry.at("counts_compressed").get<std::string>(), size[0], size[1]);
}

CaseResult check_runs(const Golden& golden) {
  Comparison comparison;
  const Json& config = golden.config();
  const auto describe = [&](const std::string& what, const RunLengths& runs, const Json& entry) {
    comparison.holds(what + " compressed", compress_runs(runs) == entry.at("counts_compressed"),
                     "other characters");
    comparison.holds(what + " area", area_of(runs) == entry.at("area"), "another number");
    const RunBox box = bounds_of(runs);
    comparison.holds(what + " bbox",
                     std::vector<double>{box.left, box.top, box.width, box.height} ==
                         entry.at("bbox").get<std::vector<double>>(),
                     "another box");
    comparison.holds(what + " read", stored_runs(entry) == runs, "other runs");
  };
  for (size_t i = 0; i < config.at("masks").size(); ++i) {
    const Json& entry = config.at("masks")[i];
    RunLengths runs = stored_runs(entry);
    if (golden.has(text("input.mask", i)) && !entry.at("mask").is_null()) {
      const torch::Tensor mask =
          golden.tensor(text("input.mask", entry.at("mask").get<int64_t>())).contiguous();
      const std::span<const uint8_t> pixels{mask.const_data_ptr<uint8_t>(),
                                            static_cast<size_t>(mask.numel())};
      runs = runs_of_mask(pixels, mask.size(0), mask.size(1));
      const std::vector<uint8_t> back = mask_of_runs(runs);
      comparison.holds(text("mask ", i, " decoded"), std::equal(back.begin(), back.end(), pixels.begin()),
                       "other pixels");
    }
    if (entry.contains("counts_uncompressed"))
      comparison.holds(text("mask ", i, " counts"),
                       runs.counts == entry.at("counts_uncompressed").get<std::vector<uint32_t>>(),
                       "other runs");
    describe(text("mask ", i), runs, entry);
  }
  std::vector<RunLengths> polygons;
  for (size_t i = 0; i < config.at("polygons").size(); ++i) {
    const Json& entry = config.at("polygons")[i];
    const std::vector<int64_t> size = numbers(entry.at("size"));
    polygons.push_back(runs_of_polygon(entry.at("polygon").get<std::vector<double>>(), size[0], size[1]));
    describe(text("polygon ", i), polygons.back(), entry);
    const std::vector<uint8_t> mask = mask_of_runs(polygons.back());
    comparison.equal(text("polygon ", i),
                     torch::tensor(at::ArrayRef<uint8_t>(mask), torch::kUInt8).view({size[0], size[1]}),
                     golden.tensor(text("output.polygon", i)));
  }
  const auto& overlaps = config.at("mask_iou_polys01_vs_23_crowd01");
  for (size_t d = 0; d < 2; ++d)
    for (size_t g = 0; g < 2; ++g)
      comparison.holds(text("mask overlap ", d, " ", g),
                       overlap_of(polygons[d], polygons[2 + g], g == 1) == overlaps[d][g].get<double>(),
                       "another number");
  comparison.holds("union",
                   compress_runs(merge_runs(std::span(polygons).first(3))) == config.at("merge_union_012"),
                   "other runs");
  comparison.holds(
      "intersection",
      compress_runs(merge_runs(std::span(polygons).first(2), true)) == config.at("merge_intersect_01"),
      "other runs");
  const auto box = [](const Json& b) { return RunBox{b[0], b[1], b[2], b[3]}; };
  const Json& boxes = config.at("box_iou");
  for (size_t d = 0; d < boxes.at("dt").size(); ++d)
    for (size_t g = 0; g < boxes.at("gt").size(); ++g)
      comparison.holds(
          text("box overlap ", d, " ", g),
          std::abs(overlap_of(box(boxes.at("dt")[d]), box(boxes.at("gt")[g]), boxes.at("iscrowd")[g] != 0) -
                   boxes.at("iou")[d][g].get<double>()) < 1e-15,
          "another number");
  const Json& whole = config.at("box_to_rle");
  comparison.holds("box",
                   compress_runs(runs_of_box(box(whole.at("box")), whole.at("size")[0],
                                             whole.at("size")[1])) == whole.at("counts"),
                   "other runs");
  return comparison.result();
}

// --- Geometry ---

// The view that a case's draws and transforms make.
data::ImageView view_of(Comparison& comparison, const std::string& name, const Json& config, int width,
                        int height) {
  data::ImageView view{.width = width, .height = height, .resized_width = width, .resized_height = height};
  size_t draw = 0;
  const auto drawn = [&] { return config.at("draws").at(draw++).at(3)[0].get<double>(); };
  const Json transforms = config.at("transforms");
  int target_width = 0, target_height = 0;
  for (const std::string& line : transforms.get<std::vector<std::string>>()) {
    std::smatch m;
    static const std::regex crop("CropTransform.* w=(\\d+), h=(\\d+)");
    if (std::regex_search(line, m, crop)) target_width = std::stoi(m[1]), target_height = std::stoi(m[2]);
  }
  // A draw of [0, 1) before the others is that of the flip.
  const bool jitter = target_width > 0;
  const size_t draws = config.at("draws").size();
  if ((jitter && draws == 3) || (!jitter && config.at("draws")[0][0] == "uniform")) {
    drawn();
    view.mirrored = transforms[0].get<std::string>().starts_with("HFlip");
  }
  if (jitter) {
    data::resize_by_factor(view.resized_width, view.resized_height, drawn(), target_width, target_height);
    const double place = drawn();
    view.left = data::crop_offset(view.resized_width, target_width, place);
    view.top = data::crop_offset(view.resized_height, target_height, place);
  }
  for (const std::string& line : transforms.get<std::vector<std::string>>()) {
    std::smatch m;
    static const std::regex resize("ResizeTransform.*new_h=(\\d+), new_w=(\\d+)"),
        crop("CropTransform\\(x0=np.int64\\((\\d+)\\), y0=np.int64\\((\\d+)\\)");
    if (std::regex_search(line, m, resize)) {
      const int new_height = std::stoi(m[1]), new_width = std::stoi(m[2]);
      if (!jitter)
        data::resize_shortest_edge(view.resized_width, view.resized_height, static_cast<int>(drawn()),
                                   std::max(new_height, new_width));
      comparison.holds(name + " size", view.resized_width == new_width && view.resized_height == new_height,
                       text("is ", view.resized_height, " x ", view.resized_width, ", must be ", new_height,
                            " x ", new_width));
    }
    if (std::regex_search(line, m, crop))
      comparison.holds(name + " offset", view.left == std::stoi(m[1]) && view.top == std::stoi(m[2]),
                       "another offset");
  }
  const std::vector<int64_t> size = numbers(config.at("size_hw"));
  view.out_height = static_cast<int>(size[0]), view.out_width = static_cast<int>(size[1]);
  return view;
}

Image mirrored(const Image& image) {
  Image out = image;
  for (int y = 0; y < image.height; ++y)
    for (int x = 0; x < image.width; ++x)
      std::copy_n(image.row(y) + x * image.channels, image.channels,
                  out.row(y) + (image.width - 1 - x) * image.channels);
  return out;
}

// The image as the view shows it, `fill` around it.
Image shown(const Image& image, const data::ImageView& view, data::Interpolation how, uint8_t fill) {
  const Image whole =
      data::resize(view.mirrored ? mirrored(image) : image, view.resized_width, view.resized_height, how);
  Image out = image;
  out.width = view.out_width, out.height = view.out_height;
  out.pixels.assign(static_cast<size_t>(out.width * out.height * out.channels), fill);
  for (int y = 0; y < view.shown_height(); ++y)
    std::copy_n(whole.row(y + view.top) + view.left * whole.channels, view.shown_width() * whole.channels,
                out.row(y));
  return out;
}

torch::Tensor boxes_tensor(const std::vector<data::Rectangle>& boxes) {
  std::vector<double> values;
  for (const data::Rectangle& b : boxes) values.insert(values.end(), {b.left, b.top, b.right, b.bottom});
  return torch::tensor(at::ArrayRef<double>(values), torch::kFloat64).view({-1, 4});
}

// The values around an image and its mask; a value that is not printed is 0.
std::pair<uint8_t, uint8_t> padding_of(const Json& config) {
  std::pair<uint8_t, uint8_t> values{0, 0};
  for (const std::string& line : config.at("transforms").get<std::vector<std::string>>()) {
    std::smatch m;
    static const std::regex image("[ (]pad_value=([0-9.]+)"), mask("seg_pad_value=([0-9.]+)");
    if (std::regex_search(line, m, image)) values.first = static_cast<uint8_t>(std::stod(m[1]));
    if (std::regex_search(line, m, mask)) values.second = static_cast<uint8_t>(std::stod(m[1]));
  }
  return values;
}

void check_view(Comparison& comparison, const Golden& golden, const std::string& name) {
  const Json& config = golden.config().at(name);
  const Image image = image_of(golden.view("input.image")), mask = image_of(golden.view("input.mask"));
  const data::ImageView view = view_of(comparison, name, config, image.width, image.height);
  const auto [around_image, around_mask] = padding_of(config);
  expect_picture(comparison, golden, name + "/output.image",
                 shown(image, view, data::Interpolation::bilinear, around_image));
  expect_picture(comparison, golden, name + "/output.mask",
                 shown(mask, view, data::Interpolation::nearest, around_mask));
  const torch::Tensor given = golden.tensor("input.boxes", torch::kFloat64).contiguous();
  std::vector<data::Rectangle> raw, clipped, recomputed;
  std::vector<int64_t> kept;
  std::vector<double> points;
  std::vector<torch::Tensor> planes;
  for (int64_t i = 0; i < given.size(0); ++i) {
    const double* b = given.const_data_ptr<double>() + 4 * i;
    double left = view.x(b[0]), right = view.x(b[2]);
    if (left > right) std::swap(left, right);
    raw.push_back({left, view.y(b[1]), right, view.y(b[3])});
    const double width = view.out_width, height = view.out_height;
    clipped.push_back({std::clamp(left, 0.0, width), std::clamp(raw.back().top, 0.0, height),
                       std::clamp(right, 0.0, width), std::clamp(raw.back().bottom, 0.0, height)});
    data::Outline outline;
    outline.polygons =
        golden.config().at("polygons")[static_cast<size_t>(i)].get<std::vector<std::vector<double>>>();
    const data::Outline seen = data::outline_in_view(outline, view);
    recomputed.push_back(data::box_of_outline(seen));
    const data::Rectangle& around = recomputed.back();
    if (around.right - around.left > 1e-5 && around.bottom - around.top > 1e-5) kept.push_back(i);
    for (const auto& polygon : seen.polygons) points.insert(points.end(), polygon.begin(), polygon.end());
    const std::vector<uint8_t> plane =
        mask_of_runs(data::runs_of_outline(seen, view.out_height, view.out_width));
    planes.push_back(
        torch::tensor(at::ArrayRef<uint8_t>(plane), torch::kUInt8).view({view.out_height, view.out_width}));
  }
  const auto close = [&](const char* what, const torch::Tensor& got) {
    comparison.close(name + " " + what, got, golden.tensor(name + "/output." + what), 0, 1e-4);
  };
  close("boxes", boxes_tensor(raw));
  close("instance_boxes", boxes_tensor(clipped));
  close("recomputed_boxes", boxes_tensor(recomputed));
  if (golden.has(name + "/output.polygon_points"))
    close("polygon_points", torch::tensor(at::ArrayRef<double>(points), torch::kFloat64));
  const torch::Tensor want = golden.tensor(name + "/output.bitmasks"), got = torch::stack(planes);
  const bool cut = !golden.has(name + "/output.polygon_points");
  const auto apart = got.ne(want).sum({1, 2}).max().item<int64_t>();
  comparison.holds(name + " bitmasks", apart <= (cut ? 10 : 0), text(apart, " pixels of a mask differ"));
  comparison.holds(name + " kept", golden.tensor(name + "/output.kept_classes").numel() == std::ssize(kept),
                   text(kept.size(), " objects are left"));
}

CaseResult check_coco(const Golden& golden) {
  Comparison comparison;
  CocoCase all(golden);
  for (const auto& [name, wanted] : golden.config().at("results").items()) {
    if (name == "bbox_eval_images")
      all.check_matches(comparison, wanted);
    else if (name == "bbox_ious_image_category")
      all.check_overlaps(comparison, wanted);
    else
      all.check_result(comparison, name, wanted);
  }
  if (golden.config().contains("bbox_ious_image_category"))
    all.check_overlaps(comparison, golden.config().at("bbox_ious_image_category"));
  return comparison.result();
}

CaseResult check_detection_geometry(const Golden& golden) {
  Comparison comparison;
  for (const std::string& name : sub_cases(golden)) check_view(comparison, golden, name);
  const Json& config = golden.config();
  for (const char* table : {"shortest_edge_table", "resize_scale_table"})
    for (const Json& row : config.at(table)) {
      int height = row[0], width = row[1];
      if (table[0] == 's')
        data::resize_shortest_edge(width, height, row[2].get<int>(), row[3].get<int>());
      else
        data::resize_by_factor(width, height, row[2].get<double>(), row[3].get<int>(), row[3].get<int>());
      comparison.holds(text(table, " ", row.dump()), height == row[4] && width == row[5],
                       text("is ", height, " x ", width));
    }
  return comparison.result();
}

const Registered registered({
    {"run_lengths", check_runs, {"components/metric_coco_rle"}},
    {"coco", check_coco, {"components/metric_coco"}},
    {"detection_geometry", check_detection_geometry, {"components/aug_detection"}},
});

}  // namespace
}  // namespace tessera::parity::coco_cases
