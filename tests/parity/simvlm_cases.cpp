// components/model_simvlm_tiny: both forms of SimVLM behind a convolutional stem of the golden's own narrow widths.
#include <torch/nn/modules/container/modulelist.h>

#include "core/error.h"
#include "models/pairs/simvlm.h"
#include "nn/convolution.h"
#include "tests/parity/published_case.h"

namespace tessera::parity::simvlm_cases {
namespace {

using torch::Tensor;

// ResNet's stem and one bottleneck a stage; a stage halves the grid unless it is the first.
class Stem : public torch::nn::Module {
 public:
  Stem(const Golden& golden, const std::string& prefix) {
    const auto shape = [&](const std::string& name) { return golden.view(prefix + "param." + name).shape; };
    const int64_t width = shape("stem.0.weight")[0];
    stem_ = add("stem.0", {.in = 3, .out = width, .kernel = 7, .stride = 2, .padding = 3});
    stem_norm_ = norm("stem.1", width);
    int64_t in = width;
    for (int64_t i = 0; golden.has(prefix + "param.blocks." + std::to_string(i) + ".conv1.weight"); ++i) {
      const std::string block = "blocks." + std::to_string(i) + ".";
      const int64_t inner = shape(block + "conv1.weight")[0], out = shape(block + "conv3.weight")[0],
                    stride = i == 0 ? 1 : 2;
      Block made;
      made.convs = {
          add(block + "conv1", {.in = in, .out = inner}),
          add(block + "conv2", {.in = inner, .out = inner, .kernel = 3, .stride = stride, .padding = 1}),
          add(block + "conv3", {.in = inner, .out = out})};
      made.norms = {norm(block + "bn1", inner), norm(block + "bn2", inner), norm(block + "bn3", out)};
      if (golden.has(prefix + "param." + block + "downsample.0.weight")) {
        made.convs.push_back(add(block + "downsample.0", {.in = in, .out = out, .stride = stride}));
        made.norms.push_back(norm(block + "downsample.1", out));
      }
      blocks_.push_back(made);
      in = out;
    }
    width_ = in;
  }

  int64_t width() const { return width_; }

  Tensor forward(const Tensor& images) {
    Tensor x = nn::convolve(stem_, stem_norm_, images.permute({0, 2, 3, 1}));
    x = at::max_pool2d(x.permute({0, 3, 1, 2}), {3, 3}, {2, 2}, {1, 1}).permute({0, 2, 3, 1});
    for (const Block& block : blocks_) {
      const Tensor shortcut =
          block.convs.size() > 3 ? nn::convolve(block.convs[3], block.norms[3], x, /*relu=*/false) : x;
      Tensor y = nn::convolve(block.convs[0], block.norms[0], x);
      y = nn::convolve(block.convs[1], block.norms[1], y);
      x = nn::convolve(block.convs[2], block.norms[2], y, /*relu=*/true, shortcut);
    }
    return x.flatten(1, 2);
  }

  // The golden's name of each of the registered modules, whose own names hold no dots.
  std::map<std::string, std::string> names;

 private:
  struct Block {
    std::vector<nn::Conv2d> convs;
    std::vector<nn::BatchNorm2d> norms;
  };
  std::string own(const std::string& name) {
    std::string out = name;
    for (char& c : out)
      if (c == '.') c = '_';
    names[out] = name;
    return out;
  }
  nn::Conv2d add(const std::string& name, const nn::Conv2dOptions& options) {
    return register_module(own(name), nn::Conv2d(options));
  }
  nn::BatchNorm2d norm(const std::string& name, int64_t channels) {
    return register_module(own(name), nn::BatchNorm2d(channels));
  }

