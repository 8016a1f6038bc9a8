// components/loss_contrastive*, metric_retrieval_zeroshot, metric_captioning.
#include <cmath>

#include "core/error.h"
#include "core/text.h"
#include "eval/captioning.h"
#include "eval/ranking.h"
#include "tasks/base/losses.h"
#include "tasks/base/zero_shot.h"
#include "tasks/pairs/pair_loss.h"
#include "tests/parity/case.h"

namespace tessera::parity::pair_cases {
namespace {

using Json = nlohmann::json;
using torch::Tensor;

struct PairTolerance {
  explicit PairTolerance(const Golden& golden, torch::ScalarType dtype) {
    const Json given = golden.meta.value("tolerance", Json::object());
    relative = given.value("rtol", 1e-5), absolute = given.value("atol", 1e-6);
    // Single precision is as good as it is.
    if (dtype == torch::kFloat32) relative = std::max(relative, 1e-5), absolute = std::max(absolute, 1e-5);
  }
  double relative, absolute;
};

std::string in(torch::ScalarType dtype) { return dtype == torch::kFloat64 ? "float64 " : "float32 "; }

Tensor places(int64_t first, int64_t count) { return torch::arange(first, first + count, torch::kInt64); }
Tensor scalar(double value, torch::ScalarType dtype) {
  return torch::full({}, value, dtype).requires_grad_();
}

// The mean of both directions of CLIP, as a sum over the rows of one process.
Tensor clip_sum(const Tensor& images, const Tensor& texts, const Tensor& all_images, const Tensor& all_texts,
                const Tensor& scale, int64_t first, int64_t chunk) {
  const tasks::PairOptions options{.chunk = chunk};
  const Tensor own = places(first, images.size(0));
  return (tasks::softmax_pairs(images, all_texts, scale, own, options).sum +
          tasks::softmax_pairs(texts, all_images, scale, own, options).sum) /
         2;
}

CaseResult check_pair_losses(const Golden& golden) {
  Comparison compare;
  for (const torch::ScalarType dtype : {torch::kFloat64, torch::kFloat32})
    for (const int64_t chunk : {1, 4, 128}) {
      const PairTolerance tolerance(golden, dtype);
      const auto leaf = [&](const std::string& name) { return golden.tensor(name, dtype).requires_grad_(); };
      const auto close = [&](const std::string& name, const Tensor& got) {
        compare.close(in(dtype) + name, got, golden.tensor(name), tolerance.relative, tolerance.absolute);
      };
      for (const std::string& name : golden.names("output.")) {
        const Tensor images = leaf("input.image_features"), texts = leaf("input.text_features");
        const int64_t batch = images.size(0);
        if (name == "coca.contrastive") {
          const Json& config = golden.config().at("coca");
          const Tensor logits = leaf("input.coca.logits"), labels = golden.tensor("input.coca.labels");
          const Tensor scale = golden.has("input.coca.logit_scale") ? leaf("input.coca.logit_scale")
                                                                    : leaf("input.clip.logit_scale");
          const Tensor contrast = config.value("clip_loss_weight", 1.0) *
                                  clip_sum(images, texts, images, texts, scale, 0, chunk) / batch;
          const Tensor caption = config.value("caption_loss_weight", 2.0) *
                                 tasks::cross_entropy(logits.flatten(0, 1), labels.flatten(),
                                                      {.ignore_index = config.value("pad_id", int64_t{0})});
          (contrast.sum() + caption).backward();
          close("output.coca.contrastive", contrast.reshape(1));
          close("output.coca.caption", caption.reshape(1));
          close("grad.coca.logits", logits.grad());
          close("grad.coca.image_features", images.grad());
          close("grad.coca.text_features", texts.grad());
          continue;
        }
        if (name.starts_with("coca.")) continue;
        const Tensor scale = leaf("input." + name + ".logit_scale");
        const bool sigmoid = golden.has("input." + name + ".logit_bias");
        const Tensor bias = sigmoid ? leaf("input." + name + ".logit_bias") : Tensor();
        const Tensor loss =
            (sigmoid
                 ? tasks::sigmoid_pairs(images, texts, scale, bias, places(0, batch), {.chunk = chunk}).sum
                 : clip_sum(images, texts, images, texts, scale, 0, chunk)) /
            batch;
        loss.backward();
        close("output." + name, loss.reshape(1));
        close("grad." + name + ".image_features", images.grad());
        close("grad." + name + ".text_features", texts.grad());
        close("grad." + name + ".logit_scale", scale.grad());
        if (sigmoid) close("grad." + name + ".logit_bias", bias.grad());
      }
    }
  return compare.result();
}

// One form of exchange among the ranks of one golden: what each of them computes, and what comes back to its features.
class Ranks {
 public:
  Ranks(const Golden& golden, torch::ScalarType dtype, const std::string& prefix, int64_t world)
      : golden_(golden), dtype_(dtype), prefix_(prefix), world_(world) {
    images_ = golden.tensor(prefix + "input.image_features", dtype);
    texts_ = golden.tensor(prefix + "input.text_features", dtype);
    local_ = images_.size(0) / world;
  }

