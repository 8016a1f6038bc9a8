#include "core/error.h"
#include "models/base/codebook.h"
#include "models/base/tokeniser.h"
#include "tests/parity/model_case.h"

namespace tessera::parity::dvae_cases {
namespace {

torch::Tensor channels_last(const torch::Tensor& x) { return x.movedim(1, -1); }
torch::Tensor channels_second(const torch::Tensor& x) { return x.movedim(-1, 1); }

// Compares in the golden's tolerances, gradients in theirs.
class Checked {
 public:
  Checked(const Golden& golden, torch::ScalarType dtype) : golden_(golden), dtype_(dtype) {}

  torch::Tensor leaf(const std::string& name) const { return golden_.tensor(name, dtype_).requires_grad_(); }
  torch::Tensor tensor(const std::string& name) const { return golden_.tensor(name, dtype_); }
  void output(const std::string& name, const torch::Tensor& got) {
    compare("output." + name, got, "rtol", "atol");
  }
  void gradient(const std::string& name, const torch::Tensor& leaf) {
    compare("grad." + name, leaf.grad().defined() ? leaf.grad() : torch::zeros_like(leaf), "grad_rtol",
            "grad_atol");
  }
  Comparison comparison;

 private:
  void compare(const std::string& key, const torch::Tensor& got, const char* relative, const char* absolute) {
    const torch::Tensor want = golden_.tensor(key);
    if (!want.is_floating_point()) return comparison.equal(key, got, want);
    const auto& tolerance = golden_.meta["tolerance"];
    comparison.close(key, got, want, tolerance[relative].get<double>(), tolerance[absolute].get<double>());
  }
  const Golden& golden_;
  torch::ScalarType dtype_;
};

void check_vectors(const Golden& golden, Checked& checked) {
  const torch::Tensor z = checked.leaf("input.z"), codebook = checked.leaf("param.codebook");
  const models::Quantised quantised = models::quantise(channels_last(z), codebook);
  const torch::Tensor loss =
      quantised.codebook_loss + golden.config()["beta"].get<double>() * quantised.commitment_loss;
  const torch::Tensor passed = channels_second(quantised.passed);
  checked.output("indices", quantised.index);
  checked.output("quantised", channels_second(quantised.codes));
  checked.output("loss", loss.view({1}));
  checked.output("straight_through", passed);
  checked.output("perplexity", models::code_perplexity(quantised.index, codebook.size(0)).view({1}));
  (loss + (passed * checked.tensor("loss_weight.straight_through")).sum()).backward();
  checked.gradient("input.z", z);
  checked.gradient("codebook", codebook);

  torch::Tensor counts = checked.tensor("input.ema.counts").clone(),
                sums = checked.tensor("input.ema.sums").clone();
  const auto& moving = golden.config()["ema"];
  const torch::Tensor moved =
      models::move_codebook(counts, sums, channels_last(z).detach(), quantised.index,
                            moving["decay"].get<double>(), moving["eps"].get<double>());
  checked.output("ema.counts", counts);
  checked.output("ema.sums", sums);
  checked.output("ema.codebook", moved);
}

void check_gumbel(const Golden& golden, Checked& checked) {
  for (const auto& [name, temperature] : golden.config()["taus"].items()) {
    const double tau = temperature.get<double>();
    const std::string key = "gumbel." + temperature.dump() + ".";
    const torch::Tensor logits = checked.leaf("input.logits"), codebook = checked.leaf("param.codebook");
    const torch::Tensor scores = channels_last(logits);
    const torch::Tensor gumbel = -(-channels_last(checked.tensor("input.u")).log()).log();
    const torch::Tensor weights = models::gumbel_weights(scores, gumbel, tau, false);
    const torch::Tensor hard = models::gumbel_weights(scores, gumbel, tau, true);
    checked.comparison.equal(key + "hard", hard.argmax(-1), golden.tensor("output." + key + "index"));
    checked.comparison.close(key + "hard sum", hard.sum(-1),
                             torch::ones(hard.sizes().slice(0, hard.dim() - 1)), 0, 1e-5);
    const torch::Tensor out = channels_second(weights.matmul(codebook));
    const torch::Tensor divergence = models::divergence_from_uniform(scores).mean();
    checked.output(key + "index", weights.argmax(-1));
    checked.output(key + "out", out);
    checked.output("kl_uniform", divergence.view({1}));
    ((out * checked.tensor("loss_weight.gumbel")).sum() + divergence).backward();
    checked.gradient(key + "logits", logits);
    checked.gradient(key + "codebook", codebook);
  }
}

void check_laplace(const Golden& golden, Checked& checked) {
  const torch::Tensor mu = checked.leaf("input.laplace.mu"), log_b = checked.leaf("input.laplace.log_b");
  const torch::Tensor loss = models::logit_laplace(checked.tensor("input.laplace.x"), mu, log_b,
                                                   golden.config()["logit_laplace_eps"].get<double>())
                                 .mean();
  checked.output("laplace.loss", loss.view({1}));
  loss.backward();
  checked.gradient("laplace.mu", mu);
  checked.gradient("laplace.log_b", log_b);
}

CaseResult check_vq_codebook(const Golden& golden) {
  CaseResult result;
  for (const torch::ScalarType dtype : {torch::kFloat64, torch::kFloat32}) {
    Checked checked(golden, dtype);
    check_vectors(golden, checked);
    check_gumbel(golden, checked);
    check_laplace(golden, checked);
    result = checked.comparison.result();
    if (result.outcome != Outcome::passed) break;
  }
  return result;
}

CaseResult check_dalle_encoder(const Golden& golden) {
  const auto& config = golden.config();
  std::vector<int64_t> dims, depths;
  for (int64_t group = 0; group < config["num_groups"].get<int64_t>(); ++group) {
    dims.push_back(config["hidden_size"].get<int64_t>() << group);
    depths.push_back(config["num_blocks_per_group"].get<int64_t>());
  }
  Value settings(Value::Table{{"image_size", to_value(config["image"])},
                              {"dims", Value::Array(dims.begin(), dims.end())},
                              {"depths", Value::Array(depths.begin(), depths.end())},
                              {"outputs", to_value(config["vocab_size"])},
                              {"classes", 0}});
  Comparison comparison;
  const auto same = [](const std::string& name) { return name; };
  compare_built(comparison, golden, golden, "", same, [&](torch::ScalarType) {
    const std::shared_ptr<models::Backbone> model =
        models::build_backbone(models::resolve_model("dalle", settings), 0);
    const auto run = [model](const std::function<torch::Tensor(const std::string&)>& input) {
      const torch::NoGradGuard no_grad;
      auto& tokeniser = dynamic_cast<models::Tokeniser&>(*model);
      const torch::Tensor outputs = tokeniser.code_outputs(input("x"));
      return NamedOutputs{{"logits", channels_second(outputs)}, {"indices", tokeniser.tokens_of(outputs)}};
    };
    return BuiltCase{{model}, run};
  });
  if (!config.contains("full_size")) return comparison.result();
  // The published size has these tensors.
  const auto full = models::meta_backbone(models::resolve_model("dalle_encoder"));
  const auto parameters = full->named_parameters();
  for (const auto& one : config["full_size"]["params"]) {
    const torch::Tensor* found = parameters.find(one[0].get<std::string>());
    comparison.holds(one[0], found && found->sizes().vec() == one[1].get<std::vector<int64_t>>(),
                     "is not there, or of another shape");
  }
  comparison.holds("parameters", models::count_parameters(*full) == config["full_size"]["total_params"],
                   "another number");
  return comparison.result();
}

const Registered registered({
    {"vq_codebook", check_vq_codebook, {"components/model_vq_codebook"}},
    {"dalle_encoder", check_dalle_encoder, {"components/model_dalle_encoder"}},
});

}  // namespace
}  // namespace tessera::parity::dvae_cases
