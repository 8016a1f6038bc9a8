// Tools of the family files: a typed config becomes a Family; settings that several families share.
#pragma once

#include "ops/torch.h"

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/config.h"
#include "models/base/model.h"
#include "nn/norm.h"

namespace tessera::models {

// Each family file has one of these namespaces; registry.cpp lists them.
// clang-format off
namespace vit { Family family(); }
namespace vil { Family family(); }
namespace vil1 { Family family(); }
namespace darl { Family family(); }
namespace illama { Family family(); }
namespace visionllama { Family family(); }
namespace visionllama_pyramid { Family family(); }
namespace twins { Family family(); }
namespace swin { Family family(); }
namespace resnet { Family family(); }
namespace convnext { Family family(); }
namespace dit { Family family(); }
namespace dalle { Family family(); }
namespace vitdet { Family family(); }
namespace poolformer { Family family(); }
namespace vanillanet { Family family(); }
namespace eva02 { Family family(); }
namespace aim { Family family(); }
namespace vil_pyramid { Family family(); }
namespace vim { Family family(); }
namespace vrwkv { Family family(); }
// clang-format on

struct Extent {
  int64_t height = 0, width = 0;
};

// Reads a setting that is a side ("224") or [height, width]; both must be positive.
Extent extent_of(const Value& setting, const char* name);

// Check relations between settings that several families share. Throw usage errors that name the keys.
void check_grid(const Value& image_size, int64_t patch_size);  // both sides whole patches
void check_width(int64_t dim, int64_t heads);                  // dim a multiple of heads
// Throws a usage error if the number of tokens, or of their channels, exceeds any machine's memory.
void check_tokens(int64_t rows, int64_t columns, int64_t dim);

// Ranges of the settings that determine a model's size. No published model comes near the limits. They limit
// the size of a model that a file can describe.
inline constexpr Range kDepth = between(1, 1000);       // blocks of a model, or of a stage
inline constexpr Range kWidth = between(1, 65536);      // channels of a token
inline constexpr Range kHeads = between(1, 4096);       // attention heads
inline constexpr Range kInChannels = between(1, 64);    // channels of an image
inline constexpr Range kPatchSize = between(1, 1024);   // pixels
inline constexpr Range kMlpRatio = above_to(0, 256);    // hidden width of an MLP divided by the token width
inline constexpr Range kHidden = between(0, 1 << 22);   // hidden width of an MLP, 0 = given by its ratio
inline constexpr Range kClasses = between(0, 1 << 24);  // outputs of a class head, 0 = no head

// Stochastic depth, which comes last in the settings of almost every family.
struct DropPathSettings {
  double drop_path = 0;
  bool drop_path_decay = false;

  template <class V>
  void visit_drop_path(V& v) {
    v("drop_path", drop_path, from_to_below(0, 1), "rate of stochastic depth");
    v("drop_path_decay", drop_path_decay,
      "from 0 at the first block to drop_path at the last, else the same for all");
  }
  std::vector<double> drop_path_rates(int64_t depth) const;  // one per block
};

// A LayerNorm or RMSNorm, as a setting chooses.
enum class NormKind { layer, rms };
struct Norm {
  nn::LayerNorm layer{nullptr};
  nn::RmsNorm rms{nullptr};
  torch::Tensor operator()(const torch::Tensor& x) { return layer ? layer(x) : rms(x); }
  nn::DeferredNorm before_linear(const torch::Tensor& x) const {
    return layer ? layer->before_linear(x) : rms->before_linear(x);
  }
  explicit operator bool() const { return layer || rms; }
};
Norm register_norm(torch::nn::Module& owner, const char* name, NormKind kind, int64_t width,
                   double eps = 1e-6);

// Builds a table of settings from pairs, for the lists of sizes: table({{"dim", 192}, {"heads", 3}}).
inline Value table(Value::Table entries) { return Value(std::move(entries)); }

// A family's settings together with those of the class head, in their historical order: `classes` before the
// width (dim or dims), and `head_batch_norm` at the end if Config has kHeadBatchNorm.
template <class Config>
struct SettingsWithHead {
  Config backbone;
  int64_t classes = 1000;
  bool head_batch_norm = false;

  template <class V>
  void visit(V& v) {
    auto each = [&](const char* key, auto& field, const auto&... rest) {
      const std::string name = key;
      if (name == "dim" || name == "dims")
        v("classes", classes, kClasses, "outputs of the class head, 0 = no head");
      v(key, field, rest...);
    };
    backbone.visit(each);
    if constexpr (requires { Config::kHeadBatchNorm; })
      v("head_batch_norm", head_batch_norm,
        "batch norm without parameters before the head (MAE's linear probing)");
  }
};

// Builds the family of a backbone class with one config. Config needs visit() and check(), Model a
// constructor Model(const Config&).
template <class Model, class Config>
Family make_family(std::string name, std::string summary, std::vector<Size> sizes) {
  Family family;
  family.name = std::move(name);
  family.summary = std::move(summary);
  const auto read = [](const Value& table) {
    auto settings = read_config<SettingsWithHead<Config>>(table, "model");
    settings.backbone.check();
    return settings;
  };
  family.build = [read](const Value& settings) -> std::shared_ptr<Backbone> {
    return std::make_shared<Model>(read(settings).backbone);
  };
  family.resolve = [read](const Value& settings) { return write_config(read(settings)); };
  family.sizes = std::move(sizes);
  return family;
}

// The family "none", for a task that reads no images. It has no weights, and any image is an
// error.
inline constexpr const char* kNoBackbone = "none";

// Returns the one family of this kind, which families() does not list.
const std::vector<Family>& imageless_families();

enum class Activation { published, gelu, gelu_tanh, quick_gelu, relu, silu };  // published: the kind's own

// Applies `activation` to a tensor of any shape; `published` is an error.
torch::Tensor activate(const torch::Tensor& x, Activation activation);

// Reads names of the transformers library, such as "gelu_new" for gelu_tanh. Throws a usage error that begins
// with `where` for an unknown name.
Activation published_activation(const std::string& name, const std::string& where);

// The tag of torchvision's first weights of a size, for which timm has no name.
inline constexpr const char* kTorchvisionTag = "torchvision";

// The published weights of a size: `usual` is the tag that a name without a tag stands for ("": none);
// `others` are tags with other preprocessing.
struct PublishedTags {
  std::string usual;
  std::vector<std::string> others;
};
PublishedTags published_tags(const std::string& size);

}  // namespace tessera::models

template <>
struct tessera::EnumNames<tessera::models::NormKind> {
  static constexpr std::array names = {"layer", "rms"};
};

template <>
struct tessera::EnumNames<tessera::models::Activation> {
  static constexpr std::array names = {"published", "gelu", "gelu_tanh", "quick_gelu", "relu", "silu"};
};
