#include "models/base/graphed.h"

#include <ATen/autocast_mode.h>
#include <ATen/record_function.h>
#include <c10/core/AutogradState.h>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/recording.h"
#include "kernels/gpu/graphs.h"
#include "nn/layer_division.h"
#include "nn/named_tensors.h"
#include "nn/units.h"
#include "ops/gpu.h"
#include "ops/inference.h"

namespace tessera::models {
namespace {

using Tensors = GraphedPass::Tensors;

std::string first_line(const std::string& message) { return message.substr(0, message.find('\n')); }

// Stores the results of a recording; those of a repetition go to their memory.
void keep(const Tensors& made, Tensors& kept) {
  if (kept.empty()) {
    kept = made;
    return;
  }
  const torch::NoGradGuard no_grad;
  for (size_t i = 0; i < kept.size(); ++i)
    if (kept[i].defined()) kept[i].copy_(made[i]);
}

// Autocast's copies of weights would be those of an earlier pass; within a recording each pass makes its own.
class NoAutocastCache {
 public:
  NoAutocastCache() { at::autocast::set_autocast_cache_enabled(false); }
  ~NoAutocastCache() { at::autocast::set_autocast_cache_enabled(before_); }
  NoAutocastCache(const NoAutocastCache&) = delete;
  NoAutocastCache& operator=(const NoAutocastCache&) = delete;

 private:
  bool before_ = at::autocast::is_autocast_cache_enabled();
};

// While it lives, backward passes of this thread run in it, on a GPU too, so that its scopes hold there.
class BackwardHere {
 public:
  BackwardHere() { c10::AutogradState::get_tls_state().set_multithreading_enabled(false); }
  ~BackwardHere() { c10::AutogradState::get_tls_state().set_multithreading_enabled(before_); }
  BackwardHere(const BackwardHere&) = delete;
  BackwardHere& operator=(const BackwardHere&) = delete;

 private:
  bool before_ = c10::AutogradState::get_tls_state().get_multithreading_enabled();
};

// The buffers of modules before a recording, which may change them; only the repetition after it counts.
class Buffers {
 public:
  explicit Buffers(const std::vector<torch::nn::Module*>& modules) {
    for (const torch::nn::Module* module : modules)
      for (const torch::Tensor& buffer : module->buffers()) before_.emplace_back(buffer, buffer.clone());
  }
  void restore() const {
    const torch::NoGradGuard no_grad;
    for (const auto& [buffer, content] : before_) buffer.copy_(content);
  }

 private:
  std::vector<std::pair<torch::Tensor, torch::Tensor>> before_;
};

}  // namespace

struct GraphedPass::Call {
  Tensors inputs;
  std::vector<int64_t> numbers;
  std::vector<torch::nn::Module*> modules;
  const Step& compute;
  bool trains;  // with a backward pass

