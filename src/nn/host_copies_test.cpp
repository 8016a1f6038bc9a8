// Counts what layers exchange with a GPU in a pass: on the meta device, which has no memory, so that LibTorch's
// dispatcher shows every copy from the host, and every read-back is an error. LibTorch's C++ has no norms and
// convolutions there, so whole models cannot run.
#include <ATen/record_function.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "core/error.h"
#include "nn/rope.h"

namespace tessera::nn {
namespace {

// The operations between devices on this thread during its lifetime, by name.
class ExchangeCounter {
 public:
  ExchangeCounter() : outer_(active_) {
    active_ = &counts_;
    handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(&ExchangeCounter::see).needsInputs(true));
  }
  ~ExchangeCounter() {
    at::removeCallback(handle_);
    active_ = outer_;
  }
  ExchangeCounter(const ExchangeCounter&) = delete;
  ExchangeCounter& operator=(const ExchangeCounter&) = delete;
  const std::map<std::string, int64_t>& counts() const { return counts_; }

 private:
  static std::unique_ptr<at::ObserverContext> see(const at::RecordFunction& function) {
    const std::string name = function.name();
    const auto inputs = function.inputs();
    if (name == "aten::copy_" && inputs.size() >= 2 && inputs[0].isTensor() && inputs[1].isTensor()) {
      const torch::Tensor &to = inputs[0].toTensor(), &from = inputs[1].toTensor();
      if (to.device() != from.device())
        ++(*active_)[text("copy of ", from.sizes(), " from ", from.device(), " to ", to.device())];
    }
    if (name == "aten::_local_scalar_dense") ++(*active_)["read-back"];
    return nullptr;
  }
  static thread_local std::map<std::string, int64_t>* active_;
  std::map<std::string, int64_t> counts_, *outer_;
  at::CallbackHandle handle_ = 0;
};
thread_local std::map<std::string, int64_t>* ExchangeCounter::active_ = nullptr;

std::string described(const std::map<std::string, int64_t>& counts) {
  std::string out;
  for (const auto& [what, times] : counts) out += text(times, " x ", what, "; ");
  return out;
}

int64_t exchanges(const ExchangeCounter& counter) {
  int64_t total = 0;
  for (const auto& [what, times] : counter.counts()) total += times;
  return total;
}

// Tables of the first pass are kept, although a model makes the angles anew in each.
TEST(HostCopies, RotationsCopyTheirTablesOnce) {
  const torch::Tensor q = torch::empty({2, 2, 9, 16}, torch::kMeta);
  const auto pass = [&] {
    const GridPositions at = grid_positions(0, 9, 3);
    const Rotation rotation = rotation_2d(at.x, at.y, 16);
    for (int block = 0; block < 3; ++block) rotate(q, rotation), rotate(q, rotation);  // queries and keys
  };
  {
    const ExchangeCounter first;
    pass();
    EXPECT_EQ(exchanges(first), 2) << described(first.counts());  // cos and sin, for all blocks
  }
  const ExchangeCounter second;
  pass();
  EXPECT_EQ(exchanges(second), 0) << described(second.counts());
}

TEST(HostCopies, RotationOfEachTypeIsKept) {
  const Rotation rotation = rotation_1d(torch::arange(5, torch::kFloat64), 8, 500);
  const auto tables = [&](torch::ScalarType type) {
    return rotation_tables(rotation,
                           torch::empty({1, 1, 5, 8}, torch::TensorOptions(torch::kMeta).dtype(type)));
  };
  EXPECT_EQ(tables(torch::kFloat64).cos.scalar_type(), torch::kFloat64);
  EXPECT_EQ(tables(torch::kBFloat16).cos.scalar_type(), torch::kFloat32);
  const ExchangeCounter again;
  tables(torch::kFloat64), tables(torch::kFloat32);
  EXPECT_EQ(exchanges(again), 0) << described(again.counts());
}

TEST(ExchangeCounter, SeesCopiesAndReadBacks) {
  const ExchangeCounter counter;
  torch::ones({3}).to(torch::kMeta);
  torch::ones({3}).sum().item<float>();
  EXPECT_EQ(exchanges(counter), 2) << described(counter.counts());
}

}  // namespace
}  // namespace tessera::nn
