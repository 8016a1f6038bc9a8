#include "tests/parity/model_case.h"

#include <algorithm>
#include <set>

#include "core/error.h"
#include "tests/parity/detector_case.h"
#include "weights/name_tables.h"

namespace tessera::parity {
namespace {

using Json = nlohmann::json;

bool is_gradient(const std::string& key) {
  return key.starts_with("grad.") || key.find("/grad.") != std::string::npos;
}

// How far a result may be from the golden one, by the tensor's name in the file.
class Tolerance {
 public:
  Tolerance(const Golden& golden, torch::ScalarType dtype)
      : golden_(golden), sharp_(dtype == torch::kFloat64) {
    if (const auto errors = golden.meta.find("errors_fp32_vs_fp64"); errors != golden.meta.end())
      errors_ = *errors;
    for (const auto& [key, error] : errors_.items())
      if (is_gradient(key)) all_gradients_ = std::max(all_gradients_, error["max_abs"].get<double>());
  }

  void compare(Comparison& comparison, const std::string& key, const torch::Tensor& got) const {
    const torch::Tensor want = golden_.tensor(key).to(torch::kFloat64);  // masks too
    const double largest = want.numel() ? want.abs().max().item<double>() : 0;
    const std::string what = (sharp_ ? "float64 " : "float32 ") + key;
    const bool gradient = is_gradient(key);
    if (golden_.folder == "components") {
      const Json tolerance = golden_.meta.value("tolerance", Json::object());
      if (!gradient)
        return comparison.close(what, got, want, tolerance.value("rtol", 1e-4),
                                tolerance.value("atol", 1e-5));
      return comparison.close(
          what, got, want, tolerance.value("grad_rtol", 1e-3),
          tolerance.value("grad_atol", 1e-4) * std::max(largest, 1e-3 * largest_gradient()));
    }
    const double error = errors_.contains(key) ? errors_[key]["max_abs_err"].get<double>() : 0;
    // Sums that cancel (the input gate's bias) are zero up to rounding of what is summed.
    const double cancelled = gradient ? all_gradients_ : 0;
    if (sharp_) return comparison.close(what, got, want, 0, 2e-7 * largest + 1e-11 * cancelled);
    const double floor =
        gradient ? std::max(1e-5 * largest, 1e-6 * cancelled) : 1e-5 * std::min(1.0, largest);
    comparison.close(what, got, want, 1e-4, std::max(floor, 10 * error));
  }

 private:
  double largest_gradient() const {
    double largest = 0;
    for (const std::string& name : golden_.names("grad."))
      largest = std::max(largest, golden_.tensor("grad." + name, torch::kFloat64).abs().max().item<double>());
    return largest;
  }

