#include "tasks/dense/detect_scores.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "core/error.h"
#include "core/text.h"
#include "data/sources/annotated_source.h"
#include "data/transforms/resize.h"

namespace tessera::tasks {
namespace {

constexpr double kSure = 0.3;  // lowest detection score in pictures and the confusion matrix

// Encodes numbers as a byte string.
class Writer {
 public:
  template <class T>
  void put(T value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  std::string bytes;
};
class Reader {
 public:
  explicit Reader(const std::string& bytes) : bytes_(bytes) {}
  template <class T>
  T get() {
    check(at_ + sizeof(T) <= bytes_.size(), "detections of another process end early");
    T value;
    std::memcpy(&value, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return value;
  }
  bool done() const { return at_ == bytes_.size(); }

 private:
  const std::string& bytes_;
  size_t at_ = 0;
};

std::string score_text(double value) { return value < 0 ? "-" : fixed(value, 4); }
std::string percent(double value) { return value < 0 ? "-" : fixed(100 * value, 1) + " %"; }

}  // namespace

MetricInfo DetectionScores::main_metric(bool masks) { return {masks ? "mask_ap" : "box_ap", Unit::share}; }

void DetectionScores::collect(const EvaluateOptions& options) {
  if (!options.gather) return;
  Writer writer;
  for (const auto& [index, objects] : found_) {
    writer.put(index);
    writer.put(static_cast<int64_t>(objects.size()));
    for (const FoundObject& o : objects) {
      for (const double value : {o.left, o.top, o.right, o.bottom, o.score}) writer.put(value);
      for (const int64_t value :
           {o.label, o.mask.height, o.mask.width, static_cast<int64_t>(o.mask.counts.size())})
        writer.put(value);
      for (const uint32_t run : o.mask.counts) writer.put(run);
    }
  }
  for (const std::string& bytes : options.gather(writer.bytes)) {
    Reader reader(bytes);
    while (!reader.done()) {
      const auto index = reader.get<int64_t>();
      std::vector<FoundObject> objects(static_cast<size_t>(reader.get<int64_t>()));
      for (FoundObject& o : objects) {
        for (double* value : {&o.left, &o.top, &o.right, &o.bottom, &o.score}) *value = reader.get<double>();
        for (int64_t* value : {&o.label, &o.mask.height, &o.mask.width}) *value = reader.get<int64_t>();
        o.mask.counts.resize(static_cast<size_t>(reader.get<int64_t>()));
        for (uint32_t& run : o.mask.counts) run = reader.get<uint32_t>();
      }
      found_[index] = std::move(objects);
    }
  }
}

DetectionScores::Compared DetectionScores::compared(eval::Overlap overlap, int64_t image) const {
  Compared all;
  all.settings.overlap = overlap;
  for (int64_t k = 0; k < std::ssize(labels_.object_classes()); ++k) all.settings.categories.push_back(k);
  const bool masks = overlap == eval::Overlap::masks;
  for (const auto& [index, objects] : found_) {
    if (image >= 0 && index != image) continue;
    all.settings.images.push_back(index);
    const data::SeenObjects seen = labels_.seen(index, decode_);
    for (const data::ObjectAnnotation& object : seen.objects) {
      if (masks && object.outline.empty()) continue;  // nothing to compare with
      const data::Instance& box = object.box;
      eval::CocoObject truth{.image = index,
                             .category = box.label,
                             .box = {box.left, box.top, box.right - box.left, box.bottom - box.top}};
      truth.area = object.area, truth.crowd = object.crowd;
      if (masks)
        truth.mask = std::make_shared<RunLengths>(
            data::runs_of_outline(object.outline, seen.extent.height, seen.extent.width));
      all.truths.push_back(std::move(truth));
    }
    for (const FoundObject& o : objects) {
      eval::CocoObject found{
          .image = index, .category = o.label, .box = {o.left, o.top, o.right - o.left, o.bottom - o.top}};
      found.score = o.score;
      found.area = masks ? static_cast<double>(area_of(o.mask)) : found.box.width * found.box.height;
      if (masks) found.mask = std::make_shared<RunLengths>(o.mask);
      all.detections.push_back(std::move(found));
    }
  }
  return all;
}

eval::CocoScores DetectionScores::evaluate(eval::Overlap overlap, int64_t image) const {
  const Compared all = compared(overlap, image);
  return eval::evaluate_coco(all.truths, all.detections, all.settings);
}

void DetectionScores::report(const EvaluateOptions& options, Findings& out) const {
  out.samples = size();
  std::vector<std::pair<std::string, eval::Overlap>> kinds{{"box_", eval::Overlap::boxes}};
  if (masks_) kinds.insert(kinds.begin(), {"mask_", eval::Overlap::masks});
  for (const auto& [prefix, overlap] : kinds) {
    const eval::CocoScores scores = evaluate(overlap);
    const auto add = [&, prefix = prefix](const char* name, double value, bool always = false) {
      if (value >= 0)
        out.metrics.push_back({{prefix + name, Unit::share}, value});
      else if (always)  // -1 in COCO's own tool
        out.metrics.push_back(unmeasured({prefix + name, Unit::share}));
    };
    add("ap", scores.precision(), true);
    add("ap50", scores.precision(0), true);
    add("ap75", scores.precision(5), true);
    add("ap_small", scores.precision(-1, 1));
    add("ap_medium", scores.precision(-1, 2));
    add("ap_large", scores.precision(-1, 3));
    add("ar1", scores.recall(0, -1, 0));
    add("ar10", scores.recall(0, -1, 1));
    add("ar100", scores.recall(0, -1, 2));
    if (&prefix != &kinds.front().first || !(options.wants("classes") || options.wants("confusion")))
      continue;
    add_classes(scores, out);
    add_sizes(scores, out);
  }
  if (options.wants("confusion")) add_confusion(out);
  if (options.wants("pictures")) add_pictures(out);
}

void DetectionScores::add_classes(const eval::CocoScores& scores, Findings& out) const {
  report::TableBlock table{
      .name = "classes",
      .heading = "Classes",
      .note = "Average precision and recall of each class, by COCO's rules.",
      .columns = {
          {"class"}, {"objects", true}, {"AP", true}, {"AP50", true}, {"AP75", true}, {"AR100", true}}};
  report::Chart chart{
      .options = {.title = "Precision at each recall, IoU 0.5", .x_label = "recall", .y_label = "precision"}};
  chart.options.percent = true, chart.options.y_min = 0, chart.options.y_max = 1;
  const std::vector<std::string>& names = labels_.object_classes();
  for (int64_t k = 0; k < std::ssize(names); ++k) {
    const std::string& name = names[static_cast<size_t>(k)];
    table.rows.push_back({name, std::to_string(scores.truths(k)), score_text(scores.precision(-1, 0, k)),
                          score_text(scores.precision(0, 0, k)), score_text(scores.precision(5, 0, k)),
                          score_text(scores.recall(0, k))});
    const std::vector<double> curve = scores.curve(0, k);
    if (curve.empty() || chart.curves.size() >= 8) continue;
    report::Curve line{.name = name};
    for (size_t i = 0; i < curve.size(); ++i) line.points.push_back({static_cast<double>(i) / 100, curve[i]});
    chart.curves.push_back(std::move(line));
  }
  out.blocks.emplace_back(std::move(table));
  if (!chart.curves.empty())
    out.blocks.emplace_back(
        report::ChartBlock{.heading = "Precision and recall", .charts = {std::move(chart)}});
}

void DetectionScores::add_sizes(const eval::CocoScores& scores, Findings& out) const {
  report::TableBlock table{
      .name = "sizes",
      .heading = "Sizes",
      .note = "By the area of an object in pixels, as annotated: small below 32 x 32, large above 96 x 96.",
      .columns = {
          {"size"}, {"objects", true}, {"AP", true}, {"AP50", true}, {"AP75", true}, {"AR100", true}}};
  const std::vector<std::pair<double, double>> areas = eval::CocoSettings().areas;
  const std::array names{"all", "small", "medium", "large"};
  for (size_t a = 0; a < areas.size(); ++a) {
    int64_t objects = 0;
    for (const auto& [index, found] : found_)
      for (const data::ObjectAnnotation& object : labels_.objects(index))
        objects += !object.crowd && object.area >= areas[a].first && object.area <= areas[a].second;
    const auto area = static_cast<int64_t>(a);
    table.rows.push_back({names[a], std::to_string(objects), score_text(scores.precision(-1, area)),
                          score_text(scores.precision(0, area)), score_text(scores.precision(5, area)),
                          score_text(scores.recall(area))});
  }
  out.blocks.emplace_back(std::move(table));
}

// Matches boxes of any class at an IoU of 0.5. The last row and column are "nothing": false positives and
// misses.
void DetectionScores::add_confusion(Findings& out) const {
  constexpr size_t kMostClasses = 64;
  report::Confusion confusion{.class_names = labels_.object_classes(), .counts = {}};
  if (confusion.classes() >= kMostClasses) return;
  const auto nothing = static_cast<int64_t>(confusion.classes());
  confusion.class_names.emplace_back("nothing");
  confusion.counts.assign(confusion.classes() * confusion.classes(), 0);
  const auto count = [&](int64_t truth, int64_t found) {
    ++confusion.counts[static_cast<size_t>(truth * (nothing + 1) + found)];
  };
  for (const auto& [index, objects] : found_) {
    Compared image = compared(eval::Overlap::boxes, index);
    std::erase_if(image.detections, [](const eval::CocoObject& found) { return found.score < kSure; });
    image.settings.by_class = false;
    const eval::CocoMatches matches =
        eval::match_coco(image.truths, image.detections, image.settings, index, 0, 0.5);
    const auto truth_of = [&](int64_t at) { return image.truths[static_cast<size_t>(at)].category; };
    const auto found_of = [&](int64_t at) { return image.detections[static_cast<size_t>(at)].category; };
    for (size_t d = 0; d < matches.detections.size(); ++d)
      if (matches.of_detection[d] < 0)
        count(nothing, found_of(matches.detections[d]));
      else if (!matches.detection_ignored[d])
        count(truth_of(matches.of_detection[d]), found_of(matches.detections[d]));
    for (size_t t = 0; t < matches.truths.size(); ++t)
      if (matches.of_truth[t] < 0 && !matches.truth_ignored[t]) count(truth_of(matches.truths[t]), nothing);
  }
  out.blocks.emplace_back(report::ConfusionBlock{.confusion = std::move(confusion), .counted = "objects"});
}

// The images with the lowest AP50, with truths and detections.
void DetectionScores::add_pictures(Findings& out) const {
  constexpr size_t kShown = 6;
  constexpr int kSide = 320;
  std::vector<std::pair<double, int64_t>> order;
  for (const auto& [index, objects] : found_) {
    const double ap = evaluate(eval::Overlap::boxes, index).precision(0);
    if (ap >= 0) order.emplace_back(ap, index);
  }
  std::sort(order.begin(), order.end());
  if (order.size() > kShown) order.resize(kShown);
  report::PicturesBlock block{.heading = "Worst images",
                              .note =
                                  "Validation images with the lowest AP50: the objects, and the detections "
                                  "with a score of 0.3 or more.",
                              .together = 2};
  for (const auto& [ap, index] : order) {
    const Image image = data::decode_sample(source_.read(index), decode_);
    std::vector<data::DrawnObject> truths, found;
    std::vector<RunLengths> masks;
    const auto& objects = labels_.seen(index, decode_).objects;
    masks.reserve(objects.size());
    for (const data::ObjectAnnotation& object : objects) {
      const data::Instance& b = object.box;
      const bool outlined = !object.outline.empty();
      if (outlined) masks.push_back(data::runs_of_outline(object.outline, image.height, image.width));
      truths.push_back({b.left, b.top, b.right, b.bottom, b.label, outlined ? &masks.back() : nullptr});
    }
    for (const FoundObject& o : found_.at(index))
      if (o.score >= kSure)
        found.push_back(
            {o.left, o.top, o.right, o.bottom, o.label, o.mask.counts.empty() ? nullptr : &o.mask});
    block.pictures.push_back({data::shrunk_to_fit(data::draw_objects(image, truths), kSide),
                              counted(std::ssize(truths), "object"), ""});
    block.pictures.push_back({data::shrunk_to_fit(data::draw_objects(image, found), kSide),
                              text(found.size(), " found"), "AP50 " + percent(ap)});
  }
  out.blocks.emplace_back(std::move(block));
}

}  // namespace tessera::tasks
