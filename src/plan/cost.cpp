#include "plan/cost.h"

#include <algorithm>
#include <cmath>

namespace tessera::plan {
namespace {

using enum Coefficient;

class StepModel {
 public:
  StepModel(const Shape& shape, const Cluster& cluster, const Layout& layout, const Arithmetic& arithmetic,
            const Constants& constants)
      : shape_(shape),
        cluster_(cluster),
        chip_(cluster.chip),
        layout_(layout),
        arithmetic_(arithmetic),
        c_(constants),
        samples_(static_cast<double>(layout.microbatch)),
        tensor_(static_cast<double>(layout.tensor)),
        pipeline_(static_cast<double>(layout.pipeline)),
        context_(static_cast<double>(layout.context)),
        microbatches_(static_cast<double>(layout.microbatches(arithmetic.batch))) {}

  StepCost cost(const MeasuredBlock* measured) {
    StepCost out{.memory = step_memory(shape_, layout_, arithmetic_, measured),
                 .traffic = step_traffic(shape_, layout_, arithmetic_)};
    measured ? add_measured(out.time, *measured) : add_layers(out.time);
    const double forward_backward = out.time.products + out.time.attention + out.time.memory_bound +
                                    out.time.recomputed + out.time.launches;
    if (!measured) out.time.optimiser = optimiser();
    out.time.tensor_traffic = tensor_seconds(out.traffic, out.time.products);
    data_seconds(out, forward_backward);
    if (layout_.pipeline > 1) {
      out.time.pipeline_traffic = out.traffic.pipeline / (c_[network] * chip_.network_bytes_per_s);
      const double parts = static_cast<double>(layout_.virtual_stages) * microbatches_;
      out.time.bubble = (pipeline_ - 1) / parts * (forward_backward + out.time.tensor_traffic);
    }
    const double machines = static_cast<double>(cluster_.chips) / static_cast<double>(cluster_.per_machine);
    if (machines > 1) out.time.stragglers = c_[straggle] * std::log2(machines) * out.time.sum();
    const double flop = 2 * shape_.training_macs() * static_cast<double>(arithmetic_.batch);
    out.mfu = flop / (out.time.sum() * chip_.flops * static_cast<double>(layout_.chips()));
    return out;
  }

 private:
  double peak() const { return chip_.flops * chip_.clock(); }
  double of_generation(Coefficient ampere, Coefficient hopper) const {
    return chip_.generation == Generation::ampere ? c_[ampere] : c_[hopper];
  }
  double products_rate(double width, double rows) const {
    if (chip_.generation == Generation::cpu) return peak() * c_[cpu];
    const double slower = 1 + c_[narrow] * 256 / width + c_[few_rows] * 512 / rows;
    return peak() * of_generation(products_ampere, products_hopper) / slower;
  }
  double attention_rate(const Stack& stack) const {
    if (chip_.generation == Generation::cpu) return peak() * c_[cpu];
    const double head = static_cast<double>(stack.width) / static_cast<double>(stack.heads);
    return peak() * of_generation(attention_ampere, attention_hopper) / (1 + c_[narrow_heads] * 64 / head);
  }

  // Seconds for the forward pass of one layer of a stack and one microbatch.
  struct Forward {
    double products, attention, memory_bound, scores;
  };
  Forward forward(const Stack& stack) const {
    const double rows = samples_ * static_cast<double>(stack.tokens) / context_;
    Forward f{};
    f.products = 2 * samples_ * stack.products / (context_ * tensor_) /
                 products_rate(static_cast<double>(stack.width) / tensor_, rows);
    const double pairs = 2 * samples_ * stack.pairs / (context_ * tensor_);
    if (layout_.flash) {
      f.attention = (stack.causal ? 0.5 : 1) * pairs / attention_rate(stack);
    } else {
      f.attention = pairs / products_rate(static_cast<double>(stack.width) / tensor_, rows);
      f.scores =
          c_[scores] / 3 * samples_ * stack.score_bytes / (context_ * tensor_) / chip_.memory_bytes_per_s;
    }
    const double split = 0.25 * static_cast<double>(stack.hidden) * (stack.gated ? 2 : 1) / tensor_,
                 other = static_cast<double>(stack.width) / (layout_.sequence_parallel ? tensor_ : 1);
    f.memory_bound = c_[passes] / 3 * 2 * rows * (split + other) / chip_.memory_bytes_per_s;
    return f;
  }

