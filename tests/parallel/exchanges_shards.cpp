// ZeRO's exchanges against their definition: means of gradients by rows, and bytes by formula.
#include <torch/torch.h>

#include <iostream>

#include "core/random.h"
#include "core/text.h"
#include "parallel/shards.h"
#include "tests/parallel/exchanges.h"

namespace tessera::parallel {
namespace {

using torch::Tensor;

constexpr int64_t kSteps = 2, kPieces = 3;
constexpr size_t kUnused = 4, kUnusedInOdd = 3;  // tensors without a gradient: in all processes, in odd ones

NamedTensors make_tensors() {
  const std::vector<std::vector<int64_t>> shapes = {{7, 3}, {2}, {}, {5, 4, 2}, {9, 2}, {1, 6}, {64, 5}};
  NamedTensors tensors;
  for (size_t i = 0; i < shapes.size(); ++i)
    tensors.emplace_back(text("t", i), torch::zeros(shapes[i], torch::kFloat64).requires_grad_());
  return tensors;
}

Tensor factor(int rank, int64_t step, int64_t piece, size_t i, const Tensor& like) {
  RandomStream random(static_cast<uint64_t>(rank), text("factor ", step, " ", piece), i);
  Tensor out = torch::empty(like.sizes(), torch::kFloat64);
  for (int64_t k = 0; k < out.numel(); ++k) out.mutable_data_ptr<double>()[k] = random.uniform() - 0.5;
  return out;
}

bool is_used(int rank, size_t i) { return i != kUnused && !(i == kUnusedInOdd && rank % 2 == 1); }

void backward(Shards& shards, const NamedTensors& tensors, int rank, int64_t step, int64_t piece) {
  Tensor loss = torch::zeros({}, torch::kFloat64);
  for (size_t i = 0; i < tensors.size(); ++i)
    if (is_used(rank, i))
      loss = loss + (tensors[i].second * factor(rank, step, piece, i, tensors[i].second)).sum();
  shards.begin(piece + 1 == kPieces);
  loss.backward();
  shards.end();
}

bool has_means(const Shards& shards, const NamedTensors& tensors, int64_t step, int size) {
  bool right = true;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto& [name, whole] = tensors[i];
    const Tensor& found = shards.parts()[i].second.grad();
    right = right && found.defined() == (i != kUnused) && !whole.grad().defined();
    if (!found.defined()) continue;
    Tensor mean = torch::zeros_like(whole);
    for (int rank = 0; rank < size; ++rank)
      for (int64_t piece = 0; piece < kPieces && is_used(rank, i); ++piece)
        mean = mean + factor(rank, step, piece, i, whole) / size;
    right = right && torch::allclose(found, shards.layout().cut(name, mean), 0, 1e-14);
  }
  return right;
}

int64_t bytes_of(const NamedTensors& tensors) {
  int64_t bytes = 0;
  for (const auto& one : tensors) bytes += static_cast<int64_t>(one.second.nbytes());
  return bytes;
}

bool is_counted(const World& world, const char* kind, int64_t want) {
  int64_t bytes = 0;
  for (const Traffic& traffic : world.traffic())
    if (traffic.kind == kind && traffic.axis == "shard") bytes += traffic.bytes;
  if (bytes != want) std::cerr << text(kind, ": ", bytes, " bytes, must be ", want, "\n");
  return bytes == want;
}

}  // namespace

bool check_shards(World& world, int64_t stage, int64_t shard) {
  ParallelConfig config;
  config.shard = shard, config.zero = stage;
  world.lay_out(config);
  const Axis& axis = world.axis(AxisName::shard);
  const NamedTensors tensors = make_tensors();
  Shards shards(world, Layout(tensors, axis, [](const std::string& name) { return name == "t0"; }), tensors,
                stage);
  bool right = true;
  for (int64_t step = 0; step < kSteps; ++step) {
    for (int64_t piece = 0; piece < kPieces; ++piece) backward(shards, tensors, world.rank(), step, piece);
    right = has_means(shards, tensors, step, world.size()) && right;
  }
  const int64_t others = bytes_of(tensors) - bytes_of(shards.parts());
  right = is_counted(world, kScatter, others * kSteps * (stage >= 2 ? kPieces : 1)) && right;

  // Each process writes its rows, and all have the same afterwards.
  double square = 0;
  {
    const torch::NoGradGuard no_grad;
    for (const auto& one : shards.parts()) {
      Tensor part = one.second;
      part.fill_(axis.rank() + 1);
      square += part.square().sum().item<double>();
    }
  }
  shards.updated();
  right = is_counted(world, kGather, others) && right;
  double all = 0;
  for (const auto& [name, whole] : tensors)
    for (int rank = 0; rank < axis.size(); ++rank) {
      const Tensor rows = shards.layout().cut(name, whole, rank);
      right = right && rows.eq(rank + 1).all().item<bool>();
      all += rows.square().sum().item<double>();
    }
  right = std::abs(shards.norm_of_all(std::sqrt(square), 2) - std::sqrt(all)) < 1e-12 * all && right;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto& [name, whole] = tensors[i];
    const Tensor joined = shards.join(name, shards.parts()[i].second);
    right = right && joined.defined() == (shards.layout().owner(name) == axis.rank());
    right = right && (!joined.defined() || torch::equal(joined, whole.detach()));
  }
  return right;
}

}  // namespace tessera::parallel
