#include "nn/mlstm.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/error.h"
#include "ops/gpu.h"
#include "ops/mlstm_mixer.h"

namespace tessera::nn {

HeadwiseLinearImpl::HeadwiseLinearImpl(int64_t width, int64_t block, bool with_bias) {
  check(width % block == 0, "the width ", width, " must be a multiple of the block size ", block);
  weight = register_parameter("weight", zeros({width / block, block, block}));
  if (with_bias) bias = register_parameter("bias", zeros({width}));
}

torch::Tensor HeadwiseLinearImpl::forward(const torch::Tensor& x) const {
  return ops::headwise_linear(x, weight, bias);
}

MlstmCellImpl::MlstmCellImpl(int64_t width, int64_t heads, bool norm_bias, int64_t gate_width)
    : heads_(heads) {
  check(width % heads == 0, "the inner width ", width, " must be a multiple of the number of heads ", heads);
  igate = register_module("igate", Linear(gate_width, heads));
  fgate = register_module("fgate", Linear(gate_width, heads));
  igate->keep_exact(), fgate->keep_exact();
  outnorm =
      register_module("outnorm", LayerNorm(width, LayerNormOptions{1e-5, norm_bias, /*residual=*/true}));
}

torch::Tensor MlstmCellImpl::forward(const torch::Tensor& q, const torch::Tensor& k,
                                     const torch::Tensor& v) const {
  const int64_t batch = q.size(0), tokens = q.size(1), width = q.size(2);
  const auto by_head = [&](const torch::Tensor& t) {
    return t.view({batch, tokens, heads_, width / heads_}).transpose(1, 2);
  };
  const torch::Tensor qkv = torch::cat({q, k, v}, -1);
  const torch::Tensor h =
      ops::mlstm_parallel(by_head(q), by_head(k), by_head(v), igate->forward(qkv).transpose(1, 2),
                          fgate->forward(qkv).transpose(1, 2));
  return ops::headwise_norm(h.transpose(1, 2).reshape({batch, tokens, width}), heads_, outnorm->scale(),
                            outnorm->bias, outnorm->eps());
}

std::string Traversal::name() const {
  const char* start =
      mirrored ? (reversed ? "bot_left" : "top_right") : (reversed ? "bot_right" : "top_left");
  return std::string(columns ? "colwise_from_" : "rowwise_from_") + start;
}

std::vector<Traversal> traversals(int64_t count) {
  check(count == 1 || count == 2 || count == 4 || count == 8,
        "an mLSTM layer has 1, 2, 4 or 8 directions, not ", count);
  std::vector<Traversal> all;
  for (int64_t i = 0; i < count; ++i)
    all.push_back({.columns = i / 2 % 2 == 1, .mirrored = i >= 4, .reversed = i % 2 == 1});
  return all;
}

namespace {

// Suffixes of the parameters of each direction; the first four are those of the training source.
constexpr std::array<const char*, 8> kSuffixes = {"",        "_rev",        "_du",        "_ud",
                                                  "_mirror", "_mirror_rev", "_mirror_du", "_mirror_ud"};

// Returns the token at each position of the walk, without reversal: [tokens].
torch::Tensor walk_order(const TokenGrid& grid, const Traversal& direction) {
  torch::Tensor path = torch::arange(grid.rows * grid.columns, torch::kInt64).view({grid.rows, grid.columns});
  if (direction.mirrored) path = path.flip(1);
  if (direction.columns) path = path.transpose(0, 1);
  path = path.reshape({-1});
  if (grid.off_grid.empty()) return path;
  torch::Tensor on_grid = torch::ones({grid.tokens()}, torch::kBool), order = torch::arange(grid.tokens());
  for (const int64_t place : grid.off_grid) on_grid[place] = false;
  const torch::Tensor places = on_grid.nonzero().squeeze(1);
  return order.index_copy(0, places, places.index_select(0, path));
}

// "q_proj_rev.weight" -> "q_proj.weight".
std::string without_suffix(const std::string& name) {
  const size_t dot = std::min(name.find('.'), name.size());
  const std::string first = name.substr(0, dot);
  size_t longest = 0;
  for (const std::string suffix : kSuffixes)
    if (ends_with(first, suffix)) longest = std::max(longest, suffix.size());
  return first.substr(0, first.size() - longest) + name.substr(dot);
}

}  // namespace

MlstmLayerImpl::MlstmLayerImpl(const MlstmLayerOptions& options) : options_(options) {
  check(!options.directions.empty() && options.directions.size() <= kSuffixes.size(),
        "an mLSTM layer has 1 to ", kSuffixes.size(), " directions, not ", options.directions.size());
  proj_up_ = register_module("proj_up", Linear(options.width, 2 * options.inner, options.proj_bias));
  for (size_t i = 0; i < options.directions.size(); ++i) {
    if (i == 0 || !options.share_directions) {
      add_branch(options.directions[i], kSuffixes[i]);
    } else {
      branches_.push_back(branches_.front());
      branches_.back().direction = options.directions[i];
    }
  }
  proj_down_ = register_module("proj_down", Linear(options.inner, options.width, options.proj_bias));
  if (options.init_values != 0)
    gamma_ = register_module("layerscale", std::make_shared<torch::nn::Module>())
                 ->register_parameter("gamma", zeros({options.width}));
}

void MlstmLayerImpl::add_branch(const Traversal& direction, const std::string& suffix) {
  const int64_t inner = options_.inner;
  const auto projection = [&](const char* name) {
    return register_module(name + suffix, HeadwiseLinear(inner, options_.block, options_.proj_bias));
  };
  Branch branch{.direction = direction};
  branch.q = projection("q_proj");
  branch.k = projection("k_proj");
  branch.v = projection("v_proj");
  const std::string conv = options_.conv_name;
  branch.conv = make_convolution(conv + suffix);
  if (!options_.share_conv) {
    branch.k_conv = make_convolution(conv + "_k" + suffix);
    if (options_.value_conv) branch.v_conv = make_convolution(conv + "_v" + suffix);
  }
  // In the training code, the norms of additional directions never have a bias.
  branch.cell = register_module("mlstm_cell" + suffix,
                                MlstmCell(inner, options_.heads, options_.norm_bias && suffix.empty(),
                                          options_.paper_cell ? inner : 3 * inner));
  if (options_.skip) branch.skip = register_parameter("learnable_skip" + suffix, ones({inner}));
  branches_.push_back(std::move(branch));
}

std::shared_ptr<MlstmLayerImpl::Convolution> MlstmLayerImpl::make_convolution(const std::string& name) {
  if (options_.conv == MlstmConv::none) return nullptr;
  const int64_t inner = options_.inner, kernel = options_.kernel;
  const bool causal = options_.conv == MlstmConv::causal, flat = options_.conv != MlstmConv::grid;
  check(causal || kernel % 2 == 1, "the kernel of a non-causal convolution is ", kernel, ", must be odd");
  auto conv = std::make_shared<Convolution>();
  if (causal)  // a module in a module, as published
    register_module(name, std::make_shared<torch::nn::Module>())->register_module("conv", conv);
  else
    register_module(name, conv);
  conv->weight = conv->register_parameter(
      "weight", flat ? zeros({inner, 1, kernel}) : zeros({inner, 1, kernel, kernel}));
  if (options_.conv_bias) conv->bias = conv->register_parameter("bias", zeros({inner}));
  return conv;
}

ops::MlstmMixerParameters MlstmLayerImpl::parameters_of(const Branch& branch) {
  ops::MlstmMixerParameters p;
  const auto take = [](const auto& from, torch::Tensor& weight, torch::Tensor& bias) {
    if (from) weight = from->weight, bias = from->bias;
  };
  take(branch.conv, p.conv_weight, p.conv_bias);
  take(branch.k_conv, p.k_conv_weight, p.k_conv_bias);
  take(branch.v_conv, p.v_conv_weight, p.v_conv_bias);
  take(branch.q, p.q_weight, p.q_bias);
  take(branch.k, p.k_weight, p.k_bias);
  take(branch.v, p.v_weight, p.v_bias);
  take(branch.cell->igate, p.input_weight, p.input_bias);
  take(branch.cell->fgate, p.forget_weight, p.forget_bias);
  take(branch.cell->outnorm, p.norm_weight, p.norm_bias);
  p.skip = branch.skip;
  return p;
}

namespace {

ops::MlstmMixerOptions mixer_options(const MlstmLayerOptions& layer, const Traversal& direction,
                                     const TokenGrid& grid, double norm_eps) {
  return {.heads = layer.heads,
          .rows = direction.columns ? grid.columns : grid.rows,
          .columns = direction.columns ? grid.rows : grid.columns,
          .causal = layer.conv == MlstmConv::causal,
          .reverse = direction.reversed,
          .norm_eps = norm_eps,
          .off_grid = grid.off_grid,
          .paper_cell = layer.paper_cell,
          .value_conv = layer.value_conv};
}

// Returns the parameters for the channels of some heads. The gates' weights are [all heads, inputs of these channels].
ops::MlstmMixerParameters of_channels(ops::MlstmMixerParameters p, const Share& heads,
                                      const Share& channels) {
  const int64_t inner = p.norm_weight.size(0), block = p.q_weight.size(-1);
  const auto cut = [](torch::Tensor& tensor, const Share& rows) {
    if (tensor.defined()) tensor = tensor.narrow(0, rows.first, rows.count);
  };
  for (torch::Tensor* each :
       {&p.conv_weight, &p.conv_bias, &p.k_conv_weight, &p.k_conv_bias, &p.v_conv_weight, &p.v_conv_bias,
        &p.q_bias, &p.k_bias, &p.v_bias, &p.norm_weight, &p.norm_bias, &p.skip})
    cut(*each, channels);
  for (torch::Tensor* each : {&p.q_weight, &p.k_weight, &p.v_weight})
    cut(*each, {channels.first / block, channels.count / block});
  for (torch::Tensor* each : {&p.input_weight, &p.forget_weight})
    *each = each->unflatten(1, {-1, inner}).narrow(2, channels.first, channels.count).flatten(1);
  for (torch::Tensor* each : {&p.input_bias, &p.forget_bias}) cut(*each, heads);
  return p;
}

// The implicit attention of one direction, rows and columns in the image's token order.
torch::Tensor mixing_of(const torch::Tensor& u, const ops::MlstmMixerParameters& p,
                        const ops::MlstmMixerOptions& options, const TokenGrid& grid,
                        const Traversal& direction) {
  if (!direction.columns && !direction.mirrored) return ops::mlstm_mixing(u, p, options);
  const torch::Tensor order = ops::kept_on(u.device(), walk_order(grid, direction)), back = order.argsort();
  return ops::mlstm_mixing(u.index_select(1, order), p, options).index_select(2, back).index_select(3, back);
}

}  // namespace

torch::Tensor MlstmLayerImpl::mix(const Branch& branch, const torch::Tensor& u, const TokenGrid& grid,
                                  ops::MlstmState* last) const {
  const ops::MlstmMixerParameters p = parameters_of(branch);
  ops::MlstmMixerOptions options =
      mixer_options(options_, branch.direction, grid, branch.cell->outnorm->eps());
  options.last = last;
  return walk(branch.direction, u, grid, p, options);
}

torch::Tensor MlstmLayerImpl::walk(const Traversal& direction, const torch::Tensor& u, const TokenGrid& grid,
                                   const ops::MlstmMixerParameters& p,
                                   const ops::MlstmMixerOptions& options) {
  if (!direction.columns && !direction.mirrored) return ops::mlstm_mixer(u, p, options);
  const torch::Tensor order = ops::kept_on(u.device(), walk_order(grid, direction));
  return ops::mlstm_mixer(u.index_select(1, order), p, options).index_select(1, order.argsort());
}

torch::Tensor MlstmLayerImpl::mix_share(const Branch& branch, const torch::Tensor& u, const TokenGrid& grid,
                                        const LayerDivision& division) const {
  const Share heads = division.share_of(options_.heads), channels = channels_of(heads);
  ops::MlstmMixerOptions options =
      mixer_options(options_, branch.direction, grid, branch.cell->outnorm->eps());
  options.heads = heads.count;
  options.whole_gates = [&](const torch::Tensor& terms) {
    return sum_in_division(terms, division).narrow(-1, heads.first, heads.count);
  };
  return walk(branch.direction, u, grid, of_channels(parameters_of(branch), heads, channels), options);
}

torch::Tensor MlstmLayerImpl::forward_share(const torch::Tensor& x, const TokenGrid& grid,
                                            const Epilogue& epilogue, const LayerDivision& division) const {
  const Share channels = channels_of(division.share_of(options_.heads));
  const torch::Tensor u =
      product(enter_division(x, division), rows_of(proj_up_->weight, proj_up_->bias, channels, /*groups=*/2));
  torch::Tensor sum;
  for (const Branch& branch : branches_) {
    const torch::Tensor y = mix_share(branch, u, grid, division);
    sum = sum.defined() ? sum + y : y;
  }
  return join_channels(sum, proj_down_->weight, proj_down_->bias, channels, division, epilogue);
}

torch::Tensor MlstmLayerImpl::forward(const DeferredNorm& in, const TokenGrid& grid, const Epilogue& epilogue,
                                      Taps* taps, const std::string& name) {
  const torch::Tensor& x = in.x;
  check(x.dim() == 3 && x.size(1) == grid.tokens(), "an mLSTM layer got ", x.sizes(), ", not ", grid.tokens(),
        " tokens: a grid of ", grid.rows, " x ", grid.columns, " and ", grid.off_grid.size(), " others");
  const Epilogue end = gamma_.defined() ? Epilogue{gamma_, epilogue.residual} : epilogue;
  if (const LayerDivision* const division = division_of(most_shares());
      division && !taps && !proj_up_->quantised())
    return forward_share(in, grid, end, *division);
  const torch::Tensor u = proj_up_(in);
  torch::Tensor sum;
  for (size_t i = 0; i < branches_.size(); ++i) {
    const std::string at = name + ".state" + kSuffixes[i];
    const bool wanted = taps && (taps->wants(at + ".c") || taps->wants(at + ".n") || taps->wants(at + ".m"));
    ops::MlstmState state;
    const torch::Tensor y = mix(branches_[i], u, grid, wanted ? &state : nullptr);
    if (wanted) {
      tap(taps, at + ".c", state.c);
      tap(taps, at + ".n", state.n);
      tap(taps, at + ".m", state.m);
    }
    if (const std::string mixing = name + ".mixing" + kSuffixes[i]; taps && taps->wants(mixing)) {
      const Branch& branch = branches_[i];
      tap(taps, mixing,
          mixing_of(u, parameters_of(branch),
                    mixer_options(options_, branch.direction, grid, branch.cell->outnorm->eps()), grid,
                    branch.direction));
    }
    sum = sum.defined() ? sum + y : y;
  }
  return proj_down_->forward(sum, end);
}

torch::Tensor MlstmLayerImpl::step(const DeferredNorm& x, ops::MlstmMixerState& state,
                                   const Epilogue& epilogue) {
  const Traversal& direction = branches_.front().direction;
  check(branches_.size() == 1 && !direction.columns && !direction.mirrored && !direction.reversed,
        "an mLSTM layer steps in one direction, along rows from the top left");
  const torch::Tensor u = proj_up_(x);
  const torch::Tensor y = ops::mlstm_mixer_step(u, parameters_of(branches_.front()),
                                                {.heads = options_.heads,
                                                 .causal = options_.conv == MlstmConv::causal,
                                                 .norm_eps = branches_.front().cell->outnorm->eps(),
                                                 .paper_cell = options_.paper_cell,
                                                 .value_conv = options_.value_conv},
                                                state);
  return proj_down_->forward(y, gamma_.defined() ? Epilogue{gamma_, epilogue.residual} : epilogue);
}

int64_t MlstmLayerImpl::macs_per_token() const {
  int64_t total = proj_up_->macs() + proj_down_->macs();
  for (const Branch& branch : branches_) {
    total += 3 * branch.q->weight.numel() + 2 * branch.cell->igate->macs();
    for (const auto& conv : {branch.conv, branch.k_conv, branch.v_conv})
      if (conv) total += conv->weight.numel();
  }
  return total;
}

bool initialise_mlstm_layer(const std::string& name_in, const Filler& fill,
                            const MlstmLayerOptions& options) {
  const std::string name = without_suffix(name_in);
  const auto width = static_cast<double>(options.width);
  if (name == "proj_up.weight" || name == "q_proj.weight" || name == "k_proj.weight" ||
      name == "v_proj.weight") {
    fill.normal(std::sqrt(2 / (5 * width)));  // Nguyen & Salazar 2019
  } else if (name == "proj_down.weight") {
    fill.normal(2 / std::sqrt(width));  // the formula of Wang & Komatsuzaki 2021, with one block
  } else if (name == "layerscale.gamma") {
    fill.constant(options.init_values);
  } else if (name.starts_with(options.conv_name + ".") || name.starts_with(options.conv_name + "_")) {
    fill.fan_in_uniform(options.conv == MlstmConv::grid ? options.kernel * options.kernel : options.kernel);
  } else if (name == "mlstm_cell.fgate.bias") {
    fill.linspace(3, 6);
  } else if (name == "mlstm_cell.igate.bias") {
    fill.normal(0.1);
  } else {
    return false;
  }
  return true;
}

}  // namespace tessera::nn