  // Seconds for the parts of that pass that the backward pass repeats.
  double recomputed(const Forward& f) const {
    const double again = f.products + f.memory_bound;
    switch (layout_.recompute) {
      case Recompute::none:
        return 0;
      case Recompute::attention:
        return layout_.flash ? 0 : f.attention + f.scores;
      case Recompute::products:
        return 0.5 * again;
      case Recompute::full:
        return again + f.attention + f.scores;
    }
    return 0;
  }

  void add_layers(StepTime& time) {
    double layers = 0;
    for (const Stack& stack : shape_.stacks) {
      const double all = microbatches_ * static_cast<double>(stack.layers) / pipeline_;
      const double factor = stack.parameters > 0 ? 2 + stack.trained / stack.parameters : 3;
      const Forward f = forward(stack);
      time.products += all * factor * f.products;
      // The backward pass of flash attention has five products instead of two.
      time.attention += all * ((layout_.flash ? 3.5 : 3) * f.attention + 3 * f.scores);
      time.memory_bound += all * 3 * f.memory_bound;
      time.recomputed += all * recomputed(f);
      layers += all;
    }
    const double factor = shape_.parameters > 0 ? 2 + shape_.trained / shape_.parameters : 3;
    const double width = shape_.stacks.empty() ? 1024 : static_cast<double>(shape_.stacks[0].width);
    const double rows = samples_ * static_cast<double>(std::max<int64_t>(1, shape_.outputs)) / context_;
    // In a pipeline the last stage has the head, and the others wait for it.
    time.products += microbatches_ * factor * 2 * samples_ * shape_.products / (context_ * tensor_) /
                     products_rate(width / tensor_, std::max(rows, samples_ * 64));
    const double logits =
        samples_ * static_cast<double>(shape_.outputs) * static_cast<double>(shape_.vocabulary);
    time.memory_bound += microbatches_ * 20 * logits / (tensor_ * context_) / chip_.memory_bytes_per_s;
    time.launches = c_[launch] * layers;
  }

  void add_measured(StepTime& time, const MeasuredBlock& measured) {
    double layers = measured.layers / pipeline_;
    if (measured.layers == 0)
      for (const Stack& stack : shape_.stacks) layers += static_cast<double>(stack.layers) / pipeline_;
    const double part = samples_ / (tensor_ * context_);
    time.products = microbatches_ * part * (layers * measured.per_sample_s + measured.outer_per_sample_s);
    time.launches = microbatches_ * (layers * measured.fixed_s + measured.outer_fixed_s);
    const double shards = layout_.zero >= 1 ? static_cast<double>(layout_.data) * context_ : 1;
    time.optimiser = (layers * measured.step_s + measured.outer_step_s) / (tensor_ * shards);
    if (layout_.recompute == Recompute::full) time.recomputed = time.products / 3;
  }

  // AdamW reads and writes weights and moments, and reads gradients.
  double optimiser() const {
    const double shards = layout_.zero >= 1 ? static_cast<double>(layout_.data) * context_ : 1;
    const double bytes =
        2 * (arithmetic_.weight_bytes + arithmetic_.optimiser_bytes + arithmetic_.average_bytes) +
        arithmetic_.held_gradient_bytes;
    return bytes * trained() / shards / chip_.memory_bytes_per_s;
  }

  double trained() const {
    return ((shape_.all_trained() - shape_.trained) / pipeline_ + shape_.trained) / tensor_;
  }

  double tensor_seconds(const StepTraffic& traffic, double products) const {
    if (layout_.tensor == 1) return 0;
    const double seconds = traffic.tensor / (c_[link] * chip_.link_bytes_per_s);
    return arithmetic_.overlapped_tensor ? std::max(0.5 * seconds, seconds - products) : seconds;
  }

