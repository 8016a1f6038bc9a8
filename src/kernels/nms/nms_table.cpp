// Sorts boxes and classes; also has the reference for one step.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <numeric>
#include <vector>

#include "core/error.h"
#include "core/threads.h"
#include "kernels/nms/nms.h"
#include "kernels/table.h"

namespace tessera::kernels {

namespace reference {
namespace {

template <class Number>
bool suppresses(const Number* a, const Number* b, double threshold) {
  const Number width = std::max<Number>(std::min(a[2], b[2]) - std::max(a[0], b[0]), 0);
  const Number height = std::max<Number>(std::min(a[3], b[3]) - std::max(a[1], b[1]), 0);
  const Number inside = width * height;
  const Number area_a = (a[2] - a[0]) * (a[3] - a[1]), area_b = (b[2] - b[0]) * (b[3] - b[1]);
  return static_cast<double>(inside / (area_a + area_b - inside)) > threshold;
}

void suppress(const NmsBoxes& b, int64_t by, int64_t from, int64_t count, float threshold, uint8_t* gone) {
  const float one[] = {b.left[by], b.top[by], b.right[by], b.bottom[by]};
  for (int64_t i = from; i < count; ++i) {
    const float other[] = {b.left[i], b.top[i], b.right[i], b.bottom[i]};
    if (suppresses(one, other, static_cast<double>(threshold))) gone[i] = 1;
  }
}

}  // namespace

extern const NmsFunctions nms_functions;
const NmsFunctions nms_functions = {suppress};

}  // namespace reference

TESSERA_IMPLEMENTATIONS(NmsFunctions, nms_functions);

namespace {

constexpr Table<NmsFunctions> kTable{kImplementations, std::size(kImplementations)};

// Returns the largest float that is at most x: a float exceeds one if and only if it exceeds the other.
float round_down(double x) {
  const auto rounded = static_cast<float>(x);
  return static_cast<double>(rounded) > x ? std::nextafter(rounded, -INFINITY) : rounded;
}

// Processes the boxes of one class, best first; sets `stays` for the kept ones.
void suppress_group(const float* boxes, const std::vector<int64_t>& group, double threshold, uint8_t* stays) {
  const NmsFunctions& functions = choose(kTable);
  const size_t count = group.size();
  std::vector<float> lists(5 * count);
  float *left = lists.data(), *top = left + count, *right = top + count, *bottom = right + count,
        *area = bottom + count;
  for (size_t i = 0; i < count; ++i) {
    const float* box = boxes + 4 * group[i];
    left[i] = box[0], top[i] = box[1], right[i] = box[2], bottom[i] = box[3];
    area[i] = (box[2] - box[0]) * (box[3] - box[1]);
  }
  std::vector<uint8_t> gone(count);
  const float limit = round_down(threshold);
  for (size_t i = 0; i < count; ++i) {
    if (gone[i]) continue;
    stays[group[i]] = 1;
    functions.suppress({left, top, right, bottom, area}, static_cast<int64_t>(i), static_cast<int64_t>(i) + 1,
                       static_cast<int64_t>(count), limit, gone.data());
  }
}

void suppress_group(const double* boxes, const std::vector<int64_t>& group, double threshold,
                    uint8_t* stays) {
  std::vector<uint8_t> gone(group.size());
  for (size_t i = 0; i < group.size(); ++i) {
    if (gone[i]) continue;
    stays[group[i]] = 1;
    for (size_t j = i + 1; j < group.size(); ++j)
      if (reference::suppresses(boxes + 4 * group[i], boxes + 4 * group[j], threshold)) gone[j] = 1;
  }
}

template <class Number>
int64_t nms_of(const Number* boxes, const Number* scores, const int64_t* classes, int64_t count,
               double threshold, int64_t* keep) {
  check(count >= 0 && threshold >= 0, "nms: ", count, " boxes, threshold ", threshold);
  check(count == 0 || (boxes && scores && keep), "nms: a list is missing");
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  for (int64_t i = 0; i < count; ++i) check(!std::isnan(scores[i]), "nms: score ", i, " is not a number");
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return scores[a] > scores[b]; });
  std::map<int64_t, std::vector<int64_t>> groups;
  for (const int64_t i : order) groups[classes ? classes[i] : 0].push_back(i);
  std::vector<const std::vector<int64_t>*> lists;
  for (const auto& [label, group] : groups) lists.push_back(&group);
  std::vector<uint8_t> stays(static_cast<size_t>(count));
  parallel_for(std::ssize(lists), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      suppress_group(boxes, *lists[static_cast<size_t>(i)], threshold, stays.data());
  });
  int64_t kept = 0;
  for (const int64_t i : order)
    if (stays[static_cast<size_t>(i)]) keep[kept++] = i;
  return kept;
}

}  // namespace

int64_t nms(const float* boxes, const float* scores, const int64_t* classes, int64_t count, double threshold,
            int64_t* keep) {
  return nms_of(boxes, scores, classes, count, threshold, keep);
}
int64_t nms(const double* boxes, const double* scores, const int64_t* classes, int64_t count,
            double threshold, int64_t* keep) {
  return nms_of(boxes, scores, classes, count, threshold, keep);
}

}  // namespace tessera::kernels
