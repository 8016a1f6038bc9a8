// components/preprocess_clip: how OpenCLIP, Hugging Face and LLaVA prepare images.
#include <array>

#include "core/error.h"
#include "core/text.h"
#include "data/transforms/framing.h"
#include "data/transforms/transform.h"
#include "tests/parity/image_case.h"

namespace tessera::parity::preprocess_cases {
namespace {

using Json = nlohmann::json;

const std::vector<double> kMean = {0.48145466, 0.4578275, 0.40821073},
                          kStd = {0.26862954, 0.26130258, 0.27577711};

// A picture that has its size already.
torch::Tensor normalised(const Image& image, const std::vector<double>& mean,
                         const std::vector<double>& std) {
  torch::Tensor out = torch::empty({3, image.height, image.width});
  data::normalise(image, data::Normalisation(mean, std), out.mutable_data_ptr<float>());
  return out;
}

// As weights say it: [preprocess].
torch::Tensor prepared(const Image& image, int64_t side, const std::string& mode,
                       const std::vector<double>& mean, const std::vector<double>& std) {
  const data::Preprocess settings{.size = side, .crop = 1, .mean = mean, .std = std, .crop_mode = mode};
  torch::Tensor out = torch::empty({3, side, side});
  RandomStream unused(0, "none");
  const data::Slot slot{reinterpret_cast<std::byte*>(out.mutable_data_ptr<float>())};
  data::make_eval_transform(settings)->apply({"input", image}, unused, std::span(&slot, 1));
  return out;
}

std::vector<data::Extent> sizes_of(const Json& pairs) {
  std::vector<data::Extent> sizes;
  for (const Json& pair : pairs) sizes.push_back({pair[1], pair[0]});  // width first
  return sizes;
}

void check_best(Comparison& compare, const std::string& picture, bool width_first,
                const std::vector<data::Extent>& sizes, const Json& want) {
  const std::vector<std::string> sides = split(picture, 'x');
  const auto side = [&](size_t i) { return static_cast<int>(parse_int(sides.at(i)).value_or(0)); };
  const data::Extent found = data::best_size({side(width_first ? 1 : 0), side(width_first ? 0 : 1)}, sizes);
  compare.holds("best size of " + picture, want == Json::array({found.width, found.height}),
                text("is ", found.width, "x", found.height));
}

CaseResult check_clip_preprocess(const Golden& golden) {
  Comparison compare;
  const Json& config = golden.config();
  const auto side = config.at("size").get<int>();
  const std::vector<data::Extent> grid = sizes_of(config.value("grid_pinpoints", Json::array()));
  std::array<uint8_t, 3> grey{};
  for (size_t c = 0; c < 3; ++c) grey[c] = static_cast<uint8_t>(255 * kMean[c]);
  for (const std::string& name : golden.names("output.")) {
    const size_t slash = name.find('/');
    const std::string picture = name.substr(0, slash), how = name.substr(slash + 1);
    const Image image = image_of(golden.view("input." + picture));
    const auto close = [&](const torch::Tensor& got) {
      compare.close(name, got, golden.tensor("output." + name), 0, 1e-6);
    };
    if (how == "openclip_shortest")
      close(prepared(image, side, "center", kMean, kStd));
    else if (how == "openclip_squash")
      close(prepared(image, side, "squash", kMean, kStd));
    else if (how == "openclip_longest")
      close(normalised(data::fit_into(image, {side, side}, data::FitRounding::nearest), kMean, kStd));
    else if (how == "hf_clip")
      close(normalised(data::shortest_then_centre(image, side), kMean, kStd));
    else if (how == "hf_siglip")
      close(normalised(data::resize_by_short_weights(image, side, side), {0.5, 0.5, 0.5}, {0.5, 0.5, 0.5}));
    else if (how == "llava_pad")
      close(normalised(data::shortest_then_centre(data::pad_to_square(image, grey), side), kMean, kStd));
    else if (how == "anyres_padded")
      expect_picture(
          compare, golden, "output." + name,
          data::fit_into(image, data::best_size({image.height, image.width}, grid), data::FitRounding::up));
    else
      compare.holds(name, false, "is no preparation of ours");
  }
  const Json best = config.value("best", Json::object());
  for (const auto& [picture, want] : best.items())
    check_best(compare, picture, /*width_first=*/false, grid, want);
  const std::vector<data::Extent> llava = {{672, 336}, {336, 672}, {672, 672}, {336, 1008}, {1008, 336}};
  const Json of_llava = config.value("best_resolution_llava16", Json::object());
  for (const auto& [picture, want] : of_llava.items())
    check_best(compare, picture, /*width_first=*/true, llava, want);
  return compare.result();
}

const Registered registered({
    {"clip_preprocess", check_clip_preprocess, {"components/preprocess_clip"}},
});

}  // namespace
}  // namespace tessera::parity::preprocess_cases
