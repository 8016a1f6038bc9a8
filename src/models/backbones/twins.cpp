// Twins-SVT (Chu et al. 2021, "Twins: revisiting the design of spatial attention in vision transformers").
// Names of parameters and sizes are timm's.
//
//   a stage: patches of the map before, a norm, then blocks
//     y  = x + LSA or GSA(norm(x)),   x' = y + mlp(norm(y))
//     after its first block           x + depthwise 3x3 convolution of x  (conditional positions)
//   scores = head(mean over the tokens of norm(x_L))
#include "core/error.h"
#include "models/backbones/twins_stages.h"

namespace tessera::models::twins {
namespace {

struct Config : TwinsSettings {
  std::vector<double> mlp_ratios = {};

  Config() { drop_path_decay = true; }

  template <class V>
  void visit(V& v) {
    visit_stages(v);
    v("mlp_ratio", mlp_ratio, kMlpRatio, "hidden width of the MLP as a multiple of the token's");
    v("mlp_ratios", mlp_ratios, kMlpRatio, "one ratio per stage, instead of one for all");
    v("qkv_bias", qkv_bias, "biases of q, k, v");
    visit_drop_path(v);
  }

  void check() const {
    check_stages();
    if (!mlp_ratios.empty() && mlp_ratios.size() != dims.size())
      fail_usage("model.mlp_ratios has ", mlp_ratios.size(), " numbers, must have one per stage, ",
                 dims.size(), ", or none");
  }

  TwinsPlan plan() const {
    TwinsPlan plan = plan_stages(*this, MlpKind::gelu);
    for (size_t s = 0; s < mlp_ratios.size(); ++s)
      plan.hidden[s] = default_hidden(MlpKind::gelu, dims[s], mlp_ratios[s]);
    plan.pegs = "pos_block";
    plan.nested_pegs = true;
    return plan;
  }
};

class TwinsSvt final : public TwinsBackbone {
 public:
  explicit TwinsSvt(const Config& config) : TwinsBackbone(config.plan()) {}

  std::vector<std::string> no_weight_decay() const override {
    std::vector<std::string> names;
    for (const auto& entry : named_parameters())
      if (entry.key().starts_with("pos_block.")) names.push_back(entry.key());
    return names;
  }

 protected:
  torch::Tensor read(const torch::Tensor& x) override { return norm_(x).mean({1, 2}); }
};

}  // namespace

Family family() {
  Family family = make_family<TwinsSvt, Config>(
      "twins_svt", "Twins-SVT: attention inside windows and to sub-sampled keys, four stages",
      {
          {"twins_svt_small", {}, stages_table({64, 128, 256, 512}, {2, 2, 10, 4}, {2, 4, 8, 16})},
          {"twins_svt_base", {}, stages_table({96, 192, 384, 768}, {2, 2, 18, 2}, {3, 6, 12, 24})},
          {"twins_svt_large", {}, stages_table({128, 256, 512, 1024}, {2, 2, 18, 2}, {4, 8, 16, 32})},
      });
  family.preprocess = table({{"crop", 0.9}});  // timm's configuration
  return family;
}

}  // namespace tessera::models::twins
