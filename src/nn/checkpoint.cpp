#include "nn/units.h"

#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include "nn/layer_division.h"
#include "ops/inference.h"

namespace tessera::nn {
namespace {

using Body = std::function<torch::Tensor(const torch::Tensor&)>;

thread_local bool recomputing_now = false;

class RecomputingScope {
 public:
  RecomputingScope() : before_(recomputing_now) { recomputing_now = true; }
  ~RecomputingScope() { recomputing_now = before_; }
  RecomputingScope(const RecomputingScope&) = delete;
  RecomputingScope& operator=(const RecomputingScope&) = delete;

 private:
  bool before_;
};

// Restores the forward pass's autocast on this thread (for a GPU, the autograd engine has its own thread).
class AutocastGuard {
 public:
  AutocastGuard(c10::DeviceType device, bool enabled, torch::ScalarType type)
      : device_(device),
        before_(at::autocast::is_autocast_enabled(device)),
        type_before_(at::autocast::get_autocast_dtype(device)) {
    at::autocast::set_autocast_enabled(device_, enabled);
    at::autocast::set_autocast_dtype(device_, type);
    at::autocast::increment_nesting();
  }
  ~AutocastGuard() {
    // Rounded copies of the weights must not outlive the step.
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_dtype(device_, type_before_);
    at::autocast::set_autocast_enabled(device_, before_);
  }
  AutocastGuard(const AutocastGuard&) = delete;
  AutocastGuard& operator=(const AutocastGuard&) = delete;

 private:
  c10::DeviceType device_;
  bool before_;
  torch::ScalarType type_before_;
};

struct Recompute : public torch::autograd::Function<Recompute> {
  static torch::Tensor forward(torch::autograd::AutogradContext* ctx, const std::shared_ptr<Body>& function,
                               const torch::Tensor& x, at::TensorList parameters) {
    torch::autograd::variable_list saved{x};
    saved.insert(saved.end(), parameters.begin(), parameters.end());
    ctx->save_for_backward(saved);
    ctx->saved_data["function"] = c10::IValue::make_capsule(
        c10::make_intrusive<Holder>(function, UnitScope::runner(), LayerDivisionScope::current()));
    const c10::DeviceType device = x.device().type();
    ctx->saved_data["autocast"] = at::autocast::is_autocast_enabled(device);
    ctx->saved_data["autocast_type"] = static_cast<int64_t>(at::autocast::get_autocast_dtype(device));
    ops::InferenceSettings settings = ops::inference_settings();
    settings.gradients_follow = true;
    const ops::InferenceScope scope(settings);
    return (*function)(x);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list gradients) {
    const auto saved = ctx->get_saved_variables();
    const auto holder = ctx->saved_data["function"].toCapsule();
    const auto& function = static_cast<Holder&>(*holder).function;
    const UnitScope units(static_cast<Holder&>(*holder).runner);
    const LayerDivisionScope layers(static_cast<Holder&>(*holder).division);
    const AutocastGuard autocast(saved[0].device().type(), ctx->saved_data["autocast"].toBool(),
                                 static_cast<torch::ScalarType>(ctx->saved_data["autocast_type"].toInt()));
    const torch::AutoGradMode with_gradients(true);
    torch::autograd::variable_list inputs{saved[0].detach().requires_grad_()};
    for (size_t i = 1; i < saved.size(); ++i)
      if (saved[i].requires_grad()) inputs.push_back(saved[i]);
    const torch::Tensor output = [&] {
      const RecomputingScope again;
      return (*function)(inputs[0]);
    }();
    const auto found = torch::autograd::grad({output}, inputs, {gradients[0]}, /*retain_graph=*/std::nullopt,
                                             /*create_graph=*/false, /*allow_unused=*/true);
    torch::autograd::variable_list result{torch::Tensor(), found[0]};  // no gradient for the function itself
    size_t next = 1;
    for (size_t i = 1; i < saved.size(); ++i)
      result.push_back(saved[i].requires_grad() ? found[next++] : torch::Tensor());
    return result;
  }

  // Carries the function through saved_data.
  struct Holder : torch::CustomClassHolder {
    Holder(std::shared_ptr<Body> f, UnitRunner* r, const LayerDivision* d)
        : function(std::move(f)), runner(r), division(d) {}
    std::shared_ptr<Body> function;
    UnitRunner* runner;             // runs its units
    const LayerDivision* division;  // divides its layers, null without
  };
};

}  // namespace

bool recomputing() { return recomputing_now; }

torch::Tensor checkpoint(const Body& function, const torch::Tensor& x,
                         const std::vector<torch::Tensor>& parameters) {
  if (!torch::GradMode::is_enabled()) return function(x);
  return Recompute::apply(std::make_shared<Body>(function), x, at::TensorList(parameters));
}

}  // namespace tessera::nn
