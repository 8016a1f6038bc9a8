#include "eval/statistics_file.h"

#include <cmath>

#include "core/error.h"
#include "core/text.h"
#include "io/files/json.h"
#include "io/files/zip.h"
#include "io/weights/array_file.h"

namespace tessera::eval {
namespace {

constexpr const char* kOrigin = "tessera";
constexpr int64_t kMostWidth = 8192;

Gaussian read_gaussian(const NpzFile& file, const std::string& mean, const std::string& covariance) {
  std::vector<int64_t> shape;
  Gaussian out;
  out.mean = file.read_doubles(mean, shape, kMostWidth);
  const int64_t width = std::ssize(out.mean);
  check(shape.size() == 1 && width > 0, "'", file.path(), "': ", mean, " must be a row of 1 to ", kMostWidth,
        " means");
  out.covariance = file.read_doubles(covariance, shape, kMostWidth * kMostWidth);
  check(shape.size() == 2 && shape[0] == width && shape[1] == width, "'", file.path(), "': ", covariance,
        " must be [", width, ", ", width, "], as many as ", mean, " has");
  double largest = 0;
  for (int64_t i = 0; i < width; ++i) {
    check(std::isfinite(out.mean[static_cast<size_t>(i)]), "'", file.path(), "': ", mean, "[", i,
          "] is not a number");
    largest = std::max(largest, std::abs(out.covariance[static_cast<size_t>(i * width + i)]));
  }
  for (int64_t i = 0; i < width; ++i)
    for (int64_t j = 0; j <= i; ++j) {
      const double a = out.covariance[static_cast<size_t>(i * width + j)],
                   b = out.covariance[static_cast<size_t>(j * width + i)];
      check(std::abs(a - b) <= 1e-4 * largest, "'", file.path(), "': ", covariance, " is not symmetric at [",
            i, ", ", j, "]: ", a, " and ", b);
    }
  return out;
}

std::span<const std::byte> bytes_of(const std::vector<double>& numbers) {
  return std::as_bytes(std::span(numbers));
}

}  // namespace

FeatureStatistics read_statistics(const std::string& path) {
  const NpzFile file(path);
  if (!file.holds("mu") && file.holds("arr_0"))
    fail("'", path, "' holds images (arr_0), no statistics of features");
  FeatureStatistics out;
  out.pooled = read_gaussian(file, "mu", "sigma");
  if (file.holds("mu_s")) out.spatial = read_gaussian(file, "mu_s", "sigma_s");
  if (!file.holds(kOrigin)) return out;
  const NpzArray words = file.read(kOrigin);
  const auto json = parse_json(as_text(words.bytes), text("'", path, "': array '", kOrigin, "'"));
  const auto field = [&](const char* key) {
    const auto found = json.find(key);
    check(json.is_object() && found != json.end() && found->is_string(), "'", path, "': array '", kOrigin,
          "' has no text '", key, "'");
    return found->get<std::string>();
  };
  out.origin = {field("extractor"), field("protocol")};
  const auto samples = json.find("samples");
  check(samples != json.end() && samples->is_number_integer() && samples->get<int64_t>() > 0, "'", path,
        "': array '", kOrigin, "' has no number 'samples'");
  out.pooled.samples = samples->get<int64_t>();
  if (out.spatial) out.spatial->samples = out.pooled.samples;
  return out;
}

void write_statistics(const std::string& path, const FeatureStatistics& statistics) {
  const nlohmann::ordered_json origin = {{"extractor", statistics.origin.extractor},
                                         {"protocol", statistics.origin.protocol},
                                         {"samples", statistics.pooled.samples}};
  const std::string words = origin.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  std::vector<ArraySpec> arrays;
  const auto add = [&](const char* mean, const char* covariance, const Gaussian& gaussian) {
    arrays.push_back({mean, DType::f64, {gaussian.width()}});
    arrays.push_back({covariance, DType::f64, {gaussian.width(), gaussian.width()}});
  };
  add("mu", "sigma", statistics.pooled);
  if (statistics.spatial) add("mu_s", "sigma_s", *statistics.spatial);
  arrays.push_back({kOrigin, DType::u8, {std::ssize(words)}});
  ArrayFile file(path, arrays);
  const auto put = [&](const Gaussian& gaussian) {
    file.write(bytes_of(gaussian.mean));
    file.write(bytes_of(gaussian.covariance));
  };
  put(statistics.pooled);
  if (statistics.spatial) put(*statistics.spatial);
  file.write(std::as_bytes(std::span(words)));
  file.commit();
}

void require_same_origin(const FeatureOrigin& a, const std::string& name_a, const FeatureOrigin& b,
                         const std::string& name_b) {
  if (!a.known() || !b.known()) return;
  if (a.extractor != b.extractor)
    fail("features of two extractors cannot be compared: ", name_a, " has those of ", a.extractor, ", ",
         name_b, " those of ", b.extractor);
  if (a.protocol != b.protocol)
    fail("features of two protocols cannot be compared: ", name_a, " was made with '", a.protocol, "', ",
         name_b, " with '", b.protocol, "'");
}

}  // namespace tessera::eval
