#include "core/error.h"
#include "models/base/family.h"

namespace tessera::models {
namespace {

// The settings that every family has; they have no effect here.
struct NoBackboneConfig {
  int64_t image_size = 1, classes = 0;
  double drop_path = 0;
  template <class V>
  void visit(V& v) {
    v("image_size", image_size, between(1, 1 << 14), "unused: no image is read");
    v("classes", classes, between(0, 0), "unused: there is no class head");
    v("drop_path", drop_path, between(0, 0), "unused: there are no blocks");
  }
};

class NoBackbone final : public Backbone {
 public:
  std::vector<torch::Tensor> features(const torch::Tensor&, const std::vector<int64_t>&,
                                      const Context&) override {
    refuse();
  }
  torch::Tensor embed(const torch::Tensor&, const Context&) override { refuse(); }
  int64_t embed_width() const override { return 0; }
  std::vector<std::string> head_names() const override { return {}; }
  int64_t block_count() const override { return 0; }
  int64_t macs(int64_t, int64_t) const override { return 0; }
  void first_values(const std::string&, const torch::Tensor&, const nn::Filler&) const override {}

 private:
  [[noreturn]] static void refuse() {
    fail_usage("model.name = \"", kNoBackbone, "\" reads no images: it is for tasks on texts alone");
  }
};

NoBackboneConfig read(const Value& settings) { return read_config<NoBackboneConfig>(settings, "model"); }

}  // namespace

const std::vector<Family>& imageless_families() {
  static const std::vector<Family> all = {{
      .name = kNoBackbone,
      .summary = "no backbone, for tasks on texts alone",
      .build = [](const Value& settings) -> std::shared_ptr<Backbone> {
        read(settings);
        return std::make_shared<NoBackbone>();
      },
      .resolve = [](const Value& settings) { return write_config(read(settings)); },
      .sizes = {},
  }};
  return all;
}

}  // namespace tessera::models
