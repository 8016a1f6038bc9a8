// components/block_declip_nclip: DeCLIP's step and bank, its two contrastive losses, and nCLIP's.
#include "core/error.h"
#include "models/pairs/two_tower.h"
#include "tasks/pairs/declip.h"
#include "tasks/pairs/nclip.h"
#include "tests/parity/model_case.h"

namespace tessera::parity::declip_cases {
namespace {

using Json = nlohmann::json;
using models::normalised_rows;
using torch::Tensor;

constexpr double kViewTemperature = 0.1;  // of the step's NT-Xent, which the published code only reports

Tensor one(const Tensor& scalar) { return scalar.reshape({1}); }
Tensor row_numbers(const Tensor& rows, int64_t first = 0) {
  return torch::arange(first, first + rows.size(0), torch::kInt64);
}

NamedOutputs declip_step(const Leaves& leaves, const Json& config) {
  const auto input = [&](const char* name) { return leaves.at(std::string("input.") + name); };
  const Tensor rows = input("const_bank");
  tasks::TextBank bank(rows.size(0), rows.size(1));
  bank.to(rows.scalar_type());
  auto buffers = bank.named_buffers();
  buffers["rows"].copy_(rows.detach());
  buffers["pointer"].fill_(config.at("bank_pointer").get<double>());
  tasks::DeclipRows features;
  features.images = {normalised_rows(input("image_1")), normalised_rows(input("image_2"))};
  features.texts = {normalised_rows(input("text")), normalised_rows(input("text_aug"))};
  for (size_t i = 0; i < 2; ++i) features.neighbours[i] = bank.nearest(features.texts[i], 2);
  const Tensor scale = input("logit_scale").exp().squeeze();
  const auto count = static_cast<double>(features.texts[0].size(0));
  const Tensor pairs = tasks::declip_pairs(features, scale, {.chunk = 2}).sum / count,
               nearest = tasks::declip_nearest(features, scale, {.chunk = 2}) / count,
               siamese = tasks::simsiam_sum(input("p1"), input("p2"), input("z1"), input("z2")) / count;
  bank.add(features.texts[1].detach());
  bank.add(features.texts[0].detach());
  const Json& weights = config.at("weights");
  const auto weight = [&](const char* name) { return weights.at(name).get<double>(); };
  return {
      {"loss", one(weight("clip_loss") * pairs + weight("simsiam_loss") * siamese +
                   weight("masking_language") * input("text_mlm").squeeze() + weight("nn_text") * nearest)},
      {"clip", one(pairs)},
      {"nn_text", one(nearest)},
      {"simsiam", one(siamese)},
      {"nt_xent", one(tasks::view_contrast(features.images[0], features.texts[0], kViewTemperature, 0, 3,
                                           tasks::Collective::alone())
                          .sum /
                      count)},
      {"nn_of_text", features.neighbours[0]},
      {"nn_of_text_aug", features.neighbours[1]},
      {"bank_after", buffers["rows"]},
      {"bank_pointer_after", buffers["pointer"].to(torch::kInt64)}};
}

// Scores are vectors compared with the unit vectors, so that keys are their columns.
Tensor cross_entropy_of_rows(const Tensor& scores, int64_t rank) {
  const Tensor columns = torch::eye(scores.size(1), scores.options().requires_grad(false));
  return tasks::softmax_pairs(scores, columns, torch::ones({}, columns.options()),
                              row_numbers(scores, rank * scores.size(0)))
             .sum /
         scores.size(0);
}

NamedOutputs nclip_case(const Leaves& leaves, const Json& config) {
  const auto number = [&](const char* name) { return config.at(name).get<double>(); };
  const tasks::NclipConfig settings{.sharp = number("lambda_mean_entropy"),
                                    .spread = number("lambda_entropy_of_mean")};
  const Tensor scores = leaves.at("input.image_logits");
  const int64_t batch = scores.size(0);
  const tasks::NclipTerms terms = tasks::nclip_terms(
      scores, leaves.at("input.text_logits"), number("temperature"), batch, tasks::Collective::alone());
  const Tensor images = normalised_rows(leaves.at("input.image")),
               texts = normalised_rows(leaves.at("input.text"));
  const Tensor scale = torch::full({}, number("logit_scale"), scores.options().requires_grad(false));
  const Tensor own = row_numbers(images);
  const Tensor clip = (tasks::softmax_pairs(images, texts, scale, own).sum +
                       tasks::softmax_pairs(texts, images, scale, own).sum) /
                      (2 * batch);
  const Tensor nclip = terms.sum(settings, batch) / batch;
  return {{"loss", one(clip + number("weight_of_nclip") * nclip)},
          {"clip", one(clip)},
          {"cross_entropy", one(terms.cross_entropy / batch)},
          {"mean_entropy", one(terms.mean_entropy / batch)},
          {"entropy_of_mean", one(terms.entropy_of_mean)},
          {"nclip", one(nclip)}};
}

CaseResult check_declip(const Golden& golden) {
  return compare_parts(golden, [](const std::string& name, const Golden& part, const Leaves& leaves) {
    const Json& config = part.config();
    if (name.starts_with("nclip/")) return nclip_case(leaves, config);
    if (name.starts_with("declip/step")) return declip_step(leaves, config);
    if (name.starts_with("declip/nt_xent")) {
      const Tensor a = normalised_rows(leaves.at("input.a")), b = normalised_rows(leaves.at("input.b"));
      const Tensor sum =
          tasks::view_contrast(a, b, config.at("temperature").get<double>(), 0, 3, tasks::Collective::alone())
              .sum;
      return NamedOutputs{{"loss", one(sum / a.size(0))}};
    }
    check(name.starts_with("declip/info_nce"), "a case '", name, "' that this handler does not have");
    const auto rank = config.at("rank").get<int64_t>();
    const Tensor images = leaves.at("input.per_image"), texts = leaves.at("input.per_text");
    return NamedOutputs{
        {"loss", one((cross_entropy_of_rows(images, rank) + cross_entropy_of_rows(texts, rank)) / 2)}};
  });
}

const Registered registered({{"declip", check_declip, {"components/block_declip_nclip"}}});

}  // namespace
}  // namespace tessera::parity::declip_cases
