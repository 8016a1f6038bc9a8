#include "tasks/pair_loss.h"

#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <limits>

#include "core/error.h"
#include "tasks/late_interaction.h"

namespace tessera::tasks {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The sums would be too coarse in bfloat16.
using NoAutocast = c10::impl::ExcludeDispatchKeyGuard;

// What every chunk needs to know.
struct Pairs {
  torch::Tensor queries, keys, scale, bias, own, query_groups, key_groups;  // bias of no elements: softmax
  EqualPairs equal = EqualPairs::negatives;
  int64_t chunk = 128;

  bool sigmoid() const { return bias.numel() > 0; }
  bool tokens() const { return queries.dim() == 3; }
};

// Some rows of the matrix of pairs.
struct Rows {
  torch::Tensor queries;
  torch::Tensor products;  // q . k, or the similarity of their tokens
  torch::Tensor logits;    // with scale and bias; -inf where a pair is ignored
  torch::Tensor together;  // 1 for pairs that belong together, of softmax a distribution over the keys
  torch::Tensor ignored;   // bool, or undefined
};

Rows rows_of(const Pairs& pairs, int64_t first, int64_t last) {
  Rows rows;
  rows.queries = pairs.queries.slice(0, first, last);
  rows.products =
      pairs.tokens() ? late_similarities(rows.queries, pairs.keys) : rows.queries.mm(pairs.keys.t());
  rows.logits = rows.products * pairs.scale;
  if (pairs.sigmoid()) rows.logits = rows.logits + pairs.bias;
  const torch::Tensor own = pairs.own.slice(0, first, last).unsqueeze(1);
  rows.together = torch::zeros_like(rows.products).scatter_(1, own, 1);
  if (pairs.equal == EqualPairs::negatives) return rows;
  const torch::Tensor equal =
      pairs.query_groups.slice(0, first, last).unsqueeze(1).eq(pairs.key_groups.unsqueeze(0));
  if (pairs.equal == EqualPairs::ignored) {
    rows.ignored = equal.logical_and(rows.together.eq(0));
    rows.logits = rows.logits.masked_fill(rows.ignored, -std::numeric_limits<double>::infinity());
    return rows;
  }
  rows.together = equal.logical_or(rows.together.ne(0)).to(rows.products.scalar_type());
  if (!pairs.sigmoid()) rows.together = rows.together / rows.together.sum(1, true);
  return rows;
}

// z (s q . k + b); of pairs that are ignored infinity, whose loss and slope are 0.
torch::Tensor signed_logits(const Rows& rows) {
  const torch::Tensor values = torch::where(rows.together.ne(0), rows.logits, -rows.logits);
  return rows.ignored.defined() ? values.masked_fill(rows.ignored, std::numeric_limits<double>::infinity())
                                : values;
}

// Of pairs that are ignored 0 instead of -inf: their products must not meet a weight of 0.
torch::Tensor finite_logits(const Rows& rows) {
  return rows.ignored.defined() ? rows.logits.masked_fill(rows.ignored, 0) : rows.logits;
}

template <class Each>
void each_chunk(const Pairs& pairs, const Each& each) {
  const int64_t count = pairs.queries.size(0);
  const int64_t chunk =
      pairs.tokens() ? std::min(pairs.chunk, late_queries_at_once(pairs.queries, pairs.keys)) : pairs.chunk;
  for (int64_t first = 0; first < count; first += chunk) {
    const int64_t last = std::min(count, first + chunk);
    each(first, last, rows_of(pairs, first, last));
  }
}

struct AllPairs : public torch::autograd::Function<AllPairs> {
  static variable_list forward(AutogradContext* ctx, const torch::Tensor& queries, const torch::Tensor& keys,
                               const torch::Tensor& scale, const torch::Tensor& bias, const Pairs& plan) {
    const NoAutocast no_autocast(c10::autocast_dispatch_keyset);
    Pairs pairs = plan;
    pairs.queries = queries, pairs.keys = keys, pairs.scale = scale, pairs.bias = bias;
    torch::Tensor sum = torch::zeros({}, queries.options()), right = torch::zeros({}, queries.options());
    std::vector<torch::Tensor> normalisers;
    each_chunk(pairs, [&](int64_t first, int64_t last, const Rows& rows) {
      if (pairs.sigmoid()) {
        sum -= torch::log_sigmoid(signed_logits(rows)).sum();
      } else {
        normalisers.push_back(rows.logits.logsumexp(1));
        sum += normalisers.back().sum() - (finite_logits(rows) * rows.together).sum();
      }
      right += rows.logits.argmax(1).eq(pairs.own.slice(0, first, last)).sum();
    });
    ctx->save_for_backward({queries, keys, scale, bias, pairs.own, pairs.query_groups, pairs.key_groups,
                            normalisers.empty() ? torch::Tensor() : torch::cat(normalisers)});
    ctx->saved_data["equal"] = static_cast<int64_t>(pairs.equal);
    ctx->saved_data["chunk"] = pairs.chunk;
    ctx->mark_non_differentiable({right});
    return {sum, right};
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const NoAutocast no_autocast(c10::autocast_dispatch_keyset);
    const auto saved = ctx->get_saved_variables();
    const Pairs pairs{saved[0],
                      saved[1],
                      saved[2],
                      saved[3],
                      saved[4],
                      saved[5],
                      saved[6],
                      static_cast<EqualPairs>(ctx->saved_data["equal"].toInt()),
                      ctx->saved_data["chunk"].toInt()};
    const torch::Tensor& factor = gradients[0];
    std::vector<torch::Tensor> by_query;
    torch::Tensor by_key = torch::zeros_like(pairs.keys), by_scale = torch::zeros_like(factor),
                  by_bias = torch::zeros_like(factor);
    each_chunk(pairs, [&](int64_t first, int64_t last, const Rows& rows) {
      torch::Tensor slope;  // of the sum by the logits
      if (pairs.sigmoid()) {
        const torch::Tensor wrong = torch::sigmoid(-signed_logits(rows));
        slope = torch::where(rows.together.ne(0), -wrong, wrong);
      } else {
        slope = (rows.logits - saved[7].slice(0, first, last).unsqueeze(1)).exp() - rows.together;
      }
      slope = slope * factor;
      by_scale += (slope * rows.products).sum();
      if (pairs.sigmoid()) by_bias += slope.sum();
      slope = slope * pairs.scale;
      if (pairs.tokens()) {
        by_query.push_back(torch::zeros_like(rows.queries));
        add_late_gradients(slope, rows.queries, pairs.keys, by_query.back(), by_key);
      } else {
        by_query.push_back(slope.mm(pairs.keys));
        by_key.addmm_(slope.t(), rows.queries);
      }
    });
    return {torch::cat(by_query), by_key, by_scale.view_as(pairs.scale),
            pairs.sigmoid() ? by_bias.view_as(pairs.bias) : torch::Tensor(), torch::Tensor()};
  }
};

PairLoss all_pairs(const torch::Tensor& queries, const torch::Tensor& keys, const torch::Tensor& scale,
                   const torch::Tensor& bias, const torch::Tensor& own, const PairOptions& options) {
  check((queries.dim() == 2 || queries.dim() == 3) && keys.dim() == queries.dim() &&
            queries.size(-1) == keys.size(-1),
        "pairs of queries ", queries.sizes(), " and keys ", keys.sizes(),
        ", both must be [rows, width], or [rows, tokens, width], of one width");
  check(own.dim() == 1 && own.size(0) == queries.size(0), "the keys that belong to ", queries.size(0),
        " queries are given as ", own.sizes());
  check(options.chunk > 0, "pairs in chunks of ", options.chunk, " rows, must be at least 1");
  const bool grouped = options.equal != EqualPairs::negatives;
  check(!grouped ||
            (options.query_groups.defined() && options.key_groups.defined() &&
             options.query_groups.size(0) == queries.size(0) && options.key_groups.size(0) == keys.size(0)),
        "equal pairs need a group for each of ", queries.size(0), " queries and ", keys.size(0), " keys");
  Pairs plan;
  plan.own = own;
  if (grouped) plan.query_groups = options.query_groups, plan.key_groups = options.key_groups;
  plan.equal = options.equal, plan.chunk = options.chunk;
  const torch::ScalarType type = queries.scalar_type() == torch::kFloat64 ? torch::kFloat64 : torch::kFloat32;
  const auto raised = [&](const torch::Tensor& x) { return x.to(type); };
  const torch::Tensor no_bias = torch::zeros({0}, queries.options().dtype(type).requires_grad(false));
  const variable_list out = AllPairs::apply(raised(queries), raised(keys), raised(scale),
                                            bias.defined() ? raised(bias) : no_bias, plan);
  return {out[0], out[1]};
}

}  // namespace

PairLoss softmax_pairs(const torch::Tensor& queries, const torch::Tensor& keys, const torch::Tensor& scale,
                       const torch::Tensor& own, const PairOptions& options) {
  return all_pairs(queries, keys, scale, {}, own, options);
}

PairLoss sigmoid_pairs(const torch::Tensor& queries, const torch::Tensor& keys, const torch::Tensor& scale,
                       const torch::Tensor& bias, const torch::Tensor& own, const PairOptions& options) {
  check(bias.defined(), "the sigmoid loss needs a bias");
  return all_pairs(queries, keys, scale, bias, own, options);
}

}  // namespace tessera::tasks
