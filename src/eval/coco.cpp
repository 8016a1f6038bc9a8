#include "eval/coco.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "core/error.h"
#include "core/threads.h"

namespace tessera::eval {
namespace {

constexpr int64_t kThresholds = CocoScores::kThresholds, kRecalls = CocoScores::kRecalls;

double threshold_at(int64_t i) {
  return i == kThresholds - 1 ? 0.95 : 0.5 + static_cast<double>(i) * ((0.95 - 0.5) / 9);
}
double recall_at(int64_t i) { return i == kRecalls - 1 ? 1.0 : static_cast<double>(i) * 0.01; }

// The objects of an image and category, detections best first, and their overlaps.
struct Group {
  std::vector<int64_t> truths, detections;  // indices
  std::vector<double> overlaps;             // [detections, truths]
};

using Key = std::pair<int64_t, int64_t>;  // image, category

class Groups {
 public:
  Groups(const std::vector<CocoObject>& truths, const std::vector<CocoObject>& detections,
         const CocoSettings& settings)
      : truths_(truths), detections_(detections), settings_(settings) {
    check(!settings.most.empty() && !settings.areas.empty(),
          "an evaluation needs a range of areas and a number of detections");
    images_.insert(settings.images.begin(), settings.images.end());
    categories_.insert(settings.categories.begin(), settings.categories.end());
    place(truths, &Group::truths);
    place(detections, &Group::detections);
    std::vector<Group*> all;
    for (auto& [key, group] : groups_) all.push_back(&group);
    parallel_for(std::ssize(all), 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) compare(*all[static_cast<size_t>(i)]);
    });
  }

  const Group* find(int64_t image, int64_t category) const {
    const auto found = groups_.find({image, settings_.by_class ? category : 0});
    return found == groups_.end() ? nullptr : &found->second;
  }
  std::vector<int64_t> images() const { return {images_.begin(), images_.end()}; }
  std::vector<int64_t> categories() const {
    return settings_.by_class ? std::vector<int64_t>(categories_.begin(), categories_.end())
                              : std::vector<int64_t>{0};
  }

  CocoMatches match(const Group& group, std::pair<double, double> range, double threshold) const;

 private:
  void place(const std::vector<CocoObject>& objects, std::vector<int64_t> Group::*list) {
    // If all classes count as one, they are still in order of class.
    std::vector<int64_t> order(objects.size());
    std::iota(order.begin(), order.end(), 0);
    if (!settings_.by_class)
      std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
        return objects[static_cast<size_t>(a)].category < objects[static_cast<size_t>(b)].category;
      });
    for (const int64_t i : order) {
      const CocoObject& object = objects[static_cast<size_t>(i)];
      if (!images_.contains(object.image) || !categories_.contains(object.category)) continue;
      (groups_[{object.image, settings_.by_class ? object.category : 0}].*list).push_back(i);
    }
  }

  void compare(Group& group) const {
    std::stable_sort(group.detections.begin(), group.detections.end(), [&](int64_t a, int64_t b) {
      return detections_[static_cast<size_t>(a)].score > detections_[static_cast<size_t>(b)].score;
    });
    const auto most = static_cast<size_t>(settings_.most.back());
    if (group.detections.size() > most) group.detections.resize(most);
    group.overlaps.reserve(group.detections.size() * group.truths.size());
    for (const int64_t d : group.detections)
      for (const int64_t t : group.truths)
        group.overlaps.push_back(
            overlap(detections_[static_cast<size_t>(d)], truths_[static_cast<size_t>(t)]));
  }

  double overlap(const CocoObject& detection, const CocoObject& truth) const {
    if (settings_.overlap == Overlap::boxes) return overlap_of(detection.box, truth.box, truth.crowd);
    check(detection.mask && truth.mask, "image ", truth.image, ": mask overlap needs a mask for each object");
    // Masks do not overlap if their boxes do not.
    if (overlap_of(bounds_of(*detection.mask), bounds_of(*truth.mask)) <= 0) return 0;
    return overlap_of(*detection.mask, *truth.mask, truth.crowd);
  }

  const std::vector<CocoObject>&truths_, &detections_;
  const CocoSettings& settings_;
  std::set<int64_t> images_, categories_;
  std::map<Key, Group> groups_;
};

