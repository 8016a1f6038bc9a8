#include "models/language/caption_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "core/error.h"

namespace tessera::models {
namespace {

using Ids = std::vector<int64_t>;

torch::Tensor as_tensor(const std::vector<Ids>& rows) {
  torch::Tensor out =
      torch::empty({static_cast<int64_t>(rows.size()), static_cast<int64_t>(rows[0].size())}, torch::kInt64);
  for (size_t i = 0; i < rows.size(); ++i)
    std::copy(rows[i].begin(), rows[i].end(), out[static_cast<int64_t>(i)].mutable_data_ptr<int64_t>());
  return out;
}

// Returns the scores of every row's next token, float64 on the CPU, with exclusions and penalties applied.
torch::Tensor scores_of(const std::vector<Ids>& rows, const Ids& image, const CaptionSearch& options,
                        const NextToken& next, bool logarithms) {
  torch::Tensor scores = next(as_tensor(rows), torch::tensor(image, torch::kInt64));
  check(scores.dim() == 2 && scores.size(0) == std::ssize(rows), "scores ", scores.sizes(),
        " of the next token of ", rows.size(), " captions");
  scores = scores.to(torch::kCPU, torch::kFloat64);
  if (logarithms) scores = scores.log_softmax(1);
  scores = scores.contiguous().clone();
  auto at = scores.accessor<double, 2>();
  for (size_t i = 0; i < rows.size(); ++i) {
    auto row = at[static_cast<int64_t>(i)];
    if (std::ssize(rows[i]) < options.shortest) row[options.end] = -std::numeric_limits<double>::infinity();
    if (options.repetition_penalty == 1) continue;
    Ids seen = rows[i];
    std::sort(seen.begin(), seen.end());
    seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
    for (const int64_t id : seen)
      row[id] = row[id] < 0 ? row[id] * options.repetition_penalty : row[id] / options.repetition_penalty;
  }
  return scores;
}

torch::Tensor greedy(int64_t images, const CaptionSearch& options, const NextToken& next) {
  std::vector<Ids> rows(static_cast<size_t>(images), Ids{options.start});
  const auto ended = [&](const Ids& row) { return row.back() == options.end || row.back() == options.pad; };
  while (std::ssize(rows[0]) < options.longest && !std::all_of(rows.begin(), rows.end(), ended)) {
    std::vector<Ids> open;
    Ids image;
    for (size_t i = 0; i < rows.size(); ++i)
      if (!ended(rows[i])) open.push_back(rows[i]), image.push_back(static_cast<int64_t>(i));
    const torch::Tensor best = scores_of(open, image, options, next, false).argmax(1);
    const bool last = std::ssize(rows[0]) + 1 == options.longest;
    for (Ids& row : rows) row.push_back(options.pad);
    for (size_t i = 0; i < image.size(); ++i)
      rows[static_cast<size_t>(image[i])].back() =
          last ? options.end : best[static_cast<int64_t>(i)].item<int64_t>();
  }
  return as_tensor(rows);
}

// A group's finished captions: the best ones, at most one per beam.
struct Finished {
  std::vector<std::pair<double, Ids>> captions;
  double worst = 1e9;
  bool done = false;

  void add(const Ids& ids, double sum, size_t length, size_t most) {
    const double score = sum / static_cast<double>(length);
    if (captions.size() >= most && score <= worst) return;
    captions.emplace_back(score, ids);
    if (captions.size() <= most) {
      worst = std::min(worst, score);
      return;
    }
    const auto by_score = [](const auto& a, const auto& b) { return a.first < b.first; };
    captions.erase(std::min_element(captions.begin(), captions.end(), by_score));
    worst = std::min_element(captions.begin(), captions.end(), by_score)->first;
  }
};

// The beams of one group of one image.
struct Group {
  std::vector<Ids> beams;
  std::vector<double> sums;
  Finished finished;

