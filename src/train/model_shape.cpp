#include "train/model_shape.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "core/error.h"
#include "core/text.h"
#include "models/base/causal_backbone.h"
#include "optim/optimiser_groups.h"
#include "train/memory.h"
#include "train/setup.h"

namespace tessera::train {
namespace {

// A parameter of a layer, by its name after the layer's number.
struct Tensor {
  std::string name;
  std::vector<int64_t> shape;
  double numbers = 0;
  bool trains = true;
};
using Layer = std::vector<Tensor>;

// Returns "backbone.blocks" and "attn.qkv.weight" for "backbone.blocks.3.attn.qkv.weight"; an empty list if
// the name has no number after blocks or layers.
struct Place {
  std::string list, rest;
  int64_t number = 0;
};
Place place_of(const std::string& name) {
  const std::vector<std::string> parts = split(name, '.');
  Place place;
  for (size_t i = 1; i + 1 < parts.size(); ++i) {
    const auto number = parse_int(parts[i]);
    const std::string& list = parts[i - 1];
    const bool layers = list.starts_with("block") || list.starts_with("layer") || list == "h" ||
                        list == "resblocks" || list.starts_with("stage");
    if (!number || !layers) continue;
    const auto joined = [&](size_t from, size_t to) {
      return join(std::span(parts).subspan(from, to - from), ".");
    };
    place = {joined(0, i), joined(i + 1, parts.size()), *number};
  }
  return place;
}

bool has(const std::string& name, std::initializer_list<const char*> parts) {
  return std::any_of(parts.begin(), parts.end(),
                     [&](const char* part) { return name.find(part) != std::string::npos; });
}

bool is_table(const std::string& name) { return has(name, {"embed", "pos", "bias_table", "wte", "wpe"}); }

double sum_of(const Layer& layer, bool only_trained) {
  double sum = 0;
  for (const Tensor& tensor : layer)
    if (tensor.trains || !only_trained) sum += tensor.numbers;
  return sum;
}

// Multiply-adds of a layer's weights for one token.
double products_of(const Layer& layer) {
  double sum = 0;
  for (const Tensor& tensor : layer)
    if (tensor.shape.size() >= 2 && !is_table(tensor.name)) sum += tensor.numbers;
  return sum;
}

bool has_attention(const Layer& layer) {
  const bool cells = std::any_of(layer.begin(), layer.end(), [](const Tensor& tensor) {
    return has(tensor.name, {"igate", "mlstm"});
  });
  return !cells && std::any_of(layer.begin(), layer.end(), [](const Tensor& tensor) {
    return has(tensor.name, {"attn", "attention", "qkv", "q_proj"});
  });
}

int64_t width_of(const Layer& layer) {
  for (const Tensor& tensor : layer)
    if (tensor.shape.size() == 1 && has(tensor.name, {"norm", "ln"})) return tensor.shape[0];
  int64_t width = 1;
  for (const Tensor& tensor : layer)
    if (tensor.shape.size() == 2) width = std::max(width, std::min(tensor.shape[0], tensor.shape[1]));
  return width;
}

plan::Stack stack_of(const std::string& list, const Layer& layer, int64_t layers) {
  plan::Stack stack{.name = list, .layers = layers, .width = width_of(layer)};
  stack.parameters = sum_of(layer, false), stack.trained = sum_of(layer, true);
  stack.heads = stack.kv_heads = std::max<int64_t>(1, stack.width / 64);
  int wide = 0;
  for (const Tensor& tensor : layer)
    if (tensor.shape.size() == 2 && tensor.shape[0] > stack.hidden && tensor.shape[0] != 3 * stack.width)
      stack.hidden = tensor.shape[0];
  for (const Tensor& tensor : layer)
    wide += tensor.shape.size() == 2 && tensor.shape[0] == stack.hidden && tensor.shape[1] == stack.width;
  stack.gated = wide == 2 && stack.hidden > stack.width;
  stack.products = products_of(layer);  // for one token; tokens follow
  return stack;
}

// The stacks of a part, and the parameters outside them.
struct Grouped {
  std::vector<plan::Stack> stacks{};
  std::vector<bool> attention{};  // one for each stack
  double parameters = 0, trained = 0;
  int64_t vocabulary = 0;
};

Grouped group(const NamedTensors& parameters, const std::vector<std::string>& frozen) {
  std::map<std::string, std::map<int64_t, Layer>> lists;
  Grouped out;
  for (const auto& [name, parameter] : parameters) {
    const std::string& whole = name;
    const bool trains = parameter.requires_grad() &&
                        std::none_of(frozen.begin(), frozen.end(),
                                     [&](const std::string& pattern) { return matches(pattern, whole); });
    const auto numbers = static_cast<double>(parameter.numel());
    const Place place = place_of(name);
    if (place.list.empty()) {
      out.parameters += numbers;
      if (trains) out.trained += numbers;
      if (parameter.dim() == 2) out.vocabulary = std::max(out.vocabulary, parameter.size(0));
      continue;
    }
    lists[place.list][place.number].push_back({place.rest, parameter.sizes().vec(), numbers, trains});
  }
  for (const auto& [list, layers] : lists) {
    // Layers with the same shapes, in order of their first layer.
    std::vector<std::pair<const Layer*, int64_t>> kinds;
    const auto same = [](const Layer& a, const Layer& b) {
      return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Tensor& x, const Tensor& y) {
        return x.name == y.name && x.shape == y.shape && x.trains == y.trains;
      });
    };
    for (const auto& [number, layer] : layers) {
      const auto found = std::find_if(kinds.begin(), kinds.end(),
                                      [&](const auto& kind) { return same(*kind.first, layer); });
      if (found == kinds.end())
        kinds.emplace_back(&layer, 1);
      else
        ++found->second;
    }
    for (const auto& [layer, count] : kinds) {
      out.stacks.push_back(stack_of(list, *layer, count));
      out.attention.push_back(has_attention(*layer));
    }
  }
  return out;
}

