// components/block_glip: fusion of cells and tokens, their scores, the focal losses of tokens, and scores of classes.
#include "core/error.h"
#include "models/detection/glip.h"
#include "tests/parity/model_case.h"
#include "tests/parity/published_case.h"
#include "weights/name_tables.h"

namespace tessera::parity::glip_cases {
namespace {

using Json = nlohmann::json;
using torch::Tensor;

// Levels of a pyramid by their names, "visual.0" and on.
std::vector<Tensor> levels_of(PublishedCase& one, const Golden& golden, const std::string& prefix) {
  std::vector<Tensor> levels;
  for (int64_t i = 0; golden.has(text(prefix, "input.visual.", i)); ++i)
    levels.push_back(one.input(text("visual.", i)));
  return levels;
}

Tensor cells_of(const Tensor& map) { return map.flatten(2).transpose(1, 2); }

void check_fusion(Comparison& comparison, const Golden& golden, const std::string& name,
                  torch::ScalarType dtype) {
  const Json& config = golden.config()[name];
  const auto number = [&](const char* key) { return config.at(key).get<int64_t>(); };
  const std::string prefix = name + "/";
  const auto fusion = std::make_shared<models::GlipFusion>(number("v_dim"), number("l_dim"),
                                                           number("embed_dim"), number("num_heads"));
  PublishedCase one(comparison, golden, dtype, prefix);
  one.load({{"", fusion}},
           train::sources_of(train::names_of_family("glip").ours(golden.names(prefix + "param."))));
  const std::vector<Tensor> levels = levels_of(one, golden, prefix);
  std::vector<Tensor> cells;
  for (const Tensor& level : levels) cells.push_back(cells_of(level));
  const Tensor mask = golden.has(prefix + "input.mask") ? one.input("mask") : Tensor();
  const auto [v, l] = fusion->forward(torch::cat(cells, 1), one.input("language"), mask);
  int64_t first = 0;
  for (size_t i = 0; i < levels.size(); ++i) {
    const int64_t count = cells[i].size(1);
    one.output(text("visual", i),
               v.slice(1, first, first + count).transpose(1, 2).reshape(levels[i].sizes()));
    first += count;
  }
  one.output("language", l);
  one.gradients();
}

void check_logits(Comparison& comparison, const Golden& golden, const std::string& name,
                  torch::ScalarType dtype) {
  const Json& config = golden.config()[name];
  const std::string prefix = name + "/";
  const auto head = std::make_shared<models::TokenAlignment>(config.at("channels").get<int64_t>(),
                                                             config.at("lang_dim").get<int64_t>());
  PublishedCase one(comparison, golden, dtype, prefix);
  one.load({{"", head}},
           train::sources_of(train::names_of_family("glip").ours(golden.names(prefix + "param."))));
  const std::vector<Tensor> levels = levels_of(one, golden, prefix);
  for (size_t i = 0; i < levels.size(); ++i)
    one.output(text("logits", i), head->forward(cells_of(levels[i]), one.input("embedding")));
  one.gradients();
}

NamedOutputs loss_case(const std::string& name, const Leaves& leaves, const Json& config) {
  const models::TokenLoss kind = name.find("softmax") != std::string::npos    ? models::TokenLoss::softmax
                                 : name.find("binaryv2") != std::string::npos ? models::TokenLoss::binary_v2
                                                                              : models::TokenLoss::binary;
  const auto mask = leaves.find("input.const_mask");
  return {{"loss", models::token_focal_loss(
                       kind, leaves.at("input.logits"), leaves.at("input.const_targets").detach(),
                       mask == leaves.end() ? Tensor() : mask->second.detach(),
                       config.at("alpha").get<double>(), config.at("gamma").get<double>())
                       .view({1})}};
}

models::TokenSpans spans_of(const Json& config) {
  models::TokenSpans spans;
  for (const auto& [key, map] : config.items())
    if (map.is_object()) {
      spans.resize(map.size());
      for (const auto& [number, tokens] : map.items())
        spans.at(static_cast<size_t>(std::stoll(number) - 1)) = tokens.get<std::vector<int64_t>>();
    }
  return spans;
}

void check_class_scores(Comparison& comparison, const Golden& golden) {
  const models::TokenSpans spans = spans_of(golden.config().at("scores"));
  for (const auto& [name, vote] :
       {std::pair("mean", models::TokenVote::mean), std::pair("max", models::TokenVote::most)}) {
    const std::string prefix = text("scores/", name, "/");
    if (!golden.has(prefix + "input.logits")) continue;
    comparison.close(
        prefix + "scores",
        models::class_probabilities(golden.tensor(prefix + "input.logits", torch::kFloat64), spans, vote),
        golden.tensor(prefix + "output.scores"), 1e-6, 1e-7);
  }
}

CaseResult check_glip(const Golden& golden) {
  Comparison comparison;
  for (const auto& [name, config] : golden.config().items()) {
    for (const torch::ScalarType dtype : {torch::kFloat64, torch::kFloat32}) {
      if (name.starts_with("fusion")) check_fusion(comparison, golden, name, dtype);
      if (name.starts_with("logits")) check_logits(comparison, golden, name, dtype);
    }
    if (name.starts_with("loss/")) {
      const Golden part = golden.part(name);
      compare_function(comparison, part,
                       [&](const Leaves& leaves) { return loss_case(name, leaves, part.config()); });
    }
  }
  check_class_scores(comparison, golden);
  return comparison.result();
}

const Registered registered({{"glip", check_glip, {"components/block_glip"}}});

}  // namespace
}  // namespace tessera::parity::glip_cases