  nn::Conv2d stem_{nullptr};
  nn::BatchNorm2d stem_norm_{nullptr};
  std::vector<Block> blocks_;
  int64_t width_ = 0;
};

// "layers.0.qkv.weight" -> "layers.0.attn.qkv.weight": the golden's blocks have no modules of modules.
std::string our_name(const std::string& published) {
  static const std::vector<std::pair<std::string, std::string>> pairs = {
      {".qkv.", ".attn.qkv."}, {".proj_cross.", ".cross.proj."}, {".q.", ".cross.q."},
      {".kv.", ".cross.kv."},  {".proj.", ".attn.proj."},        {".fc1.", ".mlp.fc1."},
      {".fc2.", ".mlp.fc2."}};
  for (const auto& [theirs, ours] : pairs) {
    const size_t found = published.find(theirs);
    if (found != std::string::npos)
      return published.substr(0, found) + ours + published.substr(found + theirs.size());
  }
  return published;
}

void run_form(Comparison& compare, const Golden& golden, const std::string& form, torch::ScalarType dtype) {
  const std::string prefix = form + "/";
  const auto stem = std::make_shared<Stem>(golden, prefix);
  const auto& config = golden.config();
  const auto shape = [&](const std::string& name) { return golden.view(prefix + "param." + name).shape; };
  const auto blocks = [&](const std::string& list) {
    int64_t count = 0;
    while (golden.has(prefix + "param." + list + "." + std::to_string(count) + ".qkv.weight")) ++count;
    return count;
  };
  models::SimVlmConfig settings;
  settings.vocab_size = config.at("vocab"), settings.dim = config.at("width"),
  settings.heads = config.at("heads");
  settings.context_length = shape("text_pos")[1], settings.image_tokens = shape("image_pos")[1];
  settings.depth = blocks("layers"), settings.decoder_depth = blocks("decoder");
  settings.hidden = shape("layers.0.fc1.weight")[0], settings.image_width = stem->width();
  const auto model = std::make_shared<models::SimVlm>(settings);
  PublishedCase one(compare, golden, dtype, prefix);
  std::vector<train::TensorSource> sources;
  std::map<std::string, std::string> of_stem;  // the golden's name -> ours
  for (const auto& [ours, theirs] : stem->names) of_stem[theirs] = ours;
  for (const std::string& name : golden.names(prefix + "param.")) {
    const size_t dot = name.rfind('.');
    const auto found = of_stem.find(name.substr(0, dot));
    const std::string ours =
        found == of_stem.end() ? our_name(name) : "stem:" + found->second + name.substr(dot);
    sources.push_back({ours, {{name, ours}}, {}});
  }
  one.load({{"stem:", stem}, {"", model}}, sources);
  {
    const torch::NoGradGuard no_grad;
    for (const auto& entry : stem->named_buffers()) {
      const size_t dot = entry.key().rfind('.');
      entry.value().copy_(golden.tensor(
          prefix + "buffer." + stem->names.at(entry.key().substr(0, dot)) + entry.key().substr(dot), dtype));
    }
  }
  const Tensor ids = one.input("ids"), start = one.input("prefix"), valid = one.input("valid");
  const Tensor logits = model->forward(stem->forward(one.input("image")), ids, start, valid);
  const models::PrefixLoss loss = models::prefix_loss(logits, ids, start, valid);
  const Tensor kept = golden.tensor(prefix + "output.logits", dtype).ne(0).any(2, /*keepdim=*/true).to(dtype);
  one.output("logits", logits * kept);
  one.output("lm_loss", (loss.sum / loss.count).reshape(golden.view(prefix + "output.lm_loss").shape));
  one.gradients();
}

CaseResult check_simvlm(const Golden& golden) {
  Comparison compare;
  for (const torch::ScalarType dtype : {torch::kFloat64, torch::kFloat32})
    for (const char* form : {"decoder_only", "encoder_decoder"})
      if (!golden.names(std::string(form) + "/param.").empty()) run_form(compare, golden, form, dtype);
  return compare.result();
}

const Registered registered({
    {"simvlm", check_simvlm, {"components/model_simvlm"}},
});

}  // namespace
}  // namespace tessera::parity::simvlm_cases
