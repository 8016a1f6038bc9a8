#include "tests/parity/dense_case.h"

#include <algorithm>
#include <set>

#include "core/error.h"
#include "weights/stored_tensors.h"

namespace tessera::parity {

std::vector<std::string> case_prefixes(const Golden& golden) {
  std::vector<std::string> found;
  for (const std::string& name : golden.names("")) {
    const size_t output = name.find("output.");
    if (output == std::string::npos) continue;
    const std::string prefix = name.substr(0, output);
    if (!prefix.empty() && !prefix.ends_with('/')) continue;
    if (std::find(found.begin(), found.end(), prefix) == found.end()) found.push_back(prefix);
  }
  return found;
}

DenseCase::DenseCase(const Golden& golden, std::string prefix, std::vector<std::string> others,
                     torch::ScalarType dtype)
    : golden_(golden), prefix_(std::move(prefix)), others_(std::move(others)), dtype_(dtype) {
  for (const std::string& name : golden.names(prefix_ + "grad."))
    if (const torch::Tensor gradient = golden.tensor(prefix_ + "grad." + name, torch::kFloat64);
        gradient.numel() > 0)
      largest_gradient_ = std::max(largest_gradient_, gradient.abs().max().item<double>());
}

std::string DenseCase::where(const std::string& kind, const std::string& name) const {
  if (golden_.has(prefix_ + kind + name)) return prefix_;
  for (const std::string& other : others_)
    if (golden_.has(other + kind + name)) return other;
  return prefix_;
}

std::vector<std::pair<std::string, torch::Tensor>> DenseCase::stored(const std::string& kind) const {
  std::string from = prefix_;
  std::vector<std::string> others =
      others_;  // a case with parameters of its own has its own buffers, or none
  if (kind == "buffer." && !golden_.names(prefix_ + "param.").empty()) others.clear();
  for (size_t i = 0; golden_.names(from + kind).empty() && i < others.size(); ++i) from = others[i];
  NamedTensors tensors;
  for (const std::string& name : golden_.names(from + kind))
    if (kind != "grad." || !name.starts_with("input."))
      tensors.emplace_back(name, golden_.tensor(from + kind + name, dtype_));
  // transformers has q, k and v apart.
  static const train::NameTable apart("", "",
                                      train::thirds("**.query.*", "**.key.*", "**.value.*", "**.qkv.*"));
  const std::map<std::string, torch::Tensor> by_name(tensors.begin(), tensors.end());
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors) names.push_back(name);
  NamedTensors joined;
  for (const train::TensorSource& source : train::sources_of(apart.ours(names)))
    joined.emplace_back(source.ours,
                        train::assemble(source, [&](const std::string& name) { return by_name.at(name); }));
  return joined;
}

void DenseCase::add(const std::string& part, const std::shared_ptr<torch::nn::Module>& module) {
  module->to(dtype_);
  parts_.emplace_back(part, module);
}

void DenseCase::load(const std::function<std::string(const std::string&)>& rename, bool may_leave) {
  rename_ = rename;
  const torch::NoGradGuard no_grad;
  std::map<std::string, torch::Tensor> targets;
  std::set<std::string> missing;
  for (const auto& [part, module] : parts_) {
    for (const auto& entry : module->named_parameters()) {
      targets[part + entry.key()] = entry.value();
      missing.insert(part + entry.key());
    }
    for (const auto& entry : module->named_buffers()) targets[part + entry.key()] = entry.value();
  }
  for (const char* kind : {"param.", "buffer."})
    for (const auto& [published, tensor] : stored(kind)) {
      const std::string ours = rename(published);
      const auto target = targets.find(ours);
      check(target != targets.end() || may_leave || ours.empty(), "there is no parameter '", ours,
            "' (published: ", published, ")");
      if (target == targets.end()) continue;
      check(target->second.sizes() == tensor.sizes(), "'", ours, "' has shape ", target->second.sizes(),
            ", published ", tensor.sizes());
      target->second.copy_(tensor);
      missing.erase(ours);
    }
  check(missing.empty(), "the golden has no '", missing.empty() ? "" : *missing.begin(), "'");
}

torch::Tensor DenseCase::input(const std::string& name) {
  torch::Tensor& value = inputs_[name];
  if (value.defined()) return value;
  value = golden_.tensor(where("input.", name) + "input." + name, dtype_);
  if (value.is_floating_point()) value.requires_grad_();
  return value;
}

