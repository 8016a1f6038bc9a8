// The explicit table of families: self-registering statics would be dropped from a static archive.
#include "core/error.h"
#include "core/text.h"
#include "models/backbones/igpt.h"
#include "models/base/codec.h"
#include "models/base/family.h"
#include "models/base/model.h"
#include "models/heads/class_head.h"
#include "nn/init.h"

namespace tessera::models {

const std::vector<Family>& families() {
  static const std::vector<Family> all = {
      vit::family(),
      vil::family(),
      vil1::family(),
      darl::family(),
      illama::family(),
      visionllama::family(),
      visionllama_pyramid::family(),
      twins::family(),
      swin::family(),
      resnet::family(),
      convnext::family(),
      dalle::family(),
      dit::family(),
      vitdet::family(),
      poolformer::family(),
      vanillanet::family(),
      eva02::family(),
      aim::family(),
      vil_pyramid::family(),
      vim::family(),
      vrwkv::family(),
      igpt::family(),
  };
  return all;
}

const Family& find_family(const std::string& name) {
  std::vector<std::string> known;
  for (const auto* table : {&families(), &codec_families(), &imageless_families()})
    for (const Family& family : *table) {
      if (family.name == name) return family;
      known.push_back(family.name);
    }
  fail_usage("there is no model family '", name, "'", did_you_mean(name, known));
}

namespace {

bool goes_by(const Size& size, const std::string& name) {
  return size.name == name || std::find(size.aliases.begin(), size.aliases.end(), name) != size.aliases.end();
}

}  // namespace

ModelSpec resolve_model(const std::string& name, const Value& overrides) {
  const PublishedName published = split_published_name(name);
  std::vector<std::string> known;
  const auto spec = [&](const Family& family, Value settings) {
    tag_preprocess(published);  // refuses unknown tags
    merge(settings, overrides);
    return ModelSpec{name, family.name, family.resolve(settings)};
  };
  for (const auto* table : {&families(), &codec_families(), &imageless_families()})
    for (const Family& family : *table) {
      if (family.name == name) return spec(family, Value());
      known.push_back(family.name);
      for (const Size& size : family.sizes) {
        known.push_back(size.name);
        known.insert(known.end(), size.aliases.begin(), size.aliases.end());
        if (goes_by(size, published.size)) return spec(family, size.settings);
      }
    }
  fail_usage("there is no model '", name, "'", did_you_mean(name, known), " (`tessera models` lists them)");
}

Value published_preprocess(const ModelSpec& spec) {
  const Family& family = find_family(spec.family);
  const PublishedName published = split_published_name(spec.name);
  Value preprocess = family.preprocess;
  for (const Size& size : family.sizes)
    if (goes_by(size, published.size)) merge(preprocess, size.preprocess);
  merge(preprocess, tag_preprocess(published));
  return preprocess;
}

std::shared_ptr<Backbone> build_backbone(const ModelSpec& spec, uint64_t seed, Init init) {
  auto backbone = find_family(spec.family).build(spec.settings);
  if (init == Init::draw) backbone->initialise(seed);
  return backbone;
}

std::shared_ptr<Classifier> build_classifier(const ModelSpec& spec, uint64_t seed, Init init) {
  return std::make_shared<Classifier>(build_backbone(spec, seed, init), class_head_options(spec), seed, init);
}

std::shared_ptr<Backbone> meta_backbone(const ModelSpec& spec) {
  const nn::ShapesOnly shapes_only;
  return build_backbone(spec, 0, Init::skip);
}

std::shared_ptr<Classifier> meta_classifier(const ModelSpec& spec) {
  const nn::ShapesOnly shapes_only;
  return build_classifier(spec, 0, Init::skip);
}

}  // namespace tessera::models
