#include "cli/data/data_latents.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iostream>

#include "cli/base/common.h"
#include "core/error.h"
#include "core/text.h"

namespace tessera::cli {
namespace {

// Sums over the first views of latents, by channel.
struct Sums {
  std::vector<double> values, squares;
  double count = 0;  // numbers of a channel

  explicit Sums(int64_t channels)
      : values(static_cast<size_t>(channels)), squares(static_cast<size_t>(channels)) {}

  // A number's square is that of its mean and its variance.
  void add(const data::LatentInfo& info, const std::vector<float>& moments) {
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

// Returns the fault of a latent, or "".
std::string fault_of(const data::LatentInfo& info, const std::vector<float>& moments) {
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

}  // namespace

LatentStatistics latent_statistics(const data::LatentSource& source, int64_t most) {
  const data::LatentInfo& info = source.latents();
  LatentStatistics out;
  Sums sums(info.channels);
  const int64_t count = std::min(most, source.size());
  for (int64_t i = 0; i < count; ++i) {
    const data::RawSample sample = source.read(i * source.size() / count);
    const auto& bytes = std::get<std::vector<std::byte>>(sample.picture);
    std::vector<float> moments(bytes.size() / sizeof(float));
    std::memcpy(moments.data(), bytes.data(), moments.size() * sizeof(float));
    if (const std::string fault = fault_of(info, moments); !fault.empty()) {
      out.broken.add(sample.name + ": " + fault);
      continue;
    }
    sums.add(info, moments);
    ++out.samples;
  }
  for (size_t channel = 0; channel < sums.values.size() && sums.count > 0; ++channel) {
    const double mean = sums.values[channel] / sums.count;
    out.mean.push_back(mean * info.scale);
    out.std.push_back(std::sqrt(std::max(0.0, sums.squares[channel] / sums.count - mean * mean)) *
                      info.scale);
  }
  return out;
}

void print_latents(const data::LatentSource& source, const LatentStatistics& statistics, const char* split) {
  const data::LatentInfo& info = source.latents();
  std::cout << split << ": " << one_line(source.describe()) << "\n"
            << "  VAE    " << one_line(info.codec) << " " << one_line(info.checksum) << ", " << info.factor
            << " pixels a place, scale " << shortest(info.scale)
            << (info.views == 2 ? ", mirrored images too" : "") << "\n"
            << "  mean   [" << listed(statistics.mean) << "]\n  std    [" << listed(statistics.std)
            << "]  (by channel, scaled, of " << counted(statistics.samples, "latent") << ")\n";
}

nlohmann::ordered_json latents_info_json(const data::LatentSource& source,
                                         const LatentStatistics& statistics) {
  const data::LatentInfo& info = source.latents();
  return {{"description", source.describe()},
          {"latents", source.size()},
          {"codec", info.codec},
          {"checksum", info.checksum},
          {"scale", info.scale},
          {"factor", info.factor},
          {"shape", {info.channels, info.rows, info.columns}},
          {"views", info.views},
          {"sample", {{"latents", statistics.samples}, {"mean", statistics.mean}, {"std", statistics.std}}}};
}

void check_latents(const data::SourceConfig& config, int64_t show, bool as_json) {
  const data::OpenSplits splits = data::open_splits(config);
  if (!splits.errors.empty()) fail(splits.errors.front());
  nlohmann::ordered_json json = {{"ok", true}, {"splits", nlohmann::ordered_json::array()}};
  int64_t problems = 0;
  for (const auto* source : {splits.train.get(), splits.validation.get()}) {
    const data::LatentSource* latents = data::as_latents(source);
    if (!latents) continue;
    const LatentStatistics statistics = latent_statistics(*latents, source->size());
    const data::Lines& broken = statistics.broken;
    problems += broken.count;
    json["splits"].push_back(latents_info_json(*latents, statistics));
    json["splits"].back()["broken"] = {{"count", broken.count}, {"lines", broken.lines}};
    if (as_json) continue;
    print_latents(*latents, statistics, source == splits.train.get() ? "train" : "validation");
    for (int64_t i = 0; i < std::min<int64_t>(show, std::ssize(broken.lines)); ++i)
      std::cout << "  " << one_line(broken.lines[static_cast<size_t>(i)]) << "\n";
  }
  if (splits.train && splits.validation)
    data::require_same_codec(data::as_latents(splits.train.get())->latents(), "the training set",
                             data::as_latents(splits.validation.get())->latents(), "the validation set");
  json["ok"] = problems == 0;
  if (as_json)
    std::cout << json_text(json, 2) << "\n";
  else if (problems == 0)
    std::cout << "nothing wrong found\n";
  if (problems > 0) fail(config.path, ": ", counted(problems, "problem"), " found");
}

}  // namespace tessera::cli
