// components/preprocess_clip: how OpenCLIP prepares images. Hugging Face's rounding and LLaVA's framings are not ours.
#include "core/error.h"
#include "core/text.h"
#include "data/transforms/transform.h"
#include "tests/parity/image_case.h"
#include "tests/parity/pair_cases.h"

namespace tessera::parity {
namespace {

using Json = nlohmann::json;

const std::vector<double> kMean = {0.48145466, 0.4578275, 0.40821073},
                          kStd = {0.26862954, 0.26130258, 0.27577711};

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

}  // namespace

CaseResult check_clip_preprocess(const Golden& golden) {
  Comparison compare;
  const Json& config = golden.config();
  const auto side = config.at("size").get<int>();
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
  }
  return compare.result();
}

}  // namespace tessera::parity
