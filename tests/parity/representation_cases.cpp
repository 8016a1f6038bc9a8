// components/metric_representation: what features are worth, and how alike two sets of them are.
#include "core/error.h"
#include "core/text.h"
#include "tasks/base/representation.h"
#include "tests/parity/model_case.h"

namespace tessera::parity::representation_cases {
namespace {

using Json = nlohmann::json;

class Numbers {
 public:
  explicit Numbers(const Golden& golden) : tolerance_(golden.meta["tolerance"]) {}
  void number(const std::string& what, double got, const Json& want) {
    comparison.close(what, torch::tensor(got, torch::kFloat64),
                     torch::tensor(want.get<double>(), torch::kFloat64), tolerance_["rtol"],
                     tolerance_["atol"]);
  }
  Comparison comparison;

 private:
  Json tolerance_;
};

void check_spectra(const Golden& golden, Numbers& numbers) {
  const Json &config = golden.config(), &results = config["results"];
  const torch::Tensor x = golden.tensor("input.x"), y = golden.tensor("input.y");
  const tasks::Spectrum spectrum = tasks::spectrum(x);
  const std::map<std::string, double> ours = {
      {"linear_cka", tasks::linear_cka(x, y)},
      {"debiased_cka", tasks::debiased_cka(x, y)},
      {"minibatch_debiased_cka", tasks::debiased_cka(x, y, config["batch"].get<int64_t>())},
      {"rankme", tasks::rankme(x)},
      {"effective_rank_cov", spectrum.effective_rank},
      {"participation_ratio", spectrum.participation_ratio},
      {"stable_rank", spectrum.stable_rank},
      {"uniformity", tasks::uniformity(x)}};
  for (const auto& [key, want] : results.items()) {
    const auto found = ours.find(key);
    numbers.comparison.holds(key, found != ours.end(), "is no number of ours");
    if (found != ours.end()) numbers.number(key, found->second, want);
  }
  // Stored in float32.
  numbers.comparison.close("singular_values", spectrum.singular_values,
                           golden.tensor("output.singular_values"), 1e-6, 1e-6);
  numbers.comparison.close("covariance_eigenvalues", spectrum.covariance_eigenvalues,
                           golden.tensor("output.covariance_eigenvalues"), 1e-6, 1e-6);
}

void check_neighbours(const Golden& golden, Numbers& numbers) {
  const Json& knn = golden.config()["knn"];
  const torch::Tensor train = golden.tensor("input.train"), labels = golden.tensor("input.train_labels"),
                      test = golden.tensor("input.test"), truth = golden.tensor("input.test_labels");
  for (const std::string& name : golden.names("output.knn.")) {  // "weighted.20"
    const size_t dot = name.find('.');
    const std::string kind = name.substr(0, dot), neighbours = name.substr(dot + 1);
    const torch::Tensor classes =
        tasks::neighbour_classes(train, labels, test,
                                 {.neighbours = std::stoll(neighbours),
                                  .temperature = kind == "weighted" ? knn["T"].get<double>() : 0});
    numbers.comparison.equal("knn " + name, classes, golden.tensor("output.knn." + name));
    numbers.number("knn accuracy " + name, classes.eq(truth).to(torch::kFloat64).mean().item<double>(),
                   knn["accuracy"][kind + "_" + neighbours]);
  }
}

void check_ridges(const Golden& golden, Numbers& numbers) {
  const Json& config = golden.config();
  const torch::Tensor train = golden.tensor("input.train"), labels = golden.tensor("input.train_labels"),
                      test = golden.tensor("input.test"), truth = golden.tensor("input.test_labels");
  for (const auto& [name, one] : config["ridge"].items()) {
    const tasks::Ridge ridge =
        tasks::fit_ridge(train, labels, config["classes"].get<int64_t>(), {std::stod(name)},
                         /*standardise=*/name.ends_with("_standardised"));
    const torch::Tensor scores = ridge.scores(test);
    numbers.comparison.close(name + " weight", ridge.weight,
                             golden.tensor("output.ridge." + name + ".weight"), 1e-5, 1e-6);
    numbers.comparison.close(name + " scores", scores, golden.tensor("output.ridge." + name + ".scores"),
                             1e-5, 1e-6);
    numbers.number(name + " accuracy", scores.argmax(1).eq(truth).to(torch::kFloat64).mean().item<double>(),
                   one["accuracy"]);
    numbers.number(name + " loo", ridge.loo, one["loo_mse"]);
  }
}

CaseResult check_representation(const Golden& golden) {
  Numbers numbers(golden);
  check_spectra(golden, numbers);
  check_neighbours(golden, numbers);
  check_ridges(golden, numbers);
  return numbers.comparison.result();
}

const Registered registered({
    {"representation", check_representation, {"components/metric_representation"}},
});

}  // namespace
}  // namespace tessera::parity::representation_cases
