#include "open/select.h"

#include <algorithm>
#include <array>
#include <map>

#include "core/error.h"
#include "core/text.h"
#include "models/backbones/illama.h"
#include "open/weights.h"

namespace tessera::train {
namespace {

// LLaMA's name of a block's tensor, as Meta and as Hugging Face write it, and iLLaMA's. q, k and v are one
// tensor there: they come in this order.
struct LlamaName {
  const char *meta, *hugging_face, *ours;
};
constexpr std::array<LlamaName, 9> kLlamaNames = {{
    {"attention.wq.weight", "self_attn.q_proj.weight", "attn.qkv.weight"},
    {"attention.wk.weight", "self_attn.k_proj.weight", "attn.qkv.weight"},
    {"attention.wv.weight", "self_attn.v_proj.weight", "attn.qkv.weight"},
    {"attention.wo.weight", "self_attn.o_proj.weight", "attn.proj.weight"},
    {"feed_forward.w1.weight", "mlp.gate_proj.weight", "mlp.fc1.weight"},
    {"feed_forward.w3.weight", "mlp.up_proj.weight", "mlp.fc3.weight"},
    {"feed_forward.w2.weight", "mlp.down_proj.weight", "mlp.fc2.weight"},
    {"attention_norm.weight", "input_layernorm.weight", "norm1.weight"},
    {"ffn_norm.weight", "post_attention_layernorm.weight", "norm2.weight"},
}};

using Views = std::map<std::string, const TensorView*>;

const TensorView* find(const Views& views, const std::string& name) {
  const auto found = views.find(name);
  return found == views.end() ? nullptr : found->second;
}

// The file's tensors that make up ours: one, or three that are joined; none where the file lacks any.
std::vector<const TensorView*> sources_of(const std::string& name, const Views& views) {
  if (const TensorView* same = find(views, name)) return {same};
  std::vector<const TensorView*> parts;
  const auto add = [&](const std::string& meta, const std::string& hugging_face) {
    const TensorView* part = find(views, meta);
    parts.push_back(part ? part : find(views, "model." + hugging_face));
  };
  if (name == "norm.weight") add("norm.weight", "norm.weight");
  const size_t dot = name.starts_with("blocks.") ? name.find('.', 7) : std::string::npos;
  const std::string layer = dot == std::string::npos ? "" : "layers." + name.substr(7, dot - 7) + ".";
  const std::string tail = layer.empty() ? "" : name.substr(dot + 1);
  for (const LlamaName& known : kLlamaNames)
    if (tail == known.ours) add(layer + known.meta, layer + known.hugging_face);
  if (std::find(parts.begin(), parts.end(), nullptr) != parts.end()) return {};
  return parts;
}

torch::Tensor selected(const std::vector<const TensorView*>& parts, const torch::Tensor& target,
                       const std::string& name, const std::string& path) {
  const auto count = static_cast<int64_t>(parts.size());
  std::vector<int64_t> shape = target.sizes().vec();
  check(shape.empty() || shape[0] % count == 0, "'", path, "': '", name, "' of ", target.sizes(),
        " is not made of ", count, " parts");
  if (!shape.empty()) shape[0] /= count;
  std::vector<torch::Tensor> cut;
  for (const TensorView* part : parts) {
    try {
      cut.push_back(models::select_weights(to_tensor(*part), shape));
    } catch (const Error& error) {
      fail("'", path, "': tensor '", part->name, "' for '", name, "': ", error.what());
    }
  }
  return count == 1 ? cut[0] : torch::cat(cut);
}

}  // namespace

LoadReport select_pretrained(models::Backbone& model, const models::ModelSpec& spec, const WeightFile& file) {
  const std::string& path = file.path();
  const std::vector<TensorView>& tensors = file.tensors();
  const std::vector<std::string> names = our_names(tensors, models::find_family(spec.family));
  Views views;
  for (size_t i = 0; i < names.size(); ++i) {
    views.emplace(tensors[i].name, &tensors[i]);
    views.emplace(names[i], &tensors[i]);
  }
  LoadReport report;
  const torch::NoGradGuard no_grad;
  for (const auto& item : model.named_parameters()) {
    const std::string& name = item.key();
    const auto parts = name.starts_with("head") ? std::vector<const TensorView*>() : sources_of(name, views);
    if (parts.empty()) {
      report.fresh.push_back(name);
      continue;
    }
    torch::Tensor target = item.value();
    target.copy_(selected(parts, target, name, path));
    ++report.loaded;
  }
  if (report.loaded == 0)
    fail("'", path, "' holds no tensor to select from: none has the name of a parameter of ", spec.name,
         " or of LLaMA");
  report.lines.push_back(text("selected first weights for ", report.loaded, " tensors from ", path));
  report.lines.push_back(text("first values of their own: ", report.fresh.size(), " tensors, such as ",
                              report.fresh.empty() ? "none" : report.fresh.front()));
  return report;
}

}  // namespace tessera::train
