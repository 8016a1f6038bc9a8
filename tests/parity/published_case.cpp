#include "tests/parity/published_case.h"

#include <algorithm>
#include <set>

#include "core/error.h"

namespace tessera::parity {

using torch::Tensor;

PublishedCase::PublishedCase(Comparison& comparison, const Golden& golden, torch::ScalarType dtype,
                             std::string prefix)
    : comparison_(comparison), golden_(golden), dtype_(dtype), prefix_(std::move(prefix)) {
  for (const std::string& name : golden.names(prefix_ + "param.")) {
    Tensor tensor = golden.tensor(prefix_ + "param." + name, dtype);
    if (tensor.is_floating_point()) tensor.requires_grad_();
    published_[name] = tensor;
  }
  const nlohmann::json zero = golden.meta.value("zero_grad_params", nlohmann::json::array());
  for (const auto& name : zero.is_array() ? zero : nlohmann::json::array()) {
    const size_t slash = name.get<std::string>().find_last_of('/') + 1;  // "case/name" or "name"
    zero_.insert(name.get<std::string>().insert(slash, "grad."));
  }
  for (const std::string& name : golden.names(prefix_ + "grad."))
    largest_gradient_ =
        std::max(largest_gradient_,
                 golden.tensor(prefix_ + "grad." + name, torch::kFloat64).abs().max().item<double>());
}

void PublishedCase::load(const std::vector<NamedModule>& modules,
                         const std::vector<train::TensorSource>& sources) {
  for (const auto& [prefix, module] : modules) {
    module->to(dtype_);
    module->eval();
    for (const auto& entry : module->named_parameters()) ours_[prefix + entry.key()] = entry.value();
  }
  std::set<std::string> used, filled;
  const torch::NoGradGuard no_grad;
  for (const train::TensorSource& source : sources) {
    for (const auto& part : source.parts) used.insert(part.theirs);
    const auto found = ours_.find(source.ours);
    comparison_.holds(source.ours, found != ours_.end(), "the file has it, our model does not");
    if (found == ours_.end()) continue;
    found->second.copy_(train::assemble(source, [&](const std::string& name) {
                          return published_.at(name);
                        }).reshape(found->second.sizes()));
    filled.insert(source.ours);
    sources_.push_back(source);
  }
  for (const auto& [name, tensor] : ours_)
    comparison_.holds(name, filled.contains(name), "our model has it, the file does not");
  for (const auto& [name, tensor] : published_) comparison_.holds(name, used.contains(name), "is not used");
}

Tensor PublishedCase::input(const std::string& name) {
  Tensor& value = inputs_[name];
  if (!value.defined()) {
    value = golden_.tensor(prefix_ + "input." + name, dtype_);
    if (value.is_floating_point()) value.requires_grad_();
  }
  return value;
}

void PublishedCase::close(const std::string& what, const Tensor& got, const Tensor& want, bool gradient) {
  const nlohmann::json tolerance = golden_.meta.value("tolerance", nlohmann::json::object());
  const bool sharp = dtype_ == torch::kFloat64;
  const double largest = want.numel() ? want.to(torch::kFloat64).abs().max().item<double>() : 0;
  const std::string name = (sharp ? "float64 " : "float32 ") + prefix_ + what;
  if (!gradient)
    comparison_.close(name, got, want, sharp ? 1e-6 : tolerance.value("rtol", 1e-4),
                      sharp ? 1e-7 * std::max(1.0, largest) : tolerance.value("atol", 1e-5));
  else
    comparison_.close(name, got, want, sharp ? 1e-5 : tolerance.value("grad_rtol", 1e-3),
                      (sharp ? 1e-6 : tolerance.value("grad_atol", 1e-4)) *
                          std::max(largest, (zero_.contains(prefix_ + what) ? 1 : 1e-3) * largest_gradient_));
}

void PublishedCase::output(const std::string& name, const Tensor& got) {
  close("output." + name, got, golden_.tensor(prefix_ + "output." + name), /*gradient=*/false);
  if (name == "loss" && golden_.names(prefix_ + "loss_weight.").empty()) loss_ = got.sum();
  if (!golden_.has(prefix_ + "loss_weight." + name)) return;
  const Tensor part = (got * golden_.tensor(prefix_ + "loss_weight." + name, dtype_)).sum();
  loss_ = loss_.defined() ? loss_ + part : part;
}

void PublishedCase::gradients() {
  check(loss_.defined(), "no output has a loss_weight");
  loss_.backward();
  // What the gradient of ours is for the tensors that it is made of.
  Tensor through = torch::zeros({}, dtype_);
  for (const train::TensorSource& source : sources_) {
    const Tensor& ours = ours_.at(source.ours);
    if (!ours.grad().defined()) continue;
    through = through + (train::assemble(source, [&](const std::string& name) { return published_.at(name); })
                             .reshape(ours.sizes()) *
                         ours.grad())
                            .sum();
  }
  if (through.requires_grad()) through.backward();
  for (const auto& [name, leaf] : published_) {
    const std::string key = prefix_ + "grad." + name;
    const Tensor got = leaf.grad().defined() ? leaf.grad() : torch::zeros_like(leaf);
    if (golden_.has(key))
      close("grad." + name, got, golden_.tensor(key), /*gradient=*/true);
    else
      comparison_.holds(key, got.abs().max().item<double>() == 0,
                        "has a gradient, the published one has none");
  }
  for (const auto& [name, leaf] : inputs_)
    if (golden_.has(prefix_ + "grad.input." + name))
      close("grad.input." + name, leaf.grad().defined() ? leaf.grad() : torch::zeros_like(leaf),
            golden_.tensor(prefix_ + "grad.input." + name), /*gradient=*/true);
}

std::vector<std::pair<std::string, std::vector<int64_t>>> shapes_of(const Golden& golden,
                                                                    const std::string& prefix) {
  std::vector<std::pair<std::string, std::vector<int64_t>>> shapes;
  for (const std::string& name : golden.names(prefix + "param."))
    shapes.emplace_back(name, golden.view(prefix + "param." + name).shape);
  return shapes;
}

}  // namespace tessera::parity