  // `kind` "clip" or "siglip"; local: a rank compares its own rows with all; detached: what others gave has no gradient.
  void run(Comparison& compare, const std::string& name, bool sigmoid, bool local, bool detached) {
    const PairTolerance tolerance(golden_, dtype_);
    const Json& results = golden_.config().at("results");
    const auto close = [&](const std::string& what, const Tensor& got, const Tensor& want) {
      compare.close(in(dtype_) + prefix_ + name + " " + what, got, want, tolerance.relative,
                    std::max(tolerance.absolute, 1e-7 * want.abs().max().item<double>()));
    };
    std::vector<Tensor> images, texts, scales, biases;
    for (int64_t rank = 0; rank < world_; ++rank) {
      images.push_back(rows(images_, rank).clone().requires_grad_());
      texts.push_back(rows(texts_, rank).clone().requires_grad_());
      scales.push_back(scalar(golden_.config().at("logit_scale").get<double>(), dtype_));
      biases.push_back(scalar(golden_.config().at("logit_bias").get<double>(), dtype_));
    }
    Tensor all_losses;
    for (int64_t rank = 0; rank < world_; ++rank) {
      const auto r = static_cast<size_t>(rank);
      const Tensor all_images = gathered(images, rank, detached), all_texts = gathered(texts, rank, detached);
      Tensor loss;
      if (sigmoid)
        loss = tasks::sigmoid_pairs(images[r], all_texts, scales[r], biases[r], places(rank * local_, local_),
                                    {.chunk = 2})
                   .sum /
               local_;
      else if (local)
        loss = clip_sum(images[r], texts[r], all_images, all_texts, scales[r], rank * local_, 2) / local_;
      else
        loss = clip_sum(all_images, all_texts, all_images, all_texts, scales[r], 0, 2) / (local_ * world_);
      const Json& want = results.at(prefix_ + name).at(r);
      close(text("loss of rank ", rank), loss.detach().reshape(1),
            torch::tensor({want.at("loss").get<double>()}, torch::kFloat64));
      all_losses = all_losses.defined() ? all_losses + loss : loss;
    }
    all_losses.backward();
    for (int64_t rank = 0; rank < world_; ++rank) {
      const auto r = static_cast<size_t>(rank);
      const Json& want = results.at(prefix_ + name).at(r);
      const auto number = [&](const char* key) {
        return torch::full({}, want.at(key).get<double>(), torch::kFloat64);
      };
      close(text("scale of rank ", rank), scales[r].grad(), number("grad_logit_scale"));
      if (sigmoid) close(text("bias of rank ", rank), biases[r].grad(), number("grad_logit_bias"));
      for (const auto& [side, features] : {std::pair{"image_features", &images}, {"text_features", &texts}})
        close(text("gradient of rank ", rank, "'s ", side), (*features)[r].grad(),
              gradient(name, rank, side));
    }
  }

