// components/metric_*: attention's rank and maps, loss landscapes, embeddings.
#include <cmath>

#include "analysis/attention.h"
#include "analysis/embedding.h"
#include "analysis/landscape_testing.h"
#include "core/error.h"
#include "eval/tsne.h"
#include "tests/parity/case.h"

namespace tessera::parity::analysis_cases {
namespace {

using Json = nlohmann::json;
using torch::Tensor;

struct Tolerance {
  Tolerance(const Golden& golden, double relative_or, double absolute_or) {
    const Json tolerance = golden.meta.value("tolerance", Json::object());
    relative = tolerance.value("rtol", relative_or), absolute = tolerance.value("atol", absolute_or);
  }
  double relative, absolute;
};

std::vector<Tensor> layers_of(const Tensor& stacked) { return stacked.unbind(0); }

Tensor doubles(const std::vector<double>& values) { return torch::tensor(values, torch::kFloat64); }
Tensor doubles(const Json& values) { return doubles(values.get<std::vector<double>>()); }

// The net of the case: layer_norm(gelu(fc1 x)), a convolution over it as one channel, tanh, a head.
class SmallNet {
 public:
  SmallNet(const Golden& golden, const std::vector<std::string>& names)
      : x_(golden.tensor("input.x", torch::kFloat64)), labels_(golden.tensor("input.labels")) {
    for (const std::string& name : names) {
      const Tensor value = golden.tensor("param." + name, torch::kFloat64).requires_grad_();
      named_[name] = value;
      objective.parameters.push_back(value);
    }
    objective.loss = [this] { return loss(); };
  }
  SmallNet(const SmallNet&) = delete;

  analysis::Objective objective;

