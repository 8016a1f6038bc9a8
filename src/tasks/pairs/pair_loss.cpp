#include "tasks/pairs/pair_loss.h"

#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <vector>

#include "core/error.h"
#include "tasks/base/task.h"

namespace tessera::tasks {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// bfloat16 is too coarse for the sums.
using NoAutocast = c10::impl::ExcludeDispatchKeyGuard;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Shared by all chunks.
struct Pairs {
  torch::Tensor queries, scale, bias, own, query_groups, key_groups;  // bias of no elements: softmax
  EqualPairs equal = EqualPairs::negatives;
  int64_t chunk = 128;
  Collective* others = nullptr;
  std::vector<int64_t> counts;  // keys of each process

  bool sigmoid() const { return bias.numel() > 0; }
  bool tokens() const { return queries.dim() == 3; }
};

// The keys of one process.
struct Block {
  torch::Tensor keys, groups;
  int64_t from = 0;  // its rank
};

// Some rows of the matrix of pairs, restricted to the keys of a block.
struct Rows {
  torch::Tensor queries;
  torch::Tensor products;  // q . k, or the similarity of their tokens
  torch::Tensor logits;    // scores with scale and bias; -inf where a pair is ignored
  torch::Tensor together;  // 1 for positive pairs
  torch::Tensor ignored;   // bool, or undefined
};

Rows rows_of(const Pairs& pairs, const Block& block, int64_t first, int64_t last) {
  Rows rows;
  rows.queries = pairs.queries.slice(0, first, last);
  rows.products =
      pairs.tokens() ? late_similarities(rows.queries, block.keys) : rows.queries.mm(block.keys.t());
  rows.logits = rows.products * pairs.scale;
  if (pairs.sigmoid()) rows.logits = rows.logits + pairs.bias;
  rows.together = torch::zeros_like(rows.products);
  if (block.from == pairs.others->rank())
    rows.together.scatter_(1, pairs.own.slice(0, first, last).unsqueeze(1), 1);
  if (pairs.equal == EqualPairs::negatives) return rows;
  const torch::Tensor equal =
      pairs.query_groups.slice(0, first, last).unsqueeze(1).eq(block.groups.unsqueeze(0));
  if (pairs.equal == EqualPairs::ignored) {
    rows.ignored = equal.logical_and(rows.together.eq(0));
    rows.logits = rows.logits.masked_fill(rows.ignored, -kInfinity);
    return rows;
  }
  rows.together = equal.logical_or(rows.together.ne(0)).to(rows.products.scalar_type());
  return rows;
}

// z (s q . k + b); infinity for ignored pairs, so their loss and slope are 0.
torch::Tensor signed_logits(const Rows& rows) {
  const torch::Tensor values = torch::where(rows.together.ne(0), rows.logits, -rows.logits);
  return rows.ignored.defined() ? values.masked_fill(rows.ignored, kInfinity) : values;
}

// 0 instead of -inf for ignored pairs, because 0 * -inf is NaN.
torch::Tensor finite_logits(const Rows& rows) {
  return rows.ignored.defined() ? rows.logits.masked_fill(rows.ignored, 0) : rows.logits;
}

template <class Each>
void each_chunk(const Pairs& pairs, const Block& block, const Each& each) {
  const int64_t count = pairs.queries.size(0);
  if (block.keys.size(0) == 0) return;
  const int64_t chunk =
      pairs.tokens() ? std::min(pairs.chunk, late_queries_at_once(pairs.queries, block.keys)) : pairs.chunk;
  for (int64_t first = 0; first < count; first += chunk) {
    const int64_t last = std::min(count, first + chunk);
    each(first, last, rows_of(pairs, block, first, last));
  }
}

// Returns the number of keys of the process before `rank` in the ring.
int64_t count_before(const Pairs& pairs, int64_t rank) {
  const auto size = std::ssize(pairs.counts);
  return pairs.counts[static_cast<size_t>((rank + size - 1) % size)];
}

// Calls `each` with the keys of every process: first its own, then those of the previous process, and so on.
// Receives the next block while `each` computes.
template <class Each>
void each_block(const Pairs& pairs, const Block& own, const Each& each) {
  const int64_t size = pairs.others->size();
  Block block = own;
  for (int64_t step = 0; step < size; ++step) {
    std::function<torch::Tensor()> keys, groups;
    if (step + 1 < size) {
      const int64_t count = count_before(pairs, block.from);
      keys = pairs.others->pass_on(block.keys, count);
      if (block.groups.defined()) groups = pairs.others->pass_on(block.groups, count);
    }
    each(block);
    if (keys) block = {keys(), groups ? groups() : torch::Tensor(), (block.from + size - 1) % size};
  }
}

// Returns the number of keys of each process.
std::vector<int64_t> counts_of_all(Collective& others, int64_t own) {
  const torch::Tensor counts = torch::zeros({others.size()}, torch::kInt64);
  counts[others.rank()] = own;
  const torch::Tensor all = others.sum(counts);
  return {all.const_data_ptr<int64_t>(), all.const_data_ptr<int64_t>() + all.numel()};
}

// Results per query after all blocks, [queries] each.
struct Collected {
  torch::Tensor normaliser;  // logsumexp over the keys
  torch::Tensor agreement;   // sum of the logits of its positive keys
  torch::Tensor belonging;   // their number
  torch::Tensor own;         // logit of the query's own key
  torch::Tensor right;       // bool: no earlier key is better or equal, and no later key is better

