// ZeRO's stage 3 (Rajbhandari et al. 2020): between the passes of its block, a process has its rows of a weight alone.
//
//   DividedWeights weights(axis, layout, parameters, nn::units_of(model));
//   {
//     const nn::UnitScope scope(&weights);
//     loss(…).backward();       // blocks gather their weights, and release them
//   }
//   weights.end_pass();
//   … the optimiser updates weights.part(…) …
//   weights.updated();
//
// A block's weights are gathered before its forward and its backward pass and released after each. The block that is
// expected next is gathered meanwhile. What no block runs (embeddings, heads) stays whole. Whole tensors keep their
// TensorImpl: only their memory comes and goes, so that graphs, names and hooks stay valid.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "nn/units.h"
#include "parallel/layout.h"

namespace tessera::parallel {

class DividedWeights final : public nn::UnitKeeper {
 public:
  // `wholes`: all parameters, frozen ones too, the same in all processes of the axis; those of `units` are released. With
  // `places`, the process of each unit (pipeline.h), this one keeps the weights of its own. All must outlive this.
  // `rounded`: floats of units that travel in bfloat16, since their readers round them. With a `device` all move there,
  // those of units as rows alone.
  DividedWeights(const Axis& axis, const Layout& layout, const NamedTensors& wholes,
                 const std::vector<std::vector<torch::Tensor>>& units,
                 const std::vector<torch::Tensor>& rounded = {}, std::optional<torch::Device> device = {},
                 const std::vector<int>& places = {});

  // Returns this process's rows of a tensor; null for a tensor that is not divided.
  const torch::Tensor* part(const torch::Tensor& whole) const;
  // Calls `call` with the parameters of each unit after its backward pass.
  void when_done(std::function<void(const std::vector<torch::Tensor>&)> call) { done_ = std::move(call); }

  void enter(const std::vector<torch::Tensor>& parameters) override;
  void leave(const std::vector<torch::Tensor>& parameters) override;
  void enter_backward(const std::vector<torch::Tensor>& parameters) override;
  // Returns the number of the unit with these parameters, -1 if all of them are whole.
  int64_t unit_of(const std::vector<torch::Tensor>& parameters) const;
  // Makes a unit whole, and holds it until let_go_unit(). Collective.
  void gather_unit(int64_t unit);
  void let_go_unit(int64_t unit) { let_go(units_.at(static_cast<size_t>(unit))); }
  const Axis& axis() const { return axis_; }

  // Call after each backward pass, also after one that failed. Exchanges nothing.
  void end_pass();

  // Call after the parts have changed: brings what stays whole up to date, frozen weights if `frozen`. Collective.
  void updated(bool frozen = false);
  // Call after whole tensors have changed: takes this process's rows of all that are whole now.
  void take();
  // Makes the named tensors whole until release(), with the current rows of all processes. Collective.
  void gather(const NamedTensors& wholes);
  void release();

 private:
  struct Weight {
    std::string name;
    torch::Tensor whole, raw;  // raw: the same memory without its version, which graphs check
    torch::Tensor part;
    std::vector<int64_t> rows;  // of each process
    bool rounded = false;       // travels in bfloat16 to a unit
    bool resident = false;      // runs in this process alone: the part is the whole tensor
    int holders = 1;            // passes and callers that need it whole
  };
  using Ids = std::vector<size_t>;
  // Exchanges under way.
  struct Fetch {
    Ids all, packed;
    std::vector<torch::Tensor> flat;  // those of `packed`, a row of numbers, if there are any
    std::vector<Axis::Wait> waits;
    bool exact = false;  // nothing is rounded
    // Whole tensors that travel alone in another type than the weight's.
    std::vector<std::pair<size_t, torch::Tensor>> others = {};
  };

  Ids ids_of(const std::vector<torch::Tensor>& tensors) const;
  Ids missing(const Ids& ids) const;
  void hold(const Ids& ids);
  void let_go(const Ids& ids);
  Fetch start(const Ids& ids, bool exact = false) const;
  torch::ScalarType travels_as(size_t id, bool exact) const;
  bool travels_like(size_t id, bool exact, const torch::Tensor& flat) const;
  void finish(Fetch& fetch) const;
  void settle();
  void run(const Ids& ids);
  void expect(const Ids& ids);
  void leave_backward();
  void outdate(const Ids& ids) const;

  const Axis& axis_;
  const Layout layout_;
  std::vector<Weight> weights_;
  std::vector<Ids> units_;
  std::unordered_map<const c10::TensorImpl*, size_t> ids_;
  std::function<void(const std::vector<torch::Tensor>&)> done_;
  std::vector<Ids> order_, last_order_;  // units in this forward pass and in the one before
  size_t backward_ = 0;                  // place in order_ of the unit that runs backward
  Ids running_backward_, gathered_;
  std::vector<torch::Tensor> backward_parameters_;
  Fetch expected_;
};

}  // namespace tessera::parallel