 private:
  Tensor loss() const {
    const auto p = [&](const char* name) { return named_.at(name); };
    Tensor a = torch::gelu(torch::linear(x_, p("fc1.weight"), p("fc1.bias")));
    a = torch::layer_norm(a, {a.size(-1)}, p("norm.weight"), p("norm.bias"), 1e-5);
    a = torch::tanh(torch::conv1d(a.unsqueeze(1), p("conv.weight"), {}, 1, 1)).flatten(1);
    return torch::cross_entropy_loss(torch::linear(a, p("fc2.weight"), p("fc2.bias")), labels_);
  }
  Tensor x_, labels_;
  std::map<std::string, Tensor> named_;
};

analysis::Direction direction_of(const Golden& golden, const std::string& prefix,
                                 const std::vector<std::string>& names) {
  analysis::Direction out;
  for (const std::string& name : names) out.push_back(golden.tensor(prefix + name, torch::kFloat64));
  return out;
}

// The whole matrix, column by column.
Tensor hessian(const analysis::Objective& objective, int64_t size, analysis::HessianProduct how) {
  std::vector<Tensor> columns;
  const Tensor units = torch::eye(size, torch::kFloat64);
  for (int64_t i = 0; i < size; ++i) columns.push_back(analysis::hessian_times(objective, units[i], how));
  return torch::stack(columns, 1);
}

void compare_spectrum(const Golden& golden, const analysis::Objective& objective, const Tolerance& tolerance,
                      Comparison& compare) {
  const Json& results = golden.config().at("results");
  const Tensor start = golden.tensor("input.start", torch::kFloat64);
  const auto number = [&](const char* key, double got, double slack = 0) {
    compare.close(key, doubles(std::vector{got}), doubles(std::vector{results.at(key).get<double>()}),
                  tolerance.relative, std::max(slack, tolerance.absolute));
  };
  const Tensor matrix = hessian(objective, start.numel(), analysis::HessianProduct::exact);
  const auto [values, vectors] = torch::linalg_eigh((matrix + matrix.t()) / 2);
  const Tensor wanted = golden.tensor("output.eigenvalues", torch::kFloat64);
  compare.close("eigenvalues", values, std::get<0>(wanted.sort()), tolerance.relative, 1e-6);
  number("trace", matrix.trace().item<double>());
  number("lambda_max", values[-1].item<double>());
  number("lambda_min", values[0].item<double>());
  number("second", values[-2].item<double>());
  // Either end's vector, whichever way it points.
  const Tensor vector = golden.tensor("output.eigenvector", torch::kFloat64);
  const Tensor overlaps = vectors.t().mv(vector).abs();
  const int64_t which = overlaps.argmax().item<int64_t>();
  compare.holds("eigenvector", which == 0 || which == values.numel() - 1,
                "is of neither end of the spectrum");
  const Tensor own = vectors.select(1, which);
  compare.close("eigenvector", own * own.dot(vector).sign(), vector, 1e-5, 1e-6);
  const auto ends = analysis::lanczos_values(objective, start, start.numel());
  number("lambda_max", ends.back()), number("lambda_min", ends.front());

  const auto steps = std::ssize(results.at("power_iteration_rayleigh"));
  const auto power = analysis::power_iteration(objective, start, steps);
  compare.close("power iteration", doubles(power.rayleigh), doubles(results.at("power_iteration_rayleigh")),
                tolerance.relative, tolerance.absolute);
  const Tensor probes = golden.tensor("input.probes", torch::kFloat64);
  compare.close("hutchinson", doubles(analysis::trace_estimates(objective, probes)),
                doubles(results.at("hutchinson")), tolerance.relative, tolerance.absolute);
  compare.close("products by differences",
                analysis::hessian_times(objective, start, analysis::HessianProduct::differences),
                matrix.mv(start), 1e-5, 1e-6);
}

CaseResult check_attention_rank(const Golden& golden) {
  const Tolerance tolerance(golden, 1e-5, 1e-6);
  const Tensor q = golden.tensor("input.q", torch::kFloat64), k = golden.tensor("input.k", torch::kFloat64);
  Tensor scores = q.matmul(k.transpose(-2, -1)) / std::sqrt(static_cast<double>(q.size(-1)));
  const Tensor later = torch::ones({q.size(-2), q.size(-2)}, torch::kBool).triu(1);
  scores[0].masked_fill_(later, -INFINITY);  // the first layer sees earlier tokens alone
  const Tensor attention = scores.softmax(-1);
  const auto got = analysis::attention_rank(attention, golden.config().value("threshold", 0.8));
  Comparison compare;
  const auto close = [&](const char* name, const Tensor& own) {
    compare.close(name, own, golden.tensor(name, torch::kFloat64), tolerance.relative, tolerance.absolute);
  };
  close("output.attention", attention);
  close("output.singular_values", got.singular_values);
  close("output.cumulative", got.cumulative);
  compare.equal("output.rank", got.rank, golden.tensor("output.rank"));
  close("output.rank_mean_per_layer", got.rank.to(torch::kFloat64).flatten(1).mean(1));
  return compare.result();
}

CaseResult check_attention_maps(const Golden& golden) {
  const Tolerance tolerance(golden, 1e-5, 1e-7);
  const Json& config = golden.config();
  const analysis::TokenLayout layout{config.at("grid").at(0), config.at("grid").at(1), 1, 0};
  Comparison compare;
  for (const torch::ScalarType dtype : {torch::kFloat64, torch::kFloat32}) {
    const Tensor attention = golden.tensor("input.attention", dtype),
                 gradient = golden.tensor("input.gradient", dtype);
    const auto layers = layers_of(attention), gradients = layers_of(gradient);
    const double slack = dtype == torch::kFloat64 ? tolerance.absolute : 1e-6;
    const auto close = [&](const std::string& name, const Tensor& own) {
      compare.close(name, own.to(torch::kFloat64), golden.tensor(name, torch::kFloat64), tolerance.relative,
                    slack);
    };
    close("output.rollout.mean", analysis::rollout(layers, analysis::HeadFusion::mean));
    close("output.rollout.max", analysis::rollout(layers, analysis::HeadFusion::max));
    close("output.rollout.min", analysis::rollout(layers, analysis::HeadFusion::min));
    close("output.relevance", analysis::relevance(layers, gradients));
    close("output.gradcam", analysis::attention_gradcam(layers.back(), gradients.back(), layout));
    close("output.distance_pixels", analysis::attention_distance(attention, layout, config.at("patch")));
    close("output.entropy", analysis::attention_entropy(attention));
    close("output.class_map", analysis::patches_seen(attention, layout));
  }
  return compare.result();
}

CaseResult check_loss_landscape(const Golden& golden) {
  const Tolerance tolerance(golden, 1e-6, 1e-8);
  const Json &config = golden.config(), &results = config.at("results");
  const auto names = results.contains("names") ? results.at("names").get<std::vector<std::string>>()
                                               : config.at("names").get<std::vector<std::string>>();
  const SmallNet net(golden, names);
  const analysis::Objective& objective = net.objective;
  Comparison compare;
  const auto close = [&](const std::string& what, const Tensor& got, const Tensor& wanted) {
    compare.close(what, got.to(torch::kFloat64), wanted.to(torch::kFloat64), tolerance.relative,
                  tolerance.absolute);
  };
  close("loss", doubles(std::vector{analysis::loss_of(objective)}),
        doubles(std::vector{results.at("loss").get<double>()}));
  const Tensor gradient = analysis::gradient_of(objective);
  compare.close("gradient", gradient, golden.tensor("output.gradient", torch::kFloat64), 1e-6, 1e-7);
  close("gradient_norm", gradient.norm(), doubles(std::vector{results.at("gradient_norm").get<double>()})[0]);

  std::vector<analysis::Direction> filters;
  for (const std::string number : {"0", "1"}) {
    const auto drawn = direction_of(golden, "input.direction." + number + ".", names);
    filters.push_back(analysis::normalised(drawn, objective.parameters));
    const auto layer = analysis::normalised(drawn, objective.parameters, analysis::Normalisation::layer);
    for (size_t i = 0; i < names.size(); ++i) {
      const std::string at = number + "." + names[i];
      close("filter." + at, filters.back()[i], golden.tensor("output.filter." + at));
      if (golden.has("output.layer." + at))
        close("layer." + at, layer[i], golden.tensor("output.layer." + at));
    }
  }
  const auto alphas = config.at("alphas").get<std::vector<double>>();
  close("line", doubles(analysis::loss_line(objective, filters[0], alphas)), doubles(results.at("line")));
  std::vector<double> grid;
  for (const Json& row : results.at("grid"))
    for (const Json& cell : row) grid.push_back(cell);
  close("grid", doubles(analysis::loss_plane(objective, filters[0], filters[1], alphas)), doubles(grid));
  close("between",
        doubles(analysis::loss_between(objective, direction_of(golden, "other.", names),
                                       config.at("between").get<std::vector<double>>())),
        doubles(results.at("between")));
  const analysis::Direction ascent = analysis::shaped(gradient / gradient.norm(), objective.parameters);
  close("ascent", doubles(analysis::loss_line(objective, ascent, {config.at("ascent").at("rho")})),
        doubles(std::vector{config.at("ascent").at("loss").get<double>()}));
  compare_spectrum(golden, objective, tolerance, compare);
  return compare.result();
}

CaseResult check_embedding_maps(const Golden& golden) {
  const Tolerance tolerance(golden, 1e-5, 1e-7);
  const Json& config = golden.config();
  const Tensor x = golden.tensor("input.x", torch::kFloat32).contiguous();
  const int64_t count = x.size(0);
  Comparison compare;
  const auto close = [&](const std::string& what, const Tensor& got, const Tensor& wanted) {
    compare.close(what, got.to(torch::kFloat64), wanted.to(torch::kFloat64), tolerance.relative,
                  tolerance.absolute);
  };
  const Tensor components = golden.tensor("output.pca.components");
  const auto pca = analysis::principal_components(x, components.size(0));
  close("components", pca.components, components);
  compare.close("scores", pca.scores, golden.tensor("output.pca.scores", torch::kFloat64), tolerance.relative,
                1e-6);
  close("variance", doubles(pca.variance), doubles(config.at("explained_variance")));
  close("variance share", doubles(pca.variance_share), doubles(config.at("explained_variance_ratio")));

  const auto affinities = eval::affinities({x.const_data_ptr<float>(), static_cast<size_t>(x.numel())}, count,
                                           x.size(1), config.at("perplexity"));
  close("precision", doubles(affinities.precision), golden.tensor("output.tsne.precision"));
  close("P", torch::tensor(affinities.joint).view({count, count}), golden.tensor("output.tsne.p"));
  const Tensor y = golden.tensor("input.y", torch::kFloat64).contiguous();
  const auto divergence = eval::tsne_divergence(
      affinities.joint, {y.const_data_ptr<double>(), static_cast<size_t>(y.numel())}, count);
  close("KL", doubles(std::vector{divergence.kl}), doubles(std::vector{config.at("kl").get<double>()}));
  close("gradient", doubles(divergence.gradient).view({count, 2}), golden.tensor("output.tsne.gradient"));
  return compare.result();
}

const Registered registered({
    {"attention_rank", check_attention_rank, {"components/metric_attention_rank"}},
    {"attention_maps", check_attention_maps, {"components/metric_attention_maps"}},
    {"loss_landscape", check_loss_landscape, {"components/metric_loss_landscape"}},
    {"embedding_maps", check_embedding_maps, {"components/metric_embedding_maps"}},
});

}  // namespace
}  // namespace tessera::parity::analysis_cases