  // One process with the whole batch.
  void run_alone(Comparison& compare, const std::string& name, bool sigmoid) {
    const PairTolerance tolerance(golden_, dtype_);
    const Json& want = golden_.config().at("results").at(prefix_ + name);
    const auto close = [&](const std::string& what, const Tensor& got, const Tensor& expected) {
      compare.close(in(dtype_) + prefix_ + name + " " + what, got, expected, tolerance.relative,
                    tolerance.absolute);
    };
    const auto number = [&](const char* key) {
      return torch::full({}, want.at(key).get<double>(), torch::kFloat64);
    };
    for (const int64_t chunk : {1, 3, 128}) {
      const Tensor images = images_.clone().requires_grad_(), texts = texts_.clone().requires_grad_();
      const Tensor scale = scalar(golden_.config().at("logit_scale").get<double>(), dtype_),
                   bias = scalar(golden_.config().at("logit_bias").get<double>(), dtype_);
      const int64_t batch = images.size(0);
      const Tensor loss =
          (sigmoid ? tasks::sigmoid_pairs(images, texts, scale, bias, places(0, batch), {.chunk = chunk}).sum
                   : clip_sum(images, texts, images, texts, scale, 0, chunk)) /
          batch;
      loss.backward();
      close("loss", loss.detach(), number("loss"));
      close("scale", scale.grad(), number("grad_logit_scale"));
      if (sigmoid) close("bias", bias.grad(), number("grad_logit_bias"));
      close("gradient of images", images.grad(), golden_.tensor(prefix_ + name + ".grad.image_features"));
      close("gradient of texts", texts.grad(), golden_.tensor(prefix_ + name + ".grad.text_features"));
    }
  }

 private:
  Tensor rows(const Tensor& all, int64_t rank) const {
    return all.slice(0, rank * local_, (rank + 1) * local_);
  }
  Tensor gathered(const std::vector<Tensor>& parts, int64_t rank, bool detached) const {
    std::vector<Tensor> out;
    for (int64_t other = 0; other < world_; ++other) {
      const Tensor& part = parts[static_cast<size_t>(other)];
      out.push_back(detached && other != rank ? part.detach() : part);
    }
    return torch::cat(out);
  }
  // Two forms of files: an array a rank, or one array of all.
  Tensor gradient(const std::string& name, int64_t rank, const std::string& side) const {
    const std::string own = text(prefix_, "grad.", name, ".rank", rank, ".", side);
    return golden_.has(own) ? golden_.tensor(own)
                            : rows(golden_.tensor(prefix_ + name + ".grad." + side), rank);
  }

