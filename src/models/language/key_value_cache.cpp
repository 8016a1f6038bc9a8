#include "models/language/key_value_cache.h"

#include <algorithm>

#include "core/error.h"

namespace tessera::models {
namespace {

constexpr int64_t kRoom = 64;  // minimum number of spare tokens when the cache grows

// Returns memory for at least `needed` tokens of the shape and dtype of `like`, with the first `length` of `kept`.
torch::Tensor larger(const torch::Tensor& kept, int64_t length, int64_t needed, const torch::Tensor& like) {
  torch::Tensor out = torch::empty(
      {like.size(0), like.size(1), std::max(needed + kRoom, 2 * length), like.size(3)}, like.options());
  if (kept.defined()) out.slice(2, 0, length).copy_(kept.slice(2, 0, length));
  return out;
}

}  // namespace

std::array<torch::Tensor, 2> KeyValueCache::extended(int64_t block, const torch::Tensor& like) {
  const auto place = static_cast<size_t>(block);
  const int64_t needed = length + like.size(2);
  std::array<torch::Tensor, 2> out;
  for (size_t i = 0; i < 2; ++i) {
    std::vector<torch::Tensor>& list = i == 0 ? keys : values;
    if (list.size() <= place) list.resize(place + 1);
    torch::Tensor& kept = list[place];
    if (!kept.defined() || kept.size(2) < needed) kept = larger(kept, length, needed, like);
    out[i] = kept.slice(2, 0, needed);
  }
  return out;
}

std::array<torch::Tensor, 2> KeyValueCache::whole(int64_t block) const {
  const auto place = static_cast<size_t>(block);
  check(place < keys.size() && length < keys[place].size(2), "the cache of block ", block, " is full");
  return {keys[place], values[place]};
}

int64_t KeyValueCache::room() const {
  int64_t least = keys.empty() ? 0 : keys[0].size(2);
  for (const torch::Tensor& tensor : keys) least = std::min(least, tensor.size(2));
  return least;
}

bool KeyValueCache::make_room(int64_t tokens) {
  if (room() >= length + tokens) return false;
  for (auto* list : {&keys, &values})
    for (torch::Tensor& tensor : *list) tensor = larger(tensor, length, length + tokens, tensor);
  return true;
}

void KeyValueCache::select(const torch::Tensor& rows) {
  for (auto* list : {&keys, &values})
    for (torch::Tensor& tensor : *list)
      if (tensor.defined()) tensor = tensor.index_select(0, rows);
}

void StepPlace::select(const torch::Tensor& rows) {
  for (torch::Tensor* tensor : {&seen, &padding})
    if (tensor->defined()) *tensor = tensor->index_select(0, rows);
}

}  // namespace tessera::models
