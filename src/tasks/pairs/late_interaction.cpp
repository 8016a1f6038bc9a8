#include "tasks/pairs/pair_loss.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "core/error.h"

namespace tessera::tasks {
namespace {

constexpr int64_t kMostProducts = int64_t{1} << 22;  // token products at a time

// bool [rows, tokens]: True for tokens that are not padding.
torch::Tensor seen_of(const torch::Tensor& rows) { return rows.ne(0).any(-1); }

// Maximal token products of all queries with some keys.
struct Block {
  int64_t first = 0, last = 0;  // keys
  torch::Tensor best, index;    // [queries, tokens, keys]: the largest product, and the key's token in it
};

// Calls `each` with every block of keys. Padding is never the maximum unless a key is all padding.
template <class Each>
void each_block(const torch::Tensor& queries, const torch::Tensor& keys, const Each& each) {
  const int64_t count = queries.size(0), tokens = queries.size(1), key_tokens = keys.size(1);
  const int64_t at_once =
      std::max<int64_t>(1, kMostProducts / std::max<int64_t>(1, count * tokens * key_tokens));
  const torch::Tensor flat = queries.flatten(0, 1);
  for (int64_t first = 0; first < keys.size(0); first += at_once) {
    const int64_t last = std::min(keys.size(0), first + at_once);
    const torch::Tensor some = keys.slice(0, first, last), seen = seen_of(some);
    const torch::Tensor hidden = (~seen).logical_and(seen.any(1, true)).flatten();
    torch::Tensor products = flat.mm(some.flatten(0, 1).t());
    products.masked_fill_(hidden.unsqueeze(0), -std::numeric_limits<double>::infinity());
    const auto [best, index] = products.view({count, tokens, last - first, key_tokens}).max(-1);
    each(Block{first, last, best, index});
  }
}

// Weights of a query's tokens: 1 / their number, and 0 for padding. [queries, tokens, 1].
torch::Tensor shares_of(const torch::Tensor& queries) {
  const torch::Tensor seen = seen_of(queries).to(queries.scalar_type());
  return (seen / seen.sum(1, true).clamp_min(1)).unsqueeze(2);
}

}  // namespace

torch::Tensor late_similarities(const torch::Tensor& queries, const torch::Tensor& keys) {
  check(queries.dim() == 3 && keys.dim() == 3 && queries.size(2) == keys.size(2), "tokens of queries ",
        queries.sizes(), " and keys ", keys.sizes(), ", both must be [rows, tokens, width] of one width");
  const torch::NoGradGuard no_grad;
  const torch::Tensor shares = shares_of(queries);
  std::vector<torch::Tensor> parts;
  each_block(queries, keys, [&](const Block& block) { parts.push_back((block.best * shares).sum(1)); });
  return parts.empty() ? torch::zeros({queries.size(0), 0}, queries.options()) : torch::cat(parts, 1);
}

void add_late_gradients(const torch::Tensor& slope, const torch::Tensor& queries, const torch::Tensor& keys,
                        torch::Tensor& by_query, torch::Tensor& by_key) {
  const torch::NoGradGuard no_grad;
  const int64_t count = queries.size(0), tokens = queries.size(1), key_tokens = keys.size(1);
  const torch::Tensor shares = shares_of(queries), flat = queries.flatten(0, 1);
  each_block(queries, keys, [&](const Block& block) {
    const torch::Tensor weights = slope.slice(1, block.first, block.last).unsqueeze(1) * shares;
    const torch::Tensor by_product =
        torch::zeros({count, tokens, block.last - block.first, key_tokens}, queries.options())
            .scatter_(-1, block.index.unsqueeze(-1), weights.unsqueeze(-1))
            .view({count * tokens, (block.last - block.first) * key_tokens});
    const torch::Tensor some = keys.slice(0, block.first, block.last);
    by_query.add_(by_product.mm(some.flatten(0, 1)).view_as(queries));
    by_key.slice(0, block.first, block.last).add_(by_product.t().mm(flat).view_as(some));
  });
}

int64_t late_queries_at_once(const torch::Tensor& queries, const torch::Tensor& keys) {
  return std::max<int64_t>(1, kMostProducts / std::max<int64_t>(1, queries.size(1) * keys.size(1)));
}

}  // namespace tessera::tasks