  const Golden& golden_;
  bool sharp_;
  Json errors_ = Json::object();
  double all_gradients_ = 0;
};

// sum over outputs of sum(output * loss_weight), over those that have a weight; or the output that is a loss
// itself.
torch::Tensor scalar_loss(const Golden& golden, const NamedOutputs& outputs, torch::ScalarType dtype) {
  torch::Tensor loss;
  if (golden.names("loss_weight.").empty() && outputs.contains("loss")) return outputs.at("loss").sum();
  for (const auto& [name, output] : outputs) {
    if (!golden.has("loss_weight." + name)) continue;
    const torch::Tensor part = (output * golden.tensor("loss_weight." + name, dtype)).sum();
    loss = loss.defined() ? loss + part : part;
  }
  return loss;
}

void compare_outputs(Comparison& comparison, const Tolerance& tolerance, const Golden& golden,
                     const NamedOutputs& outputs) {
  for (const std::string& name : golden.names("output.")) {
    const auto found = outputs.find(name);
    comparison.holds("output." + name, found != outputs.end(), "not computed");
    if (found != outputs.end() && found->second.defined())
      tolerance.compare(comparison, "output." + name, found->second);
  }
}

// The names of the golden's parameters as the family's models have them, by the published ones.
std::map<std::string, std::string> our_names_of(const models::Family& family, const Golden& golden) {
  const std::vector<std::string> published = golden.names("param."),
                                 ours = train::our_names(published, family.name);
  std::map<std::string, std::string> names;
  for (size_t i = 0; i < published.size(); ++i) names[published[i]] = ours[i];
  return names;
}

// A matrix as the convolution of 1x1 cells that the published code has.
torch::Tensor in_shape_of(const torch::Tensor& tensor, const std::vector<int64_t>& shape) {
  const bool unit_axes = tensor.dim() == 2 && shape.size() == 4 && shape[2] == 1 && shape[3] == 1;
  return unit_axes ? tensor.unsqueeze(-1).unsqueeze(-1) : tensor;
}

}  // namespace

Value to_value(const Json& json) {
  switch (json.type()) {
    case Json::value_t::boolean:
      return json.get<bool>();
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
      return json.get<int64_t>();
    case Json::value_t::number_float:
      return json.get<double>();
    case Json::value_t::string:
      return json.get<std::string>();
    case Json::value_t::array: {
      Value::Array items;
      for (const Json& item : json) items.push_back(to_value(item));
      return items;
    }
    case Json::value_t::object: {
      Value::Table entries;
      for (const auto& [key, item] : json.items()) entries.emplace_back(key, to_value(item));
      return entries;
    }
    default:
      fail("a setting is null or not JSON");
  }
}

void load_parameters(models::Backbone& model, const models::Family& family, const Golden& golden,
                     torch::ScalarType dtype, const std::vector<std::string>& absent) {
  const torch::NoGradGuard no_grad;
  // Published classes may hold parameters that they do not use.
  const std::vector<std::string> unused =
      golden.meta.value("params_without_grad", std::vector<std::string>());
  auto parameters = model.named_parameters(), buffers = model.named_buffers();
  std::set<std::string> loaded(absent.begin(), absent.end());
  const std::map<std::string, std::string> names = our_names_of(family, golden);
  for (const auto& [published, ours] : names) {
    torch::Tensor* parameter = parameters.find(ours);
    if (!parameter) parameter = buffers.find(ours);
    if (ours.empty()) continue;
    if (!parameter && std::find(unused.begin(), unused.end(), published) != unused.end()) continue;
    check(parameter != nullptr, "the model has no parameter '", ours, "' (published: ", published, ")");
    torch::Tensor stored = golden.tensor("param." + published, dtype);
    if (stored.sizes() != parameter->sizes()) stored = model.fit(ours, stored);
    check(stored.defined() && stored.sizes() == parameter->sizes(), "parameter '", ours,
          "' has another shape than the golden's");
    parameter->copy_(stored);
    loaded.insert(ours);
  }
  for (const std::string& published : golden.names("buffer.")) {  // running statistics
    const std::string ours = train::our_name(published, family.name);
    if (ours.empty()) continue;
    torch::Tensor* buffer = buffers.find(ours);
    check(buffer != nullptr, "the model has no buffer '", ours, "' (published: ", published, ")");
    buffer->copy_(golden.tensor("buffer." + published, dtype));
  }
  for (const auto& entry : parameters)
    check(loaded.contains(entry.key()), "the golden has no parameter '", entry.key(), "'");
}

CaseResult compare_model(const Golden& golden, const models::ModelSpec& spec, const RunModel& run,
                         const std::vector<std::string>& absent, const Golden* weights) {
  const models::Family& family = models::find_family(spec.family);
  Comparison comparison;
  for (const torch::ScalarType dtype : {torch::kFloat64, torch::kFloat32}) {
    const auto model = models::build_classifier(spec, 0);
    model->backbone->to(dtype);
    load_parameters(*model->backbone, family, weights ? *weights : golden, dtype, absent);
    model->backbone->train(golden.meta.value("mode", "eval") == "train");
    std::map<std::string, torch::Tensor> inputs;
    const auto input = [&](const std::string& name) {
      torch::Tensor& value = inputs[name];
      if (!value.defined()) {
        value = golden.tensor("input." + name, dtype);
        if (value.is_floating_point()) value.requires_grad_();
      }
      return value;
    };
    const NamedOutputs outputs = run(*model, input);
    const Tolerance tolerance(golden, dtype);
    compare_outputs(comparison, tolerance, golden, outputs);
    const torch::Tensor loss = scalar_loss(golden, outputs, dtype);
    check(loss.defined(), "no output has a loss_weight");
    loss.backward();
    const std::string prefix = golden.folder == "components" ? "grad." : "grad.param.";
    std::map<std::string, std::string> published;
    for (const auto& [name, ours] : our_names_of(family, weights ? *weights : golden)) published[ours] = name;
    for (const auto& entry : model->backbone->named_parameters()) {
      const std::string key = prefix + published[entry.key()];
      if (golden.has(key))
        tolerance.compare(comparison, key, in_shape_of(gradient_of(entry.value()), golden.view(key).shape));
      else
        comparison.holds(
            key, !entry.value().grad().defined() || entry.value().grad().abs().max().item<double>() == 0,
            "has a gradient, the published one has none");
    }
    for (const auto& [name, value] : inputs)
      if (golden.has("grad.input." + name))
        tolerance.compare(comparison, "grad.input." + name, gradient_of(value));
  }
  return comparison.result();
}

void compare_built(Comparison& comparison, const Golden& golden, const Golden& weights,
                   const std::string& prefix, const std::function<std::string(const std::string&)>& rename,
                   const std::function<BuiltCase(torch::ScalarType dtype)>& build) {
  for (const torch::ScalarType dtype : {torch::kFloat64, torch::kFloat32}) {
    const BuiltCase built = build(dtype);
    std::map<std::string, torch::Tensor> parameters;
    for (const auto& module : built.modules) {
      module->to(dtype);
      module->eval();
      for (const auto& entry : module->named_parameters()) {
        check(parameters.emplace(entry.key(), entry.value()).second, "two parameters '", entry.key(), "'");
      }
    }
    std::map<std::string, std::string> published;
    {
      const torch::NoGradGuard no_grad;
      for (const std::string& name : weights.names("param.")) {
        const std::string ours = rename(name);
        if (ours.empty()) continue;
        check(parameters.contains(ours), "no parameter '", ours, "' (published: ", name, ")");
        const torch::Tensor stored = weights.tensor("param." + name, dtype);
        check(stored.sizes() == parameters.at(ours).sizes(), "parameter '", ours,
              "' has another shape than the golden's");
        parameters.at(ours).copy_(stored);
        published[ours] = name;
      }
    }
    for (const auto& [name, parameter] : parameters)
      check(published.contains(name), "the golden has no parameter '", name, "'");
    std::map<std::string, torch::Tensor> inputs;
    const NamedOutputs outputs = built.run([&](const std::string& name) {
      torch::Tensor& value = inputs[name];
      if (!value.defined()) {
        value = golden.tensor("input." + name, dtype);
        if (value.is_floating_point()) value.requires_grad_();
      }
      return value;
    });
    const Tolerance tolerance(golden, dtype);
    for (const std::string& name : golden.names(prefix + "output.")) {
      const auto found = outputs.find(name);
      comparison.holds(prefix + "output." + name, found != outputs.end(), "not computed");
      if (found != outputs.end() && found->second.defined())
        tolerance.compare(comparison, prefix + "output." + name, found->second);
    }
    const std::string start = prefix + (golden.folder == "components" ? "grad." : "grad.param.");
    if (golden.names(start).empty()) continue;
    outputs.at("loss").sum().backward();
    for (const auto& [ours, name] : published) {
      const std::string key = start + name;
      if (golden.has(key))
        tolerance.compare(comparison, key, gradient_of(parameters.at(ours)));
      else
        comparison.holds(key, !parameters.at(ours).grad().defined(), "has a gradient");
    }
    for (const auto& [name, value] : inputs)
      if (golden.has(prefix + "grad.input." + name))
        tolerance.compare(comparison, prefix + "grad.input." + name, gradient_of(value));
  }
}

CaseResult compare_function(const Golden& golden, const std::function<NamedOutputs(const Leaves&)>& run) {
  Comparison comparison;
  compare_function(comparison, golden, run);
  return comparison.result();
}

CaseResult compare_parts(const Golden& golden, const RunPart& run) {
  Comparison comparison;
  for (const std::string& name : golden.parts()) {
    const Golden part = golden.part(name);
    compare_function(comparison, part, [&](const Leaves& leaves) { return run(name, part, leaves); });
  }
  return comparison.result();
}

void compare_function(Comparison& comparison, const Golden& golden,
                      const std::function<NamedOutputs(const Leaves&)>& run) {
  for (const torch::ScalarType dtype : {torch::kFloat64, torch::kFloat32}) {
    Leaves leaves;
    for (const char* prefix : {"param.", "input."})
      for (const std::string& name : golden.names(prefix)) {
        torch::Tensor value = golden.tensor(prefix + name, dtype);
        if (value.is_floating_point()) value.requires_grad_();
        leaves[prefix + name] = value;
      }
    const NamedOutputs outputs = run(leaves);
    const Tolerance tolerance(golden, dtype);
    compare_outputs(comparison, tolerance, golden, outputs);
    const torch::Tensor loss = scalar_loss(golden, outputs, dtype);
    if (loss.defined()) loss.backward();
    for (const std::string& name : golden.names("grad.")) {
      const auto leaf = leaves.find(leaves.contains(name) ? name : "param." + name);
      comparison.holds("grad." + name, leaf != leaves.end(), "no such parameter or input");
      if (leaf != leaves.end()) tolerance.compare(comparison, "grad." + name, gradient_of(leaf->second));
    }
  }
}

}  // namespace tessera::parity
