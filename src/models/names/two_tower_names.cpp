#include "models/names/two_tower_names.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

#include "core/error.h"

namespace tessera::models {
namespace {

using Pair = std::pair<std::string_view, std::string_view>;

bool any_starts_with(const std::vector<std::string>& names, std::string_view prefix) {
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& name) { return name.starts_with(prefix); });
}

// The rest of a name behind a prefix; false if it does not begin so.
bool cut_prefix(std::string_view& name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return false;
  name.remove_prefix(prefix.size());
  return true;
}

// Collects what is known of our tensors.
class Sources {
 public:
  void copy(const std::string& ours, const std::string& published) { part(ours, {published}); }
  void transpose(const std::string& ours, const std::string& published) {
    part(ours, {published});
    list_.back().transposed = true;
  }
  // Part `place` of several that stand one below the other, in whatever order they come.
  void part(const std::string& ours, PublishedRows rows, size_t place = 0) {
    const auto [found, is_new] = index_.try_emplace(ours, list_.size());
    if (is_new) list_.push_back({ours, {}, false});
    PublishedSource& source = list_[found->second];
    if (source.parts.size() <= place) source.parts.resize(place + 1);
    check(source.parts[place].name.empty(), "two of the tensors, ", source.parts[place].name, " and ",
          rows.name, ", are ", ours);
    source.parts[place] = std::move(rows);
  }
  // nn.MultiheadAttention whose q is apart from k and v of ours.
  void split_attention(const std::string& ours, std::string_view rest, const std::string& published) {
    const std::string to = ours + "attn.";
    if (rest == "in_proj_weight" || rest == "in_proj_bias") {
      const std::string kind(rest.substr(std::string_view("in_proj_").size()));
      part(to + "q." + kind, {published, 0, 1});
      part(to + "kv." + kind, {published, 1, 3});
    } else if (rest == "q_proj_weight") {
      part(to + "q.weight", {published});
    } else if (rest == "k_proj_weight" || rest == "v_proj_weight") {
      part(to + "kv.weight", {published}, rest[0] == 'v' ? 1 : 0);
    } else if (cut_prefix(rest, "out_proj.")) {
      part(to + "proj." + std::string(rest), {published});
    }
  }
  std::vector<PublishedSource> take() {
    for (const PublishedSource& source : list_)
      for (const PublishedRows& rows : source.parts)
        check(!rows.name.empty(), "of the tensors that make ", source.ours, " one is missing");
    return std::move(list_);
  }

 private:
  std::vector<PublishedSource> list_;
  std::map<std::string, size_t> index_;
};

// "3.attn.in_proj_weight" of OpenCLIP's residual block -> "3.attn.qkv.weight".
std::string open_clip_block(std::string_view name) {
  static constexpr std::array<Pair, 8> pairs = {Pair{"ln_1.", "norm1."},
                                                {"ln_2.", "norm2."},
                                                {"attn.in_proj_weight", "attn.qkv.weight"},
                                                {"attn.in_proj_bias", "attn.qkv.bias"},
                                                {"attn.out_proj.", "attn.proj."},
                                                {"mlp.c_fc.", "mlp.fc1."},
                                                {"mlp.c_proj.", "mlp.fc2."},
                                                {"ls_", "ls"}};
  const size_t dot = name.find('.') + 1;
  const std::string number(name.substr(0, dot));
  std::string_view rest = name.substr(dot);
  for (const auto& [theirs, ours] : pairs)
    if (cut_prefix(rest, theirs)) return number + std::string(ours) + std::string(rest);
  return "";
}

// --- OpenAI, OpenCLIP

using BackboneName = std::function<std::string(const std::string&)>;

void open_clip_image(Sources& out, std::string_view name, const std::string& published,
                     const BackboneName& backbone_name) {
  const std::string trunk = "visual.trunk.";
  if (name == "class_embedding") return out.copy(trunk + "cls_token", published);
  if (name == "positional_embedding") return out.copy(trunk + "pos_embed", published);
  if (name == "proj") return out.transpose("visual.head.proj.weight", published);
  if (cut_prefix(name, "trunk.") || name.starts_with("head.proj"))
    return out.copy((name.starts_with("head.proj") ? "visual." : trunk) + std::string(name), published);
  if (cut_prefix(name, "transformer.resblocks."))
    return out.copy(trunk + "blocks." + open_clip_block(name), published);
  if (cut_prefix(name, "attn_pool.")) {
    if (cut_prefix(name, "attn.")) return out.split_attention("visual.attn_pool.", name, published);
    return out.copy("visual.attn_pool." + std::string(name), published);
  }
  if (backbone_name) return out.copy(trunk + backbone_name(std::string(name)), published);
  if (name == "conv1.weight") return out.copy(trunk + "patch_embed.proj.weight", published);
  if (cut_prefix(name, "ln_pre.")) return out.copy(trunk + "norm_pre." + std::string(name), published);
  if (cut_prefix(name, "ln_post.")) return out.copy(trunk + "norm." + std::string(name), published);
}

