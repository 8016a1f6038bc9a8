#include <set>

#include "core/error.h"
#include "tests/parity/text_case.h"

namespace tessera::parity {

std::string TextCase::label(const std::string& name) const {
  return (dtype_ == torch::kFloat64 ? "float64 " : "float32 ") + prefix_ + name;
}

torch::Tensor TextCase::part_of(const torch::Tensor& whole, const Loaded& loaded) const {
  const train::RowRange& rows = loaded.place.join.ours;
  return whole.chunk(rows.of, 0).at(static_cast<size_t>(rows.first));
}

void TextCase::load(torch::nn::Module& module,
                    const std::function<train::NamePlace(const std::string&)>& place) {
  const torch::NoGradGuard no_grad;
  module.to(dtype_);
  module.eval();
  std::set<std::string> frozen;
  const nlohmann::json lists = golden_.meta.value("no_grad_params", nlohmann::json::object());
  for (const auto& [key, list] : lists.items())
    for (const auto& name : list) frozen.insert(name.get<std::string>());
  auto parameters = module.named_parameters();
  std::set<std::string> reached;
  for (const std::string& published : golden_.names(prefix_ + "param.")) {
    Loaded loaded{published, {}, place(published)};
    const std::string& ours = loaded.place.ours;
    if (ours.empty()) continue;
    torch::Tensor* parameter = parameters.find(ours);
    check(parameter != nullptr, "the model has no parameter '", ours, "' (published: ", published, ")");
    loaded.parameter = *parameter;
    torch::Tensor target = part_of(parameter->detach(), loaded);
    const torch::Tensor stored = tensor("param." + published);
    check(stored.numel() == target.numel(), "parameter '", ours, "' is ", target.sizes(), ", the golden's ",
          stored.sizes());
    target.copy_(stored.view(target.sizes()));
    if (frozen.contains(published)) parameter->requires_grad_(false);
    reached.insert(ours);
    parameters_.push_back(loaded);
  }
  for (const auto& entry : parameters)
    check(reached.contains(entry.key()), "the golden has no parameter '", entry.key(), "'");
}

void TextCase::output(const std::string& name, const torch::Tensor& got) {
  const torch::Tensor want = golden_.tensor(prefix_ + "output." + name, torch::kFloat64);
  const double largest = want.numel() ? want.abs().max().item<double>() : 0;
  const nlohmann::json tolerance = golden_.meta.value("tolerance", nlohmann::json::object());
  const bool sharp = dtype_ == torch::kFloat64;  // what is left then is the golden's rounding, and its tables
  comparison_.close(label(name), got.reshape(want.sizes()), want,
                    sharp ? 1e-6 : tolerance.value("rtol", 1e-4),
                    sharp ? 2e-6 * std::max(1.0, largest) : tolerance.value("atol", 1e-5));
  if (!has("loss_weight." + name)) return;
  const torch::Tensor part = (got * tensor("loss_weight." + name)).sum();
  loss_ = loss_.defined() ? loss_ + part : part;
}

void TextCase::tokens(const std::string& name, const torch::Tensor& got, int64_t pad) {
  torch::Tensor want = golden_.tensor(prefix_ + "output." + name, torch::kInt64);
  if (want.dim() == 1) want = want.unsqueeze(0);
  torch::Tensor ours = got;
  const int64_t more = want.size(1) - ours.size(1);
  if (more > 0) ours = torch::constant_pad_nd(ours, {0, more}, pad);
  const torch::Tensor wanted = more < 0 ? torch::constant_pad_nd(want, {0, -more}, pad) : want;
  comparison_.equal(label(name), ours, wanted);
}

void TextCase::gradients() {
  check(loss_.defined(), "no output has a loss_weight");
  for (Loaded& loaded : parameters_)
    if (loaded.parameter.grad().defined()) loaded.parameter.mutable_grad().zero_();
  loss_.backward();
  double largest = 0;
  for (const Loaded& loaded : parameters_)
    if (has("grad." + loaded.published))
      largest = std::max(largest, tensor("grad." + loaded.published).abs().max().item<double>());
  for (const Loaded& loaded : parameters_) {
    const std::string key = "grad." + loaded.published;
    const torch::Tensor& whole = loaded.parameter.grad();
    const torch::Tensor own =
        whole.defined() ? part_of(whole, loaded) : torch::zeros_like(part_of(loaded.parameter, loaded));
    if (!has(key)) {
      comparison_.holds(label(key), own.abs().max().item<double>() == 0,
                        "has a gradient, the published one has none");
      continue;
    }
    const torch::Tensor want = golden_.tensor(prefix_ + key, torch::kFloat64);
    const double size = std::max(want.abs().max().item<double>(), 1e-3 * largest);
    const bool sharp = dtype_ == torch::kFloat64;
    comparison_.close(label(key), own.reshape(want.sizes()), want, sharp ? 1e-6 : 1e-3,
                      (sharp ? 2e-6 : 1e-4) * size);
  }
}

}  // namespace tessera::parity