bool DenseCase::has_input(const std::string& name) const {
  return golden_.has(where("input.", name) + "input." + name);
}

torch::Tensor DenseCase::buffer(const std::string& name) const {
  for (const auto& [part, module] : parts_)
    for (const auto& entry : module->named_buffers())
      if (part + entry.key() == name) return entry.value();
  fail("there is no buffer '", name, "'");
}

// In double only the rounding of what is stored is left.
void DenseCase::close(Comparison& comparison, const std::string& what, const torch::Tensor& got,
                      const torch::Tensor& want, bool gradient) const {
  const nlohmann::json tolerance = golden_.meta.value("tolerance", nlohmann::json::object());
  const auto number = [&](const char* key, double otherwise) {
    const auto found = tolerance.find(key);
    return found != tolerance.end() && found->is_number() ? found->get<double>() : otherwise;
  };
  const torch::Tensor wanted = want.to(torch::kFloat64);
  const double largest = wanted.numel() > 0 ? wanted.abs().max().item<double>() : 0;
  const std::string name = (dtype_ == torch::kFloat64 ? "float64 " : "float32 ") + prefix_ + what;
  const torch::Tensor shaped =
      got.numel() == want.numel() && got.dim() == 0 ? got.reshape(want.sizes()) : got;
  if (dtype_ == torch::kFloat64)
    return comparison.close(name, shaped, wanted, 1e-6,
                            2e-7 * largest + (gradient ? 1e-9 * largest_gradient_ : 1e-9));
  if (!gradient) return comparison.close(name, shaped, wanted, number("rtol", 1e-4), number("atol", 1e-5));
  // A gradient that is zero for a structural reason is a sum of large numbers that cancel.
  comparison.close(name, shaped, wanted, number("grad_rtol", 1e-3),
                   number("grad_atol", 1e-4) * std::max(largest, 1e-2 * largest_gradient_));
}

void DenseCase::compare_outputs(Comparison& comparison, const NamedOutputs& outputs) const {
  for (const std::string& name : golden_.names(prefix_ + "output.")) {
    const auto found = outputs.find(name);
    comparison.holds(prefix_ + "output." + name, found != outputs.end(), "not computed");
    if (found != outputs.end())
      close(comparison, "output." + name, found->second, golden_.tensor(prefix_ + "output." + name), false);
  }
}

void DenseCase::compare_gradients(Comparison& comparison, const NamedOutputs& outputs,
                                  const torch::Tensor& loss) {
  torch::Tensor total = loss;
  for (const auto& [name, output] : outputs) {
    if (loss.defined() || !golden_.has(prefix_ + "loss_weight." + name)) continue;
    const torch::Tensor part = (output * golden_.tensor(prefix_ + "loss_weight." + name, dtype_)).sum();
    total = total.defined() ? total + part : part;
  }
  check(total.defined(), prefix_, ": no output has a loss_weight");
  total.backward();
  const auto gradient_of = [](const torch::Tensor& leaf) {
    return leaf.grad().defined() ? leaf.grad() : torch::zeros_like(leaf);
  };
  std::map<std::string, torch::Tensor> leaves;
  for (const auto& [part, module] : parts_)
    for (const auto& entry : module->named_parameters()) leaves[part + entry.key()] = entry.value();
  std::set<std::string> compared;
  for (const auto& [published, want] : stored("grad.")) {
    const std::string ours = rename_(published);
    const auto leaf = leaves.find(ours);
    comparison.holds(prefix_ + "grad." + published, leaf != leaves.end(), "no such parameter");
    if (leaf == leaves.end()) continue;
    compared.insert(ours);
    close(comparison, "grad." + published, gradient_of(leaf->second), want, true);
  }
  for (const auto& [ours, leaf] : leaves)
    if (!compared.contains(ours) && leaf.requires_grad() && leaf.grad().defined())
      comparison.holds(prefix_ + ours, leaf.grad().abs().max().item<double>() == 0,
                       "has a gradient, the published one has none");
  for (const auto& [name, leaf] : inputs_)
    if (golden_.has(prefix_ + "grad.input." + name))
      close(comparison, "grad.input." + name, gradient_of(leaf),
            golden_.tensor(prefix_ + "grad.input." + name), true);
}

}  // namespace tessera::parity
