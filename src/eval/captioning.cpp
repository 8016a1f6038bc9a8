#include "eval/captioning.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <set>

#include "core/error.h"

namespace tessera::eval {
namespace {

constexpr size_t kLongest = 4;  // words of an n-gram
using Words = std::vector<std::string>;
using Counts = std::map<std::string, int64_t>;

Words words_of(const std::string& tokens) {
  Words words;
  size_t begin = 0;
  while (begin < tokens.size()) {
    const size_t end = std::min(tokens.find(' ', begin), tokens.size());
    if (end > begin) words.push_back(tokens.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

// Counts the n-grams of `size` words.
Counts grams_of(const Words& words, size_t size) {
  Counts counts;
  for (size_t i = 0; i + size <= words.size(); ++i) {
    std::string gram = words[i];
    for (size_t j = 1; j < size; ++j) gram += ' ' + words[i + j];
    ++counts[gram];
  }
  return counts;
}

std::array<Counts, kLongest> all_grams(const Words& words) {
  std::array<Counts, kLongest> grams;
  for (size_t n = 0; n < kLongest; ++n) grams[n] = grams_of(words, n + 1);
  return grams;
}

struct Image {
  Words candidate;
  std::vector<Words> references;
  std::array<Counts, kLongest> grams;
  std::vector<std::array<Counts, kLongest>> reference_grams;
};

// --- BLEU: n-grams shared with a reference, and the length of the closest reference.

struct BleuCounts {
  std::array<double, kLongest> right{}, guessed{};
  double length = 0, reference_length = 0;

  void add(const BleuCounts& other) {
    for (size_t n = 0; n < kLongest; ++n) right[n] += other.right[n], guessed[n] += other.guessed[n];
    length += other.length, reference_length += other.reference_length;
  }
};

BleuCounts bleu_counts(const Image& image) {
  BleuCounts out;
  const auto length = static_cast<int64_t>(image.candidate.size());
  int64_t closest = -1;
  for (const Words& reference : image.references) {
    const auto other = static_cast<int64_t>(reference.size());
    const auto distance = [&](int64_t l) { return std::pair(std::abs(l - length), l); };
    if (closest < 0 || distance(other) < distance(closest)) closest = other;
  }
  out.length = static_cast<double>(length), out.reference_length = static_cast<double>(closest);
  for (size_t n = 0; n < kLongest; ++n) {
    out.guessed[n] = static_cast<double>(std::max<int64_t>(0, length - static_cast<int64_t>(n)));
    for (const auto& [gram, count] : image.grams[n]) {
      int64_t most = 0;
      for (const auto& reference : image.reference_grams) {
        const auto found = reference[n].find(gram);
        if (found != reference[n].end()) most = std::max(most, found->second);
      }
      out.right[n] += static_cast<double>(std::min(count, most));
    }
  }
  return out;
}

// The small constants are the published evaluation's, to avoid division by 0.
std::array<double, kLongest> bleu_of(const BleuCounts& counts) {
  constexpr double kTiny = 1e-15, kSmall = 1e-9;
  std::array<double, kLongest> out{};
  double product = 1;
  const double ratio = (counts.length + kTiny) / (counts.reference_length + kSmall);
  const double brevity = ratio < 1 ? std::exp(1 - 1 / ratio) : 1;
  for (size_t n = 0; n < kLongest; ++n) {
    product *= (counts.right[n] + kTiny) / (counts.guessed[n] + kSmall);
    out[n] = std::pow(product, 1 / static_cast<double>(n + 1)) * brevity;
  }
  return out;
}

// --- CIDEr-D: clipped cosine of n-grams weighted by rarity, with a penalty on length differences.

struct Weighted {
  std::array<std::map<std::string, double>, kLongest> grams;
  std::array<double, kLongest> norms{};
  double length = 0;
};

class Cider {
 public:
  explicit Cider(const std::vector<Image>& images)
      : logarithm_(std::log(static_cast<double>(images.size()))) {
    for (const Image& image : images) {
      std::set<std::string> seen;
      for (const auto& reference : image.reference_grams)
        for (const Counts& counts : reference)
          for (const auto& [gram, count] : counts) seen.insert(gram);
      for (const std::string& gram : seen) ++documents_[gram];
    }
  }

  double score(const Image& image) const {
    const Weighted candidate = weighted(image.grams);
    double sum = 0;
    for (const auto& reference : image.reference_grams) sum += similarity(candidate, weighted(reference));
    return 10 * sum / static_cast<double>(image.references.size());
  }

 private:
  Weighted weighted(const std::array<Counts, kLongest>& grams) const {
    Weighted out;
    for (size_t n = 0; n < kLongest; ++n) {
      for (const auto& [gram, count] : grams[n]) {
        const auto found = documents_.find(gram);
        const double documents = found == documents_.end() ? 1 : static_cast<double>(found->second);
        const double weight = static_cast<double>(count) * (logarithm_ - std::log(documents));
        out.grams[n][gram] = weight;
        out.norms[n] += weight * weight;
        if (n == 1) out.length += static_cast<double>(count);  // as the published code counts
      }
      out.norms[n] = std::sqrt(out.norms[n]);
    }
    return out;
  }

  static double similarity(const Weighted& candidate, const Weighted& reference) {
    constexpr double kSigma = 6;
    const double longer = candidate.length - reference.length;
    const double penalty = std::exp(-longer * longer / (2 * kSigma * kSigma));
    double sum = 0;
    for (size_t n = 0; n < kLongest; ++n) {
      double product = 0;
      for (const auto& [gram, weight] : candidate.grams[n]) {
        const auto found = reference.grams[n].find(gram);
        if (found != reference.grams[n].end()) product += std::min(weight, found->second) * found->second;
      }
      if (candidate.norms[n] != 0 && reference.norms[n] != 0)
        product /= candidate.norms[n] * reference.norms[n];
      sum += product * penalty;
    }
    return sum / static_cast<double>(kLongest);
  }

  double logarithm_;
  std::map<std::string, int64_t> documents_;  // n-gram -> number of images with it in a reference
};

// --- ROUGE-L: the longest common subsequence.

size_t common_subsequence(const Words& a, const Words& b) {
  std::vector<size_t> row(b.size() + 1, 0);
  for (const std::string& word : a) {
    size_t diagonal = 0;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t above = row[j + 1];
      row[j + 1] = word == b[j] ? diagonal + 1 : std::max(above, row[j]);
      diagonal = above;
    }
  }
  return row.back();
}

double rouge_of(const Image& image) {
  constexpr double kBeta = 1.2;
  double precision = 0, recall = 0;
  for (const Words& reference : image.references) {
    const auto common = static_cast<double>(common_subsequence(reference, image.candidate));
    precision =
        std::max(precision, common / static_cast<double>(std::max<size_t>(1, image.candidate.size())));
    recall = std::max(recall, common / static_cast<double>(std::max<size_t>(1, reference.size())));
  }
  if (precision == 0 || recall == 0) return 0;
  return (1 + kBeta * kBeta) * precision * recall / (recall + kBeta * kBeta * precision);
}

}  // namespace

CaptionScores score_captions(const std::vector<CaptionedImage>& images) {
  check(!images.empty(), "there are no captions to score");
  std::vector<Image> parsed;
  for (size_t i = 0; i < images.size(); ++i) {
    check(!images[i].references.empty(), "image ", i, " has no reference to score its caption by");
    Image image{words_of(images[i].candidate), {}, {}, {}};
    image.grams = all_grams(image.candidate);
    for (const std::string& reference : images[i].references) {
      image.references.push_back(words_of(reference));
      image.reference_grams.push_back(all_grams(image.references.back()));
    }
    parsed.push_back(std::move(image));
  }
  CaptionScores out;
  const Cider cider(parsed);
  BleuCounts all;
  for (const Image& image : parsed) {
    const BleuCounts counts = bleu_counts(image);
    all.add(counts);
    out.bleu_each.push_back(bleu_of(counts));
    out.cider_each.push_back(cider.score(image));
    out.rouge_l_each.push_back(rouge_of(image));
    out.cider += out.cider_each.back(), out.rouge_l += out.rouge_l_each.back();
  }
  out.bleu = bleu_of(all);
  out.cider /= static_cast<double>(images.size()), out.rouge_l /= static_cast<double>(images.size());
  return out;
}

}  // namespace tessera::eval