  std::string objection(const kernels::gpu::GraphCalls& calls) const;
  std::vector<int64_t> key() const;
};

// Returns why it cannot be a graph; empty if it can. Functions of the host in a pass would run in its recording alone.
std::string GraphedPass::Call::objection(const kernels::gpu::GraphCalls& calls) const {
  for (const torch::Tensor& input : inputs)
    if (static_cast<int32_t>(input.device().type()) != calls.device_type) return "the input is not on a GPU";
  if (trains && !torch::GradMode::is_enabled()) return "no gradients are recorded";
  if (!trains && (torch::GradMode::is_enabled() || ops::inference_settings().gradients_follow))
    return "gradients are recorded";
  for (const torch::nn::Module* module : modules)
    if (module->is_training() != trains)
      return trains ? "the model is in evaluation mode" : "the model is in training mode";
  if (nn::UnitScope::runner() || nn::LayerDivisionScope::current()) return "processes divide the model";
  if (at::hasCallbacks()) return "a profile is taken";
  return "";
}

// Returns all that changes the results, except for the weights.
std::vector<int64_t> GraphedPass::Call::key() const {
  const ops::InferenceSettings& settings = ops::inference_settings();
  const c10::DeviceType device = inputs[0].device().type();
  const bool autocast = at::autocast::is_autocast_enabled(device);
  std::vector<int64_t> key = {autocast ? static_cast<int64_t>(at::autocast::get_autocast_dtype(device)) : -1,
                              c10::InferenceMode::is_enabled(),
                              settings.fused,
                              settings.int8,
                              settings.parallel_tokens,
                              trains};
  for (const torch::Tensor& input : inputs) {
    key.insert(key.end(), {input.device().index(), static_cast<int64_t>(input.scalar_type()), input.dim()});
    key.insert(key.end(), input.sizes().begin(), input.sizes().end());
    key.insert(key.end(), input.strides().begin(), input.strides().end());
  }
  key.insert(key.end(), numbers.begin(), numbers.end());
  return key;
}

struct GraphedPass::Entry {
  struct Weight {
    torch::Tensor tensor;
    const void* data;
  };
  std::vector<int64_t> key;
  int64_t calls = 0;
  std::string refused;  // why there is no graph, and will be none
  bool trains = false;
  Step compute;
  Tensors inputs, outputs;
  std::vector<Weight> weights;
  Tensors parameters, gradients;  // only with a backward pass; a gradient may be undefined
  Tensors tables;                 // in main memory, which the graph reads
  const kernels::gpu::GraphCalls* made_by = nullptr;
  void* graph = nullptr;

  explicit Entry(std::vector<int64_t> of) : key(std::move(of)) {}
  ~Entry() {
    if (graph) made_by->destroy(graph);
  }
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;

  bool reads_other_memory() const {
    return std::any_of(weights.begin(), weights.end(),
                       [](const Weight& w) { return w.tensor.const_data_ptr() != w.data; });
  }
  void take(const Call& call);
  void drop();
  void check_no_gradients() const {
    for (const torch::Tensor& parameter : parameters)
      check(!parameter.grad().defined(), "a step begins with gradients of another");
  }
  // Takes the gradients of the parameters, which have none afterwards.
  Tensors gradients_taken() const {
    Tensors taken;
    for (const torch::Tensor& parameter : parameters)
      taken.push_back(std::exchange(parameter.mutable_grad(), torch::Tensor()));
    return taken;
  }
  void compute_pass() {
    const NoAutocastCache no_cache;
    keep(compute(inputs), outputs);
  }
  // Autocast's copies within a step have gradients, so they are made once a step, as without a graph.
  void compute_step() {
    const Recording recording;
    const BackwardHere backward_here;
    at::autocast::clear_cache();
    keep(compute(inputs), outputs);
    keep(gradients_taken(), gradients);
  }
  // The body of the recording. Weights that layers prepare and keep for later calls would be values of today.
  static int body(void* entry) {
    auto& own = *static_cast<Entry*>(entry);
    try {
      ops::InferenceSettings settings = ops::inference_settings();
      settings.keep_packed = false;
      const ops::InferenceScope scope(settings);
      const ops::HeldTables held(own.tables);
      if (own.trains)
        own.compute_step();
      else
        own.compute_pass();
      return 0;
    } catch (const std::exception& error) {
      own.refused = first_line(error.what());
      return 1;
    }
  }
};

// Keeps what a graph of the call needs.
void GraphedPass::Entry::take(const Call& call) {
  compute = call.compute, trains = call.trains;
  for (const torch::Tensor& input : call.inputs) inputs.push_back(torch::empty_like(input).copy_(input));
  for (const torch::nn::Module* module : call.modules) {
    for (const auto& [name, weight] : named_state(*module))
      weights.push_back({weight, weight.const_data_ptr()});
    if (!trains) continue;
    for (const torch::Tensor& parameter : module->parameters()) parameters.push_back(parameter);
  }
}

void GraphedPass::Entry::drop() {
  for (Tensors* list : {&inputs, &outputs, &parameters, &gradients, &tables}) list->clear();
  compute = {};
}

GraphedPass::GraphedPass() = default;
GraphedPass::~GraphedPass() = default;

void GraphedPass::forget() {
  const std::lock_guard lock(mutex_);
  entries_.clear();
}

// Returns the entry of a call, first in the list. Null if there have been too many.
GraphedPass::Entry* GraphedPass::entry_of(const Call& call) {
  if (!entries_.empty() && std::any_of(entries_.begin(), entries_.end(),
                                       [](const Entry& entry) { return entry.reads_other_memory(); }))
    entries_.clear();
  std::vector<int64_t> key = call.key();
  const auto found =
      std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) { return entry.key == key; });
  if (found != entries_.end()) {
    entries_.splice(entries_.begin(), entries_, found);
    return &entries_.front();
  }
  if (dropped_ >= kMostDropped) return nullptr;
  if (entries_.size() == kMostGraphs) entries_.pop_back(), ++dropped_;
  return &entries_.emplace_front(std::move(key));
}

