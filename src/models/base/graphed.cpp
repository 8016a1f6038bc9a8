#include "models/base/graphed.h"

#include <ATen/autocast_mode.h>
#include <ATen/record_function.h>

#include <algorithm>

#include "core/text.h"
#include "kernels/gpu/graphs.h"
#include "nn/layer_division.h"
#include "nn/named_tensors.h"
#include "nn/units.h"
#include "ops/gpu.h"
#include "ops/inference.h"

namespace tessera::models {
namespace {

// Returns why a pass cannot be a graph; empty if it can. Functions of the host in the pass would run in its recording alone.
std::string objection(const torch::Tensor& input, const GraphedPass::Modules& modules,
                      const kernels::gpu::GraphCalls& calls) {
  if (static_cast<int32_t>(input.device().type()) != calls.device_type) return "the input is not on a GPU";
  if (torch::GradMode::is_enabled() || ops::inference_settings().gradients_follow)
    return "gradients are recorded";
  for (const torch::nn::Module* module : modules)
    if (module->is_training()) return "the model is in training mode";
  if (nn::UnitScope::runner() || nn::LayerDivisionScope::current()) return "processes divide the model";
  if (at::hasCallbacks()) return "a profile is taken";
  return "";
}

// All that changes what a pass computes, except for its weights.
std::vector<int64_t> key_of(const torch::Tensor& input) {
  const ops::InferenceSettings& settings = ops::inference_settings();
  const c10::DeviceType device = input.device().type();
  const bool autocast = at::autocast::is_autocast_enabled(device);
  std::vector<int64_t> key = {input.device().index(),
                              static_cast<int64_t>(input.scalar_type()),
                              autocast ? static_cast<int64_t>(at::autocast::get_autocast_dtype(device)) : -1,
                              c10::InferenceMode::is_enabled(),
                              settings.fused,
                              settings.int8,
                              settings.parallel_tokens};
  key.insert(key.end(), input.sizes().begin(), input.sizes().end());
  key.insert(key.end(), input.strides().begin(), input.strides().end());
  return key;
}

std::string first_line(const std::string& message) { return message.substr(0, message.find('\n')); }

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

}  // namespace

struct GraphedPass::Entry {
  struct Weight {
    torch::Tensor tensor;
    const void* data;
  };
  std::vector<int64_t> key;
  int64_t calls = 0;
  std::string refused;  // why there is no graph, and will be none
  Pass pass;
  torch::Tensor input, output;
  std::vector<Weight> weights;
  std::vector<torch::Tensor> tables;  // of the host, which the graph reads
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
  // The body of the recording. Weights that layers prepare and keep for later calls would be values of today.
  static int compute(void* entry) {
    auto& own = *static_cast<Entry*>(entry);
    try {
      ops::InferenceSettings settings = ops::inference_settings();
      settings.keep_packed = false;
      const ops::InferenceScope scope(settings);
      const NoAutocastCache no_cache;
      const ops::HeldTables held(own.tables);
      const torch::Tensor made = own.pass(own.input);
      if (own.output.defined())
        own.output.copy_(made);
      else
        own.output = made;
      return 0;
    } catch (const std::exception& error) {
      own.refused = first_line(error.what());
      return 1;
    }
  }
};

GraphedPass::GraphedPass() = default;
GraphedPass::~GraphedPass() = default;

void GraphedPass::forget() {
  const std::lock_guard lock(mutex_);
  entries_.clear();
}

// Returns the entry of an input, first in the list. Null if there have been too many.
GraphedPass::Entry* GraphedPass::entry_of(const torch::Tensor& input) {
  if (!entries_.empty() && std::any_of(entries_.begin(), entries_.end(),
                                       [](const Entry& entry) { return entry.reads_other_memory(); }))
    entries_.clear();
  std::vector<int64_t> key = key_of(input);
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

void GraphedPass::record(Entry& entry, const torch::Tensor& input, const Modules& modules, const Pass& pass) {
  entry.pass = pass;
  entry.input = torch::empty_like(input).copy_(input);
  for (const torch::nn::Module* module : modules)
    for (const auto& [name, weight] : named_state(*module))
      entry.weights.push_back({weight, weight.const_data_ptr()});
  entry.made_by = kernels::gpu::graph_calls();
  void* graph = nullptr;
  const char* const error = entry.made_by->capture(input.device().index(), &Entry::compute, &entry, &graph);
  if (!error) {
    entry.graph = graph, ++captures_;
    return;
  }
  if (entry.refused.empty()) entry.refused = first_line(error);
  entry.refused = "no graph: " + entry.refused;
  entry.input.reset(), entry.output.reset(), entry.tables.clear(), entry.pass = {};
}

torch::Tensor GraphedPass::replayed(Entry& entry, const torch::Tensor& input, const Pass& pass) {
  entry.input.copy_(input);
  if (const char* const error = entry.made_by->replay(entry.graph)) {
    entry.refused = "the graph failed: " + first_line(error);
    entry.made_by->destroy(std::exchange(entry.graph, nullptr));
    reason_ = entry.refused;
    return pass(input);
  }
  reason_.clear();
  return entry.output.clone();
}

torch::Tensor GraphedPass::run(const torch::Tensor& input, const Modules& modules, const Pass& pass) {
  const kernels::gpu::GraphCalls* const calls = kernels::gpu::graph_calls();
  if (!calls) return pass(input);
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return pass(input);  // another thread has the graphs' memory
  reason_ = objection(input, modules, *calls);
  if (!reason_.empty()) return pass(input);
  Entry* const entry = entry_of(input);
  if (entry && !entry->graph && entry->refused.empty() && ++entry->calls > kWarmCalls)
    record(*entry, input, modules, pass);
  if (entry && entry->graph) return replayed(*entry, input, pass);
  reason_ = !entry                   ? "shapes change too often"
            : entry->refused.empty() ? "its first calls have no graph"
                                     : entry->refused;
  return pass(input);
}

}  // namespace tessera::models
