#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/error.h"
#include "core/text.h"
#include "data/base/annotations.h"
#include "data/sources/latents.h"

namespace tessera::data {
namespace {

// Sums over the first views of latents, per channel.
struct Sums {
  std::vector<double> values, squares;
  double count = 0;  // numbers per channel

  explicit Sums(int64_t channels)
      : values(static_cast<size_t>(channels)), squares(static_cast<size_t>(channels)) {}

  // The expected square of a value is its squared mean plus its variance.
  void add(const LatentInfo& info, const std::vector<float>& moments) {
    const int64_t places = info.rows * info.columns;
    for (int64_t channel = 0; channel < info.channels; ++channel)
      for (int64_t i = channel * places; i < (channel + 1) * places; ++i) {
        const double mean = static_cast<double>(moments[static_cast<size_t>(i)]),
                     deviation = static_cast<double>(moments[static_cast<size_t>(info.numel() + i)]);
        values[static_cast<size_t>(channel)] += mean;
        squares[static_cast<size_t>(channel)] += mean * mean + deviation * deviation;
      }
    count += static_cast<double>(places);
  }
};

std::vector<float> moments_of(const RawSample& sample) {
  const auto& bytes = std::get<std::vector<std::byte>>(sample.picture);
  std::vector<float> moments(bytes.size() / sizeof(float));
  std::memcpy(moments.data(), bytes.data(), moments.size() * sizeof(float));
  return moments;
}

// Returns "" for valid moments.
std::string fault_of(const LatentInfo& info, const std::vector<float>& moments) {
  const auto numbers = static_cast<size_t>(info.numel());
  for (size_t i = 0; i < moments.size(); ++i) {
    if (!std::isfinite(moments[i])) return text("number ", i, " is ", moments[i], ", must be finite");
    if (i / numbers % 2 == 1 && moments[i] < 0)
      return text("deviation ", i % numbers, " is ", moments[i], ", must not be below 0");
  }
  return "";
}

std::string listed(const std::vector<double>& values) {
  std::vector<std::string> words;
  for (const double value : values) words.push_back(fixed(value, 4));
  return join(words, ", ");
}

class LatentAnnotations final : public Annotations {
 public:
  explicit LatentAnnotations(const LatentSource& source) : Annotations(source), info_(source.latents()) {}

  void require_same(const Source& train, const Source& validation) const override {
    require_same_codec(as_latents(&train)->latents(), "the training set", as_latents(&validation)->latents(),
                       "the validation set");
  }
  std::vector<std::string> problems_of(int64_t, const RawSample& sample) const override {
    const std::string fault = fault_of(info_, moments_of(sample));
    return fault.empty() ? std::vector<std::string>() : std::vector{sample.name + ": " + fault};
  }

  // Mean and standard deviation of each channel as a generator reads it: scaled, including noise. Reads
  // evenly spaced samples; skips invalid ones.
  Facts facts(int64_t most) const override {
    Sums sums(info_.channels);
    int64_t samples = 0;
    const int64_t count = std::min(most, source_.size());
    for (int64_t i = 0; i < count; ++i) {
      const std::vector<float> moments = moments_of(source_.read(i * source_.size() / count));
      if (!fault_of(info_, moments).empty()) continue;
      sums.add(info_, moments);
      ++samples;
    }
    std::vector<double> means, deviations;
    for (size_t channel = 0; channel < sums.values.size() && sums.count > 0; ++channel) {
      const double mean = sums.values[channel] / sums.count;
      means.push_back(mean * info_.scale);
      deviations.push_back(std::sqrt(std::max(0.0, sums.squares[channel] / sums.count - mean * mean)) *
                           info_.scale);
    }
    Facts out;
    out.text =
        text("  VAE    ", printable(info_.codec, 1000), " ", printable(info_.checksum, 1000), ", ",
             info_.factor, " pixels a place, scale ", shortest(info_.scale),
             info_.views == 2 ? ", mirrored images too" : "", "\n  mean   [", listed(means), "]\n  std    [",
             listed(deviations), "]  (by channel, scaled, of ", counted(samples, "latent"), ")\n");
    out.json = {{"description", source_.describe()},
                {"latents", source_.size()},
                {"codec", info_.codec},
                {"checksum", info_.checksum},
                {"scale", info_.scale},
                {"factor", info_.factor},
                {"shape", {info_.channels, info_.rows, info_.columns}},
                {"views", info_.views},
                {"sample", {{"latents", samples}, {"mean", means}, {"std", deviations}}}};
    return out;
  }

 private:
  const LatentInfo& info_;
};

}  // namespace

std::unique_ptr<Annotations> LatentSource::annotations() const {
  return std::make_unique<LatentAnnotations>(*this);
}

}  // namespace tessera::data