CocoMatches Groups::match(const Group& group, std::pair<double, double> range, double threshold) const {
  const auto outside = [&](double area) { return area < range.first || area > range.second; };
  CocoMatches m;
  const size_t truths = group.truths.size(), detections = group.detections.size();
  std::vector<size_t> order(truths);
  std::vector<bool> ignored(truths);
  for (size_t i = 0; i < truths; ++i) {
    const CocoObject& truth = truths_[static_cast<size_t>(group.truths[i])];
    order[i] = i, ignored[i] = truth.crowd || outside(truth.area);
  }
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return ignored[a] < ignored[b]; });
  for (const size_t i : order) {
    m.truths.push_back(group.truths[i]);
    m.truth_ignored.push_back(ignored[i]);
  }
  m.of_truth.assign(truths, -1);
  for (size_t d = 0; d < detections; ++d) {
    double best = std::min(threshold, 1 - 1e-10);
    int64_t taken = -1;
    for (size_t t = 0; t < truths; ++t) {
      if (m.of_truth[t] >= 0 && !truths_[static_cast<size_t>(m.truths[t])].crowd) continue;
      if (taken >= 0 && !m.truth_ignored[static_cast<size_t>(taken)] && m.truth_ignored[t]) break;
      const double overlap = group.overlaps[d * truths + order[t]];
      if (overlap < best) continue;
      best = overlap, taken = static_cast<int64_t>(t);
    }
    const int64_t index = group.detections[d];
    m.detections.push_back(index);
    m.of_detection.push_back(taken < 0 ? -1 : m.truths[static_cast<size_t>(taken)]);
    m.detection_ignored.push_back(taken >= 0 ? m.truth_ignored[static_cast<size_t>(taken)]
                                             : outside(detections_[static_cast<size_t>(index)].area));
    if (taken >= 0) m.of_truth[static_cast<size_t>(taken)] = index;
  }
  return m;
}

// One detection's contribution to a curve.
struct Counted {
  double score;
  bool hit, ignored;
};

// Fills in the precision at each recall from detections best first. Returns the recall reached.
double fill_curve(const std::vector<Counted>& counted, int64_t truths, double* precision) {
  std::vector<double> recalls, precisions;
  double hits = 0, misses = 0;
  for (const Counted& one : counted) {
    if (!one.ignored) (one.hit ? hits : misses) += 1;
    recalls.push_back(hits / static_cast<double>(truths));
    precisions.push_back(hits / (misses + hits + std::numeric_limits<double>::epsilon()));
  }
  for (size_t i = precisions.size(); i-- > 1;) precisions[i - 1] = std::max(precisions[i - 1], precisions[i]);
  for (int64_t r = 0; r < kRecalls; ++r) {
    const auto at = std::lower_bound(recalls.begin(), recalls.end(), recall_at(r)) - recalls.begin();
    precision[r] = at < std::ssize(precisions) ? precisions[static_cast<size_t>(at)] : 0;
  }
  return recalls.empty() ? 0 : recalls.back();
}

double mean_of(const std::vector<double>& values) {
  double sum = 0;
  int64_t count = 0;
  for (const double value : values)
    if (value > -1) sum += value, ++count;
  return count == 0 ? -1 : sum / static_cast<double>(count);
}

}  // namespace