void GraphedPass::record(Entry& entry, const Call& call) {
  entry.take(call);
  entry.check_no_gradients();
  const Buffers before(call.trains ? call.modules : std::vector<torch::nn::Module*>());
  entry.made_by = kernels::gpu::graph_calls();
  void* graph = nullptr;
  const char* const error =
      entry.made_by->capture(call.inputs[0].device().index(), &Entry::body, &entry, &graph);
  before.restore();
  if (!error) {
    entry.graph = graph, ++captures_;
    return;
  }
  if (entry.refused.empty()) entry.refused = first_line(error);
  entry.refused = "the recording failed: " + entry.refused;
  entry.gradients_taken();  // those of half a step
  entry.drop();
}

GraphedPass::Tensors GraphedPass::replayed(Entry& entry, const Call& call) {
  entry.check_no_gradients();
  for (size_t i = 0; i < call.inputs.size(); ++i) entry.inputs[i].copy_(call.inputs[i]);
  if (const char* const error = entry.made_by->replay(entry.graph)) {
    entry.refused = "the graph failed: " + first_line(error);
    entry.made_by->destroy(std::exchange(entry.graph, nullptr));
    refusal_ = reason_ = entry.refused;
    return call.compute(call.inputs);
  }
  reason_.clear(), refusal_.clear();
  for (size_t i = 0; i < entry.gradients.size(); ++i)
    if (entry.gradients[i].defined()) entry.parameters[i].mutable_grad() = entry.gradients[i];
  Tensors out;
  for (const torch::Tensor& output : entry.outputs) out.push_back(output.clone());
  return out;
}

GraphedPass::Tensors GraphedPass::computed(const Call& call) {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return call.compute(call.inputs);  // another thread has the graphs' memory
  refusal_ = reason_ = call.objection(*kernels::gpu::graph_calls());
  if (!reason_.empty()) return call.compute(call.inputs);
  Entry* const entry = entry_of(call);
  if (entry && !entry->graph && entry->refused.empty() && ++entry->calls > kWarmCalls) record(*entry, call);
  if (entry && entry->graph) return replayed(*entry, call);
  if (entry && entry->refused.empty())
    reason_ = "its first calls have no graph";
  else
    refusal_ = reason_ = entry ? entry->refused : "shapes change too often";
  return call.compute(call.inputs);
}

torch::Tensor GraphedPass::run(const torch::Tensor& input, const Modules& modules, const Pass& pass) {
  if (!kernels::gpu::graph_calls()) return pass(input);
  return run(Tensors{input}, modules, [pass](const Tensors& in) { return pass(in[0]); });
}

torch::Tensor GraphedPass::run(const Tensors& inputs, const Modules& modules, const PassOfAll& pass) {
  if (!kernels::gpu::graph_calls()) return pass(inputs);
  const Step compute = [pass](const Tensors& in) { return Tensors{pass(in)}; };
  return computed({inputs, {}, modules, compute, /*trains=*/false})[0];
}

GraphedPass::Tensors GraphedPass::run_step(const Tensors& inputs, const std::vector<int64_t>& numbers,
                                           const std::vector<torch::nn::Module*>& modules, const Step& step) {
  if (!kernels::gpu::graph_calls()) return step(inputs);
  return computed({inputs, numbers, modules, step, /*trains=*/true});
}

}  // namespace tessera::models