// Sets tokens, products and pairs of a layer that has these multiply-adds. With attention over all tokens,
// W T + 2 T^2 width = macs; without, T = macs / W.
void set_macs(plan::Stack& stack, double macs, bool attention) {
  const double weights = std::max(1.0, stack.products), square = 2 * static_cast<double>(stack.width);
  const double tokens = attention
                            ? (std::sqrt(weights * weights + 4 * square * macs) - weights) / (2 * square)
                            : macs / weights;
  stack.tokens = std::max<int64_t>(1, std::llround(tokens));
  stack.pairs = attention ? square * static_cast<double>(stack.tokens * stack.tokens) : 0;
  stack.products = std::max(0.0, macs - stack.pairs);
  if (attention)
    stack.score_bytes =
        2 * static_cast<double>(stack.heads) * static_cast<double>(stack.tokens * stack.tokens);
}

// Returns the multiply-adds of a backbone's blocks, or nothing if its settings have no depth.
std::vector<double> macs_of_blocks(const tasks::BackbonePart& part, int64_t side) {
  try {
    return block_macs(part.spec, side);
  } catch (const Error&) {
    return {};
  }
}

void take_settings(plan::Stack& stack, const Value& settings, size_t stage) {
  const auto integer = [&](const char* key) -> int64_t {
    const Value* value = settings.find(key);
    if (value && value->is_array() && stage < value->as_array().size()) value = &value->as_array()[stage];
    return value && value->is_int() ? value->as_int() : 0;
  };
  if (const int64_t heads = integer("heads"); heads > 0) stack.heads = stack.kv_heads = heads;
  if (const int64_t heads = integer("kv_heads"); heads > 0) stack.kv_heads = heads;
}

// Assigns the blocks' multiply-adds to the stacks of backbones, in order. Returns which stacks have them.
std::vector<bool> take_blocks(const tasks::Task& task, int64_t side, Grouped& grouped) {
  std::vector<bool> known(grouped.stacks.size());
  for (const tasks::BackbonePart& part : task.backbones()) {
    const std::vector<double> blocks = macs_of_blocks(part, side);
    std::vector<size_t> own;
    int64_t layers = 0;
    for (size_t i = 0; i < grouped.stacks.size(); ++i)
      if (!known[i] && grouped.stacks[i].name.starts_with(part.prefix) &&
          layers + grouped.stacks[i].layers <= std::ssize(blocks)) {
        own.push_back(i);
        layers += grouped.stacks[i].layers;
      }
    if (blocks.empty() || layers != std::ssize(blocks)) continue;
    auto next = blocks.begin();
    for (size_t stage = 0; stage < own.size(); ++stage) {
      plan::Stack& stack = grouped.stacks[own[stage]];
      take_settings(stack, part.spec.settings, stage);
      const double sum = std::accumulate(next, next + stack.layers, 0.0);
      next += stack.layers;
      const bool windows = part.spec.settings.find("depths") != nullptr;
      stack.causal = dynamic_cast<const models::CausalBackbone*>(part.model.get()) != nullptr;
      set_macs(stack, sum / static_cast<double>(stack.layers), grouped.attention[own[stage]] && !windows);
      known[own[stage]] = true;
    }
  }
  return known;
}

}  // namespace

