// components/model_bert: classes, one number, and masked tokens, with padding and two segments.
#include "models/language/bert.h"
#include "tests/parity/model_case.h"
#include "tests/parity/published_case.h"
#include "weights/name_tables.h"

namespace tessera::parity::bert_cases {
namespace {

using Json = nlohmann::json;
using torch::Tensor;

constexpr int64_t kNoLabel = -100;

void check_bert_case(Comparison& comparison, const Golden& golden, const std::string& name,
                     torch::ScalarType dtype) {
  const std::string prefix = name + "/";
  const bool tokens = golden.has(prefix + "param.cls.predictions.bias");
  const models::BertConfig config = models::bert_config_of(to_value(golden.config()[name]), name);
  models::BertHeads heads{.tokens = tokens};
  if (!tokens) heads.classes = golden.view(prefix + "param.classifier.weight").shape.at(0);
  const auto model = std::make_shared<models::Bert>(config, heads);
  PublishedCase one(comparison, golden, dtype, prefix);
  one.load({{"", model}},
           train::sources_of(train::names_of_family("bert").ours(golden.names(prefix + "param."))));
  const auto given = [&](const char* key) {
    return golden.has(prefix + "input." + key) ? one.input(key) : Tensor();
  };
  models::BertInput input{.ids = one.input("input_ids"), .segments = given("token_type_ids")};
  if (const Tensor mask = given("attention_mask"); mask.defined()) input.mask = mask.to(torch::kBool);
  const Tensor hidden = model->hidden(input),
               labels = given("labels").defined() ? one.input("labels") : one.input("const_labels");
  if (golden.has(prefix + "output.hidden_last")) one.output("hidden_last", hidden);
  const Tensor scores = tokens ? model->token_scores(hidden) : model->class_scores(hidden);
  one.output("logits", scores);
  const Tensor loss = tokens ? at::cross_entropy_loss(scores.flatten(0, 1), labels.flatten(), {},
                                                      at::Reduction::Mean, kNoLabel)
                             : models::bert_class_loss(scores, labels) / labels.size(0);
  one.output("loss", loss.view({1}));
  one.gradients();
}

CaseResult check_bert(const Golden& golden) {
  Comparison comparison;
  for (const auto& [name, config] : golden.config().items())
    for (const torch::ScalarType dtype : {torch::kFloat64, torch::kFloat32})
      check_bert_case(comparison, golden, name, dtype);
  return comparison.result();
}

const Registered registered({{"bert", check_bert, {"components/model_bert"}}});

}  // namespace
}  // namespace tessera::parity::bert_cases