  const Golden& golden_;
  torch::ScalarType dtype_;
  std::string prefix_;
  int64_t world_, local_;
  Tensor images_, texts_;
};

// "w3/clip_local_gradgather" -> prefix "w3/" and "clip_local_gradgather".
std::pair<std::string, std::string> split_case(const std::string& key) {
  const size_t slash = key.find('/');
  return slash == std::string::npos ? std::pair{std::string(), key}
                                    : std::pair{key.substr(0, slash + 1), key.substr(slash + 1)};
}

CaseResult check_pairs_of_ranks(const Golden& golden) {
  if (!golden.config().contains("results"))
    return check_pair_losses(golden);  // "loss_contrastive" of another size
  Comparison compare;
  for (const torch::ScalarType dtype : {torch::kFloat64, torch::kFloat32})
    for (const auto& [key, result] : golden.config().at("results").items()) {
      const auto [prefix, name] = split_case(key);
      if (name.starts_with("single.")) {
        Ranks(golden, dtype, prefix, 1).run_alone(compare, name, name == "single.siglip");
        continue;
      }
      const bool sigmoid = name.starts_with("siglip");
      const bool local = name.find("local1") != std::string::npos || name.find("local_") != std::string::npos;
      const bool detached =
          name.ends_with("grad0") || name.ends_with("_nogradgather") || name.ends_with("_nograd");
      Ranks(golden, dtype, prefix, std::ssize(result))
          .run(compare, name, sigmoid, local && !sigmoid, detached);
    }
  return compare.result();
}

CaseResult check_retrieval(const Golden& golden) {
  Comparison compare;
  const Json tolerance = golden.meta.value("tolerance", Json::object());
  const double relative = tolerance.value("rtol", 1e-6), absolute = tolerance.value("atol", 1e-6);
  const Tensor images = golden.tensor("input.image", torch::kFloat64),
               texts = golden.tensor("input.text", torch::kFloat64);
  const Tensor similarity = images.mm(texts.t());
  compare.close("similarity", similarity, golden.tensor("output.similarity"), relative, absolute);
  const auto each = golden.config().at("captions_per_image").get<int64_t>();
  eval::RetrievalMeter to_text, to_image;
  const auto measure = [](eval::RetrievalMeter& meter, const Tensor& scores, int64_t per_query,
                          int64_t queries_each) {
    const Tensor plain = scores.to(torch::kFloat32).contiguous();
    const auto items = static_cast<size_t>(plain.size(1));
    for (int64_t i = 0; i < plain.size(0); ++i) {
      std::vector<int64_t> relevant;
      for (int64_t k = 0; k < per_query; ++k) relevant.push_back(i / queries_each * per_query + k);
      meter.add(eval::rank_of_first({plain[i].const_data_ptr<float>(), items}, relevant));
    }
  };
  measure(to_text, similarity, each, 1);
  measure(to_image, similarity.t(), 1, each);
  for (const auto& [key, want] : golden.config().at("results").items()) {
    const auto k = parse_int(key.substr(key.find('@') + 1));
    compare.holds(key, k.has_value(), "no metric of ours");
    if (!k) continue;
    const double got = (key.starts_with("image_to_text") ? to_text : to_image).recall(*k);
    compare.close(key, torch::tensor(got, torch::kFloat64),
                  torch::tensor(want.get<double>(), torch::kFloat64), relative, 0);
  }
  const Tensor head = tasks::class_vectors(golden.tensor("input.prompt_embeddings", torch::kFloat64));
  compare.close("zero-shot head", head, golden.tensor("output.zero_shot_head"), relative, absolute);
  compare.close("zero-shot logits", 100 * images.mm(head.t()), golden.tensor("output.zero_shot_logits"),
                relative, 1e-5);
  return compare.result();
}

CaseResult check_captioning(const Golden& golden) {
  Comparison compare;
  const auto equal = [&](const Json& caption, const Json& tokens) {
    const std::string got = eval::caption_tokens(caption.get<std::string>());
    compare.holds(caption.get<std::string>(), got == tokens.get<std::string>(), "tokens are '" + got + "'");
  };
  for (const Json& pair : golden.meta.value("tokenisation", Json::array())) equal(pair.at(0), pair.at(1));
  std::vector<eval::CaptionedImage> images;
  for (const Json& image : golden.meta.at("images")) {
    equal(image.at("candidate"), image.at("candidate_tokenised"));
    eval::CaptionedImage one{image.at("candidate_tokenised").get<std::string>(), {}};
    for (size_t i = 0; i < image.at("references").size(); ++i) {
      equal(image.at("references")[i], image.at("references_tokenised")[i]);
      one.references.push_back(image.at("references_tokenised")[i].get<std::string>());
    }
    images.push_back(std::move(one));
  }
  const eval::CaptionScores scores = eval::score_captions(images);
  const auto close = [&](const std::string& name, double got, const Json& want) {
    compare.close(name, torch::tensor(got, torch::kFloat64),
                  torch::tensor(want.get<double>(), torch::kFloat64), 1e-9, 1e-15);
  };
  const Json &all = golden.config().at("scores"), &each = golden.meta.at("per_image");
  for (size_t n = 0; n < 4; ++n) close(text("Bleu_", n + 1), scores.bleu[n], all.at(text("Bleu_", n + 1)));
  close("CIDEr", scores.cider, all.at("CIDEr"));
  close("ROUGE_L", scores.rouge_l, all.at("ROUGE_L"));
  for (size_t i = 0; i < images.size(); ++i) {
    for (size_t n = 0; n < 4; ++n)
      close(text("Bleu_", n + 1, " of image ", i), scores.bleu_each[i][n], each.at(text("Bleu_", n + 1))[i]);
    close(text("CIDEr of image ", i), scores.cider_each[i], each.at("CIDEr")[i]);
    close(text("ROUGE_L of image ", i), scores.rouge_l_each[i], each.at("ROUGE_L")[i]);
  }
  return compare.result();
}

const Registered registered({
    {"pair_losses", check_pair_losses, {"components/loss_contrastive"}},
    {"pairs_of_ranks", check_pairs_of_ranks, {"components/loss_contrastive_"}},
    {"retrieval", check_retrieval, {"components/metric_retrieval"}},
    {"captioning", check_captioning, {"components/metric_captioning"}},
});

}  // namespace
}  // namespace tessera::parity::pair_cases