  explicit Collected(const torch::Tensor& queries) {
    const int64_t count = queries.size(0);
    normaliser = torch::full({count}, -kInfinity, queries.options());
    agreement = torch::zeros({count}, queries.options()), belonging = torch::zeros_like(agreement);
    own = torch::zeros_like(agreement);
    right = torch::ones({count}, queries.options().dtype(torch::kBool));
  }
  void add(const Pairs& pairs, const Block& block, int64_t first, int64_t last, const Rows& rows) {
    const auto part = [&](const torch::Tensor& all) { return all.slice(0, first, last); };
    if (!pairs.sigmoid()) {
      part(normaliser).copy_(torch::logaddexp(part(normaliser), rows.logits.logsumexp(1)));
      part(agreement).add_((finite_logits(rows) * rows.together).sum(1));
      part(belonging).add_(rows.together.sum(1));
    }
    const torch::Tensor mine = part(pairs.own);
    const int64_t rank = pairs.others->rank();
    if (block.from == rank) {
      part(own).copy_(rows.logits.gather(1, mine.unsqueeze(1)).squeeze(1));
      part(right).logical_and_(rows.logits.argmax(1).eq(mine));
    } else {
      const torch::Tensor best = rows.logits.amax(1);
      part(right).logical_and_(block.from < rank ? best.lt(part(own)) : best.le(part(own)));
    }
  }
};

struct AllPairs : public torch::autograd::Function<AllPairs> {
  static variable_list forward(AutogradContext* ctx, const torch::Tensor& queries, const torch::Tensor& keys,
                               const torch::Tensor& scale, const torch::Tensor& bias, const Pairs& plan) {
    const NoAutocast no_autocast(c10::autocast_dispatch_keyset);
    Pairs pairs = plan;
    pairs.queries = queries, pairs.scale = scale, pairs.bias = bias;
    torch::Tensor sum = torch::zeros({}, queries.options());
    Collected collected(queries);
    each_block(pairs, {keys, pairs.key_groups, pairs.others->rank()}, [&](const Block& block) {
      each_chunk(pairs, block, [&](int64_t first, int64_t last, const Rows& rows) {
        collected.add(pairs, block, first, last, rows);
        if (pairs.sigmoid()) sum -= torch::log_sigmoid(signed_logits(rows)).sum();
      });
    });
    if (!pairs.sigmoid()) sum = (collected.normaliser - collected.agreement / collected.belonging).sum();
    ctx->save_for_backward({queries, keys, scale, bias, pairs.own, pairs.query_groups, pairs.key_groups,
                            collected.normaliser, collected.belonging});
    ctx->saved_data["equal"] = static_cast<int64_t>(pairs.equal);
    ctx->saved_data["chunk"] = pairs.chunk;
    ctx->saved_data["others"] = reinterpret_cast<int64_t>(pairs.others);
    ctx->saved_data["counts"] = pairs.counts;
    torch::Tensor right = collected.right.sum().to(queries.scalar_type());
    ctx->mark_non_differentiable({right});
    return {sum, right};
  }

  static variable_list backward(AutogradContext* ctx, variable_list gradients) {
    const NoAutocast no_autocast(c10::autocast_dispatch_keyset);
    const auto saved = ctx->get_saved_variables();
    const Pairs pairs{saved[0],
                      saved[2],
                      saved[3],
                      saved[4],
                      saved[5],
                      saved[6],
                      static_cast<EqualPairs>(ctx->saved_data["equal"].toInt()),
                      ctx->saved_data["chunk"].toInt(),
                      reinterpret_cast<Collective*>(ctx->saved_data["others"].toInt()),
                      ctx->saved_data["counts"].toIntVector()};
    const torch::Tensor &keys = saved[1], &normaliser = saved[7], &belonging = saved[8];
    const torch::Tensor& factor = gradients[0];
    const bool learns_keys = ctx->needs_input_grad(1), alone = pairs.others->size() == 1;
    torch::Tensor by_query = torch::zeros_like(pairs.queries), by_scale = torch::zeros_like(factor),
                  by_bias = torch::zeros_like(factor), by_key;
    // The previous processes' part of a block's gradient arrives after the block itself.
    std::function<torch::Tensor()> coming;
    each_block(pairs, {keys, pairs.key_groups, pairs.others->rank()}, [&](const Block& block) {
      by_key = torch::zeros_like(block.keys);
      each_chunk(pairs, block, [&](int64_t first, int64_t last, const Rows& rows) {
        torch::Tensor slope;  // d(sum) / d(logits)
        if (pairs.sigmoid()) {
          const torch::Tensor wrong = torch::sigmoid(-signed_logits(rows));
          slope = torch::where(rows.together.ne(0), -wrong, wrong);
        } else {
          const auto part = [&](const torch::Tensor& all) { return all.slice(0, first, last).unsqueeze(1); };
          slope = (rows.logits - part(normaliser)).exp() - rows.together / part(belonging);
        }
        slope = slope * factor;
        by_scale += (slope * rows.products).sum();
        if (pairs.sigmoid()) by_bias += slope.sum();
        slope = slope * pairs.scale;
        torch::Tensor of_queries = by_query.slice(0, first, last);
        if (pairs.tokens()) {
          add_late_gradients(slope, rows.queries, block.keys, of_queries, by_key);
        } else {
          of_queries.addmm_(slope, block.keys);
          if (learns_keys) by_key.addmm_(slope.t(), rows.queries);
        }
      });
      if (!learns_keys || alone) return;
      if (coming) by_key += coming();
      coming = pairs.others->pass_on(by_key, count_before(pairs, block.from));
    });
    if (coming) by_key = coming();  // after a full round
    return {by_query, learns_keys ? by_key : torch::Tensor(), by_scale.view_as(pairs.scale),
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
  plan.others = options.others ? options.others : &Collective::alone();
  plan.counts = counts_of_all(*plan.others, keys.size(0));
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