plan::Shape shape_of_task(const tasks::Task& task, int64_t side, const std::vector<std::string>& frozen) {
  Grouped grouped = group(tasks::named_parameters(task.parts()), frozen);
  const auto all = static_cast<double>(task.macs(side));
  const std::vector<bool> known = take_blocks(task, side, grouped);
  double left = all, weights = 0, squares = 0;
  for (size_t i = 0; i < known.size(); ++i) {
    const plan::Stack& stack = grouped.stacks[i];
    const auto layers = static_cast<double>(stack.layers);
    if (known[i]) {
      left -= layers * (stack.products + stack.pairs);
    } else {
      weights += layers * stack.products;
      if (grouped.attention[i]) squares += layers * 2 * static_cast<double>(stack.width);
    }
  }
  // The other stacks read the same number T of tokens: weights T + squares T^2 = the remainder.
  left = std::max(0.0, left);
  const double tokens = squares > 0
                            ? (std::sqrt(weights * weights + 4 * squares * left) - weights) / (2 * squares)
                        : weights > 0 ? left / weights
                                      : 0;
  plan::Shape shape{.parameters = grouped.parameters, .trained = grouped.trained};
  double inner = 0;
  for (size_t i = 0; i < known.size(); ++i) {
    plan::Stack& stack = grouped.stacks[i];
    if (!known[i]) {
      if (!task.backbones().empty()) take_settings(stack, task.backbones()[0].spec.settings, 0);
      const double square = grouped.attention[i] ? 2 * static_cast<double>(stack.width) : 0;
      set_macs(stack, stack.products * tokens + square * tokens * tokens, grouped.attention[i]);
    }
    inner += static_cast<double>(stack.layers) * (stack.products + stack.pairs);
  }
  shape.stacks = std::move(grouped.stacks);
  shape.products = std::max(0.0, all - inner);
  if (grouped.vocabulary >= 1024 && !shape.stacks.empty() && shape.products > 0) {
    shape.vocabulary = grouped.vocabulary;
    shape.outputs = 1;  // a class head
  }
  return shape;
}

CountedRun count_run(const Recipe& recipe) {
  CountedRun counted{.recipe = recipe, .shape = {}, .arithmetic = {}};
  Compute compute = choose_compute(recipe.train);
  compute.device = torch::kCPU;
  const RunData data = open_data(recipe, /*may_be_missing=*/true);
  const WeightsInfo info = describe_run(counted.recipe, data);
  const RunPlan plan = plan_run(counted.recipe, data, info, compute, 1);
  const auto task = meta_task_of(counted.recipe, data, info, compute);
  const std::vector<int64_t> sizes = input_sizes(counted.recipe);
  counted.shape = shape_of_task(*task, *std::max_element(sizes.begin(), sizes.end()), recipe.train.freeze);
  counted.shape.name = plan.model == "none" ? tasks::task_name(recipe.task) : plan.model;
  counted.language = tasks::task_name(recipe.task) == "language";
  for (plan::Stack& stack : counted.shape.stacks) {
    if (stack.pairs == 0) counted.only_attention = false;
    if (counted.language) stack.causal = true;
  }
  if (counted.language && !counted.shape.stacks.empty())
    counted.shape.outputs = counted.shape.stacks[0].tokens;
  const bool half =
      recipe.train.precision == RunPrecision::bf16 || recipe.train.precision == RunPrecision::fp16;
  const double size = recipe.train.precision == RunPrecision::fp64 ? 8 : 4;
  plan::Arithmetic& arithmetic = counted.arithmetic;
  arithmetic.batch = recipe.train.batch_size;
  arithmetic.weight_bytes = arithmetic.held_gradient_bytes = arithmetic.gradient_bytes = size;
  arithmetic.gathered_bytes = half ? 2 : size;
  const double copies = recipe.train.ema_decay > 0 ? 2 : 1, all = static_cast<double>(plan.parameters),
               trained = static_cast<double>(plan.trainable_parameters);
  arithmetic.average_bytes = (copies - 1) * size;
  // state_bytes: weights, their moving average, the optimiser's state, and 2^18 bytes of headers.
  if (trained > 0)
    arithmetic.optimiser_bytes =
        std::max(0.0, static_cast<double>(plan.state_bytes) - (1 << 18) - size * all * copies) / trained;
  // Formulas count 16 bits.
  if (!half)
    for (plan::Stack& stack : counted.shape.stacks) stack.kept_bytes = size / 2 * plan::kept_bytes(stack, {});
  return counted;
}

}  // namespace tessera::train
