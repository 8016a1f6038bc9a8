// components/aug_corruptions_*: images under corruption from the benchmarks' own draws.
#include <cstring>

#include "core/error.h"
#include "core/text.h"
#include "data/tools/corruption.h"
#include "tests/parity/image_case.h"

namespace tessera::parity::corruption_cases {
namespace {

using Json = nlohmann::json;

std::vector<double> doubles(const Golden& golden, const std::string& name) {
  if (!golden.has(name)) return {};
  const torch::Tensor values = golden.tensor(name).to(torch::kFloat64).contiguous();
  return {values.const_data_ptr<double>(), values.const_data_ptr<double>() + values.numel()};
}

data::CorruptionDraws draws_of(const Golden& golden, const std::string& corruption,
                               const std::string& severity) {
  const Json& draws = golden.config().at("draws");
  data::CorruptionDraws out;
  out.normal = doubles(golden, "input.normal"), out.normal_2d = doubles(golden, "input.normal2d");
  out.uniform_1 = doubles(golden, "input.uniform1"), out.uniform_2 = doubles(golden, "input.uniform2");
  out.plasma = doubles(golden, "input.plasma");
  out.field_x = doubles(golden, "input.field_x"), out.field_y = doubles(golden, "input.field_y");
  for (const double count : doubles(golden, "input.counts." + severity))
    out.counts.push_back(static_cast<int64_t>(count));
  const std::vector<double> offsets = doubles(golden, "input.offsets." + severity);
  for (size_t i = 0; i + 1 < offsets.size(); i += 2)
    out.offsets.push_back({static_cast<int>(offsets[i]), static_cast<int>(offsets[i + 1])});
  const std::vector<double> affine = doubles(golden, "input.affine");
  for (size_t i = 0; i < affine.size() && i < 6; ++i) out.affine[i / 2][i % 2] = affine[i];
  if (golden.has("input.frost")) out.frost = image_of(golden.view("input.frost"));
  const std::string angle = corruption == "snow" ? "snow_angle_degrees" : "motion_angle_degrees";
  out.angle = draws.value(angle, 0.0);
  return out;
}

CaseResult check_corruptions(const Golden& golden) {
  const Json& config = golden.config();
  const Json tolerance = golden.meta.value("tolerance", Json::object());
  const data::CorruptionParameters& own =
      data::corruption_parameters(golden.name.find("cifar") != std::string::npos ? "cifar" : "imagenet");
  const Image picture = image_of(golden.view("input.picture"));
  Comparison compare;
  for (const auto& [corruption, severities] : config.at("parameters").items())
    for (size_t s = 0; s < severities.size(); ++s) {
      const Json& wanted = severities[s];
      const auto numbers =
          wanted.is_array() ? wanted.get<std::vector<double>>() : std::vector<double>{wanted.get<double>()};
      compare.close(text("parameters of ", corruption, " ", s + 1),
                    torch::tensor(own.of(corruption, static_cast<int>(s + 1)), torch::kFloat64),
                    torch::tensor(numbers, torch::kFloat64), 1e-12, 0);
      const std::string severity = std::to_string(s + 1), name = "output." + corruption + "." + severity;
      if (!golden.has(name)) continue;
      const data::CorruptionDraws draws = draws_of(golden, corruption, severity);
      const auto got = data::corrupt_unrounded(picture, corruption, numbers, draws);
      const bool exact = corruption == "jpeg_compression" || corruption == "pixelate";
      const double slack =
          exact ? 1e-9 : tolerance.value(corruption + "_atol", tolerance.value("atol", 0.02));
      compare.close(name, torch::tensor(got, torch::kFloat64).view({picture.height, picture.width, 3}),
                    golden.tensor(name).to(torch::kFloat64), 0, slack);
      const std::string map = "output.fog_map." + severity;
      if (corruption == "fog" && golden.has(map)) {
        const int side = data::plasma_side(picture.height, picture.width);
        const torch::Tensor whole =
            torch::tensor(data::plasma_map(side, numbers.at(1), draws.plasma), torch::kFloat64)
                .view({side, side});
        compare.close(map, whole.slice(0, 0, picture.height).slice(1, 0, picture.width),
                      golden.tensor(map).to(torch::kFloat64), 0, 1e-4);
      }
    }
  return compare.result();
}

const Registered registered({
    {"corruptions", check_corruptions, {"components/aug_corruptions"}},
});

}  // namespace
}  // namespace tessera::parity::corruption_cases