  // Takes the best continuations: those that end are finished, the others become the next beams.
  void advance(const torch::Tensor& scores, const CaptionSearch& options) {
    const int64_t vocabulary = scores.size(1), width = std::ssize(beams);
    const torch::Tensor totals = scores + torch::tensor(sums, torch::kFloat64).unsqueeze(1);
    const auto [best, place] = totals.flatten().topk(std::min(2 * width, totals.numel()));
    const size_t length = beams[0].size() + 1;
    std::vector<Ids> next;
    std::vector<double> next_sums;
    for (int64_t rank = 0; rank < best.size(0) && std::ssize(next) < width; ++rank) {
      const int64_t index = place[rank].item<int64_t>(), token = index % vocabulary;
      const Ids& before = beams[static_cast<size_t>(index / vocabulary)];
      const double sum = best[rank].item<double>();
      if (token == options.end) {
        if (rank < width) finished.add(before, sum, length, static_cast<size_t>(width));
        continue;
      }
      next.push_back(before);
      next.back().push_back(token);
      next_sums.push_back(sum);
    }
    beams = std::move(next), sums = std::move(next_sums);
    const double reachable = best[0].item<double>() / static_cast<double>(length);
    finished.done = std::ssize(finished.captions) >= width && finished.worst >= reachable;
  }
};

// Returns the best caption of one image's groups. Groups that are not done finish with their beams.
Ids best_of(std::span<Group> groups, int64_t width) {
  const std::pair<double, Ids>* best = nullptr;
  for (Group& group : groups) {
    if (!group.finished.done)
      for (size_t b = 0; b < group.beams.size(); ++b)
        group.finished.add(group.beams[b], group.sums[b], group.beams[b].size(), static_cast<size_t>(width));
    for (const auto& caption : group.finished.captions)
      if (!best || caption.first >= best->first) best = &caption;
  }
  return best->second;
}

// Returns captions of one length: with the end token if it fits, then padding.
torch::Tensor padded(std::vector<Ids> captions, const CaptionSearch& options) {
  size_t longest = 0;
  for (const Ids& caption : captions) longest = std::max(longest, caption.size());
  const size_t size = std::min(longest + 1, static_cast<size_t>(options.longest));
  for (Ids& caption : captions) {
    if (caption.size() < size) caption.push_back(options.end);
    caption.resize(size, options.pad);
  }
  return as_tensor(captions);
}

torch::Tensor beams(int64_t images, const CaptionSearch& options, const NextToken& next) {
  const int64_t width = options.beams / options.groups;
  std::vector<Group> groups(static_cast<size_t>(images * options.groups));
  for (Group& group : groups) {
    group.beams.assign(static_cast<size_t>(width), Ids{options.start});
    group.sums.assign(static_cast<size_t>(width), -1e9);  // the beams are equal at first, so only one counts
    group.sums[0] = 0;
  }
  for (int64_t length = 1; length < options.longest; ++length) {
    std::vector<Ids> rows;
    Ids image;
    std::vector<size_t> open;
    for (size_t g = 0; g < groups.size(); ++g) {
      if (groups[g].finished.done) continue;
      open.push_back(g);
      for (const Ids& beam : groups[g].beams)
        rows.push_back(beam), image.push_back(static_cast<int64_t>(g) / options.groups);
    }
    if (open.empty()) break;
    const torch::Tensor scores = scores_of(rows, image, options, next, !options.raw_scores);
    for (size_t i = 0; i < open.size(); ++i)
      groups[open[i]].advance(
          scores.slice(0, static_cast<int64_t>(i) * width, static_cast<int64_t>(i + 1) * width), options);
  }
  std::vector<Ids> captions;
  for (size_t first = 0; first < groups.size(); first += static_cast<size_t>(options.groups))
    captions.push_back(best_of(std::span(groups).subspan(first, static_cast<size_t>(options.groups)), width));
  return padded(std::move(captions), options);
}

}  // namespace

torch::Tensor search_captions(int64_t images, const CaptionSearch& options, const NextToken& next) {
  check(images > 0, "the batch has no image to caption");
  check(options.longest >= 2, "captions of at most ", options.longest, " tokens, must be at least 2");
  check(options.beams >= 1 && options.groups >= 1 && options.beams % options.groups == 0, options.beams,
        " beams in ", options.groups, " groups, must be a multiple");
  return options.beams == 1 ? greedy(images, options, next) : beams(images, options, next);
}

}  // namespace tessera::models