void open_clip_text(Sources& out, std::string_view name, const std::string& published) {
  const std::string text = "text.";
  if (name == "text_projection") return out.transpose(text + "text_projection.weight", published);
  if (cut_prefix(name, "transformer.resblocks."))
    return out.copy(text + "blocks." + open_clip_block(name), published);
  for (const char* known :
       {"token_embedding.", "positional_embedding", "cls_emb", "ln_final.", "text_projection."})
    if (name.starts_with(known)) return out.copy(text + std::string(name), published);
}

void open_clip_decoder(Sources& out, std::string_view name, const std::string& published) {
  const std::string decoder = "text_decoder.";
  if (name == "text_projection") return out.transpose(decoder + "text_projection.weight", published);
  if (cut_prefix(name, "resblocks.")) return out.copy(decoder + "blocks." + open_clip_block(name), published);
  if (cut_prefix(name, "ln_final.")) return out.copy(decoder + "ln_final." + std::string(name), published);
  if (!cut_prefix(name, "cross_attn.")) return;
  const size_t dot = name.find('.') + 1;
  const std::string number(name.substr(0, dot));
  std::string_view rest = name.substr(dot);
  const std::string block = decoder + "cross_blocks." + number;
  if (cut_prefix(rest, "attn.")) return out.split_attention(block, rest, published);
  if (cut_prefix(rest, "ln_1_kv.")) return out.copy(block + "norm_context." + std::string(rest), published);
  out.copy(decoder + "cross_blocks." + open_clip_block(name), published);
}

// CoCa's image tower ends in a pooler, behind which the norm stands.
bool has_pooler(const std::vector<std::string>& names) { return any_starts_with(names, "visual.attn_pool."); }

void from_open_clip(Sources& out, const std::vector<std::string>& names, const BackboneName& backbone_name) {
  const bool pooler = has_pooler(names);
  for (const std::string& published : names) {
    std::string_view name = published;
    if (name == "logit_scale" || name == "logit_bias") {
      out.copy(published, published);
    } else if (cut_prefix(name, "visual.")) {
      if (pooler && name.starts_with("ln_post."))
        out.copy(published, published);
      else
        open_clip_image(out, name, published, backbone_name);
    } else if (cut_prefix(name, "text_decoder.")) {
      open_clip_decoder(out, name, published);
    } else {
      cut_prefix(name, "text.");
      open_clip_text(out, name, published);
    }
  }
}

// --- Hugging Face

// A layer of the encoder; q, k and v are three tensors.
void hugging_face_layer(Sources& out, const std::string& tower, std::string_view name,
                        const std::string& published) {
  const size_t dot = name.find('.') + 1;
  const std::string block = tower + "blocks." + std::string(name.substr(0, dot));
  std::string_view rest = name.substr(dot);
  if (cut_prefix(rest, "layer_norm1.")) return out.copy(block + "norm1." + std::string(rest), published);
  if (cut_prefix(rest, "layer_norm2.")) return out.copy(block + "norm2." + std::string(rest), published);
  if (rest.starts_with("mlp.")) return out.copy(block + std::string(rest), published);
  if (!cut_prefix(rest, "self_attn.")) return;
  if (cut_prefix(rest, "out_proj.")) return out.copy(block + "attn.proj." + std::string(rest), published);
  for (size_t place = 0; place < 3; ++place) {
    static constexpr std::array<std::string_view, 3> parts = {"q_proj.", "k_proj.", "v_proj."};
    if (std::string_view kind = rest; cut_prefix(kind, parts[place]))
      return out.part(block + "attn.qkv." + std::string(kind), {published}, place);
  }
}