CocoScores evaluate_coco(const std::vector<CocoObject>& truths, const std::vector<CocoObject>& detections,
                         const CocoSettings& settings) {
  const Groups groups(truths, detections, settings);
  const std::vector<int64_t> images = groups.images(), categories = groups.categories();
  CocoScores scores;
  scores.categories_ = std::ssize(categories), scores.areas_ = std::ssize(settings.areas),
  scores.mosts_ = std::ssize(settings.most);
  const auto cells = static_cast<size_t>(kThresholds * scores.categories_ * scores.areas_ * scores.mosts_);
  scores.precision_.assign(cells * kRecalls, -1);
  scores.recall_.assign(cells, -1);
  scores.truths_.assign(categories.size(), 0);
  // Each piece of work is a category and a range of areas, so that pieces write to separate cells.
  parallel_for(scores.categories_ * scores.areas_, 1, [&](int64_t begin, int64_t end) {
    for (int64_t piece = begin; piece < end; ++piece) {
      const int64_t k = piece / scores.areas_, a = piece % scores.areas_;
      for (int64_t t = 0; t < kThresholds; ++t) {
        std::vector<CocoMatches> matches;
        int64_t count = 0;
        for (const int64_t image : images) {
          const Group* group = groups.find(image, categories[static_cast<size_t>(k)]);
          if (!group) continue;
          matches.push_back(groups.match(*group, settings.areas[static_cast<size_t>(a)], threshold_at(t)));
          count +=
              std::count(matches.back().truth_ignored.begin(), matches.back().truth_ignored.end(), false);
        }
        if (a == 0 && t == 0) scores.truths_[static_cast<size_t>(k)] = count;
        if (count == 0) continue;
        for (int64_t m = 0; m < scores.mosts_; ++m) {
          std::vector<Counted> counted;
          for (const CocoMatches& image : matches)
            for (size_t d = 0;
                 d < image.detections.size() && std::cmp_less(d, settings.most[static_cast<size_t>(m)]); ++d)
              counted.push_back({detections[static_cast<size_t>(image.detections[d])].score,
                                 image.of_detection[d] >= 0, image.detection_ignored[d]});
          std::stable_sort(counted.begin(), counted.end(),
                           [](const Counted& x, const Counted& y) { return x.score > y.score; });
          const size_t cell = scores.at(t, k, a, m);
          scores.recall_[cell] = fill_curve(counted, count, scores.precision_.data() + cell * kRecalls);
        }
      }
    }
  });
  return scores;
}

double CocoScores::precision(int64_t threshold, int64_t area, int64_t category, int64_t most) const {
  if (most < 0) most = mosts_ - 1;
  std::vector<double> values;
  for (int64_t t = 0; t < kThresholds; ++t)
    for (int64_t k = 0; k < categories_; ++k) {
      if ((threshold >= 0 && t != threshold) || (category >= 0 && k != category)) continue;
      const double* first = precision_.data() + at(t, k, area, most) * kRecalls;
      values.insert(values.end(), first, first + kRecalls);
    }
  return mean_of(values);
}

double CocoScores::recall(int64_t area, int64_t category, int64_t most, int64_t threshold) const {
  if (most < 0) most = mosts_ - 1;
  std::vector<double> values;
  for (int64_t t = 0; t < kThresholds; ++t)
    for (int64_t k = 0; k < categories_; ++k)
      if ((threshold < 0 || t == threshold) && (category < 0 || k == category))
        values.push_back(recall_[at(t, k, area, most)]);
  return mean_of(values);
}

std::vector<double> CocoScores::curve(int64_t threshold, int64_t category) const {
  const double* first = precision_.data() + at(threshold, category, 0, mosts_ - 1) * kRecalls;
  if (*first < 0) return {};
  return {first, first + kRecalls};
}

CocoMatches match_coco(const std::vector<CocoObject>& truths, const std::vector<CocoObject>& detections,
                       const CocoSettings& settings, int64_t image, int64_t category, double threshold) {
  CocoSettings one = settings;
  one.images = {image};
  const Groups groups(truths, detections, one);
  const Group* group = groups.find(image, category);
  return group ? groups.match(*group, settings.areas[0], threshold) : CocoMatches{};
}

std::vector<std::vector<double>> coco_overlaps(const std::vector<CocoObject>& truths,
                                               const std::vector<CocoObject>& detections,
                                               const CocoSettings& settings, int64_t image,
                                               int64_t category) {
  CocoSettings one = settings;
  one.images = {image};
  const Groups groups(truths, detections, one);
  std::vector<std::vector<double>> rows;
  if (const Group* group = groups.find(image, category))
    for (size_t d = 0; d < group->detections.size(); ++d) {
      const auto first = group->overlaps.begin() + static_cast<int64_t>(d * group->truths.size());
      rows.emplace_back(first, first + std::ssize(group->truths));
    }
  return rows;
}

}  // namespace tessera::eval