  void data_seconds(StepCost& out, double forward_backward) const {
    const int64_t members = layout_.data * layout_.context;
    if (members == 1) return;
    const Bandwidth rate = bandwidth(cluster_, members, layout_.tensor);
    // An exchange overlaps with products and slows them by a share of its time at the links' rate.
    const double slows = (1 - c_[hidden_data]) * out.traffic.data / chip_.link_bytes_per_s;
    const double seconds =
        out.traffic.data / ((rate.over_network ? c_[network] : c_[link]) * rate.bytes_per_s);
    // An exchange that happens once per step overlaps with only one microbatch.
    const bool always = layout_.zero >= 2 && layout_.pipeline == 1;
    const double cover = forward_backward / (always ? 1 : microbatches_);
    out.time.data_traffic = std::max(slows, seconds - cover);
  }

  const Shape& shape_;
  const Cluster& cluster_;
  const Chip& chip_;
  const Layout& layout_;
  const Arithmetic& arithmetic_;
  const Constants& c_;
  double samples_, tensor_, pipeline_, context_, microbatches_;
};

// Returns the bytes of a step for stage `zero` of ZeRO, with `times` reductions of gradients and gatherings of weights.
double data_traffic(int64_t zero, double times, double reduce, double gather) {
  if (zero == 0) return 2 * reduce;
  if (zero == 1) return reduce + gather;
  if (zero == 2) return times * reduce + gather;
  return times * (reduce + 2 * gather);
}

}  // namespace

double StepTime::sum() const {
  return products + attention + memory_bound + recomputed + launches + tensor_traffic + data_traffic +
         pipeline_traffic + bubble + optimiser + stragglers;
}

std::vector<std::pair<const char*, double>> StepTime::by_cause() const {
  return {{"matrix products", products},
          {"attention", attention},
          {"memory-bound work", memory_bound},
          {"recomputation", recomputed},
          {"launches", launches},
          {"tensor exchanges", tensor_traffic},
          {"data exchanges", data_traffic},
          {"pipeline exchanges", pipeline_traffic},
          {"pipeline bubble", bubble},
          {"optimiser", optimiser},
          {"stragglers", stragglers}};
}

const char* StepTime::limit() const {
  const auto causes = by_cause();
  return std::max_element(causes.begin(), causes.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; })
      ->first;
}

StepTraffic step_traffic(const Shape& shape, const Layout& layout, const Arithmetic& arithmetic) {
  const auto tensor = static_cast<double>(layout.tensor), pipeline = static_cast<double>(layout.pipeline),
             members = static_cast<double>(layout.data * layout.context),
             microbatches = static_cast<double>(layout.microbatches(arithmetic.batch)),
             samples = static_cast<double>(layout.microbatch);
  const double share = (members - 1) / members;
  double inner = 0, inner_trained = 0, tokens_times_width = 0, width_out = 0;
  for (const Stack& stack : shape.stacks) {
    const double layers = static_cast<double>(stack.layers) / pipeline;
    inner += layers * stack.parameters, inner_trained += layers * stack.trained;
    const double activation =
        2 * samples * static_cast<double>(stack.tokens * stack.width) / static_cast<double>(layout.context);
    tokens_times_width += layers * activation;
    width_out = std::max(width_out, activation);
  }
  const double parameters = (inner + shape.parameters) / tensor,
               trained = (inner_trained + shape.trained) / tensor;
  const double reduce = share * arithmetic.gradient_bytes * trained,
               gather = share * arithmetic.gathered_bytes * parameters;
  StepTraffic traffic;
  // A pipeline reduces gradients once per step, and gathers weights once.
  traffic.data = data_traffic(layout.zero, layout.pipeline == 1 ? microbatches : 1, reduce, gather);
  // Two all-reduces forward and two backward, two more if layers are computed again; each counts twice.
  const double exchanges = layout.recompute == Recompute::full ? 6 : 4;
  traffic.tensor = microbatches * exchanges * 2 * (tensor - 1) / tensor * tokens_times_width;
  if (layout.pipeline > 1)
    traffic.pipeline = 2 * microbatches * static_cast<double>(layout.virtual_stages) * width_out /
                       (layout.sequence_parallel ? tensor : 1);
  return traffic;
}

StepCost step_cost(const Shape& shape, const Cluster& cluster, const Layout& layout,
                   const Arithmetic& arithmetic, const Constants& constants, const MeasuredBlock* measured) {
  return StepModel(shape, cluster, layout, arithmetic, constants).cost(measured);
}

}  // namespace tessera::plan