void hugging_face_image(Sources& out, std::string_view name, const std::string& published) {
  const std::string trunk = "visual.trunk.";
  if (cut_prefix(name, "encoder.layers.")) return hugging_face_layer(out, trunk, name, published);
  if (cut_prefix(name, "head.attention.")) {
    if (name.starts_with("in_proj_")) {
      const std::string kind(name.substr(std::string_view("in_proj_").size()));
      out.part(trunk + "attn_pool.q." + kind, {published, 0, 1});
      out.part(trunk + "attn_pool.kv." + kind, {published, 1, 3});
    } else if (cut_prefix(name, "out_proj.")) {
      out.copy(trunk + "attn_pool.proj." + std::string(name), published);
    }
    return;
  }
  static constexpr std::array<Pair, 8> pairs = {Pair{"embeddings.class_embedding", "cls_token"},
                                                {"embeddings.patch_embedding.", "patch_embed.proj."},
                                                {"embeddings.position_embedding.weight", "pos_embed"},
                                                {"pre_layrnorm.", "norm_pre."},
                                                {"post_layernorm.", "norm."},
                                                {"head.probe", "attn_pool.latent"},
                                                {"head.layernorm.", "attn_pool.norm."},
                                                {"head.mlp.", "attn_pool.mlp."}};
  for (const auto& [theirs, ours] : pairs)
    if (cut_prefix(name, theirs)) return out.copy(trunk + std::string(ours) + std::string(name), published);
}

void hugging_face_text(Sources& out, std::string_view name, const std::string& published) {
  if (cut_prefix(name, "encoder.layers.")) return hugging_face_layer(out, "text.", name, published);
  static constexpr std::array<Pair, 4> pairs = {
      Pair{"embeddings.token_embedding.", "token_embedding."},
      {"embeddings.position_embedding.weight", "positional_embedding"},
      {"final_layer_norm.", "ln_final."},
      {"head.", "text_projection."}};
  for (const auto& [theirs, ours] : pairs)
    if (cut_prefix(name, theirs)) return out.copy("text." + std::string(ours) + std::string(name), published);
}

void from_hugging_face(Sources& out, const std::vector<std::string>& names) {
  for (const std::string& published : names) {
    std::string_view name = published;
    if (name == "logit_scale" || name == "logit_bias")
      out.copy(published, published);
    else if (name == "visual_projection.weight")
      out.copy("visual.head.proj.weight", published);
    else if (name == "text_projection.weight")
      out.copy("text.text_projection.weight", published);
    else if (cut_prefix(name, "vision_model."))
      hugging_face_image(out, name, published);
    else if (cut_prefix(name, "text_model."))
      hugging_face_text(out, name, published);
  }
}

}  // namespace

bool is_two_tower(const std::vector<std::string>& names) {
  const bool open_clip =
      any_starts_with(names, "visual.") &&
      (any_starts_with(names, "token_embedding.") || any_starts_with(names, "text.token_embedding."));
  return open_clip || (any_starts_with(names, "vision_model.") && any_starts_with(names, "text_model."));
}

std::vector<PublishedSource> two_tower_sources(const std::vector<std::string>& names,
                                               const BackboneName& backbone_name) {
  Sources out;
  if (any_starts_with(names, "vision_model.") || any_starts_with(names, "text_model."))
    from_hugging_face(out, names);
  else
    from_open_clip(out, names, backbone_name);
  return out.take();
}

torch::Tensor assemble(const PublishedSource& source,
                       const std::function<torch::Tensor(const std::string&)>& get) {
  std::vector<torch::Tensor> parts;
  for (const PublishedRows& rows : source.parts) {
    torch::Tensor tensor = get(rows.name);
    if (rows.first != 0 || rows.last != 3) {
      check(tensor.dim() > 0 && tensor.size(0) % 3 == 0, "tensor '", rows.name, "' ", tensor.sizes(),
            " holds q, k and v: its rows must be a multiple of 3");
      const int64_t third = tensor.size(0) / 3;
      tensor = tensor.slice(0, rows.first * third, rows.last * third);
    }
    parts.push_back(tensor);
  }
  torch::Tensor whole = parts.size() == 1 ? parts[0] : torch::cat(parts);
  if (source.transposed) {
    check(whole.dim() == 2, "tensor '", source.parts[0].name, "' ", whole.sizes(), " must be a matrix");
    whole = whole.t();
  }
  return whole;
}

torch::Tensor assemble(const PublishedSource& source,
                       const std::function<torch::Tensor(const std::string&)>& get,
                       torch::IntArrayRef shape) {
  const torch::Tensor whole = assemble(source, get);
  check(c10::multiply_integers(shape) == whole.numel(), "tensor '", source.parts[0].name, "' has ",
        whole.sizes(), ", ", source.ours, " must be ", shape);
  return whole.reshape(shape);
}

}  // namespace tessera::models
