#include "cli/bench/bench_limit.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/cuda.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/error.h"
#include "core/progress.h"
#include "core/text.h"
#include "ops/torch.h"

namespace tessera::cli {
namespace {

// Calls an operation of LibTorch that has no C++ declaration, by its name, with a stack of arguments.
torch::Tensor call(const char* name, std::vector<c10::IValue> arguments) {
  const auto operation = c10::Dispatcher::singleton().findSchema({name, ""});
  check(operation.has_value(), "this LibTorch has no operation ", name);
  torch::jit::Stack stack(std::move(arguments));
  operation->callBoxed(&stack);
  return stack.at(0).toTensor();
}

c10::IValue no_scalars() { return c10::List<std::optional<at::Scalar>>(); }

std::function<void()> float_product(const torch::Tensor& x, const torch::Tensor& w) {
  const torch::Tensor packed = call("mkldnn::_reorder_linear_weight", {w, static_cast<int64_t>(x.size(0))});
  return [x, packed] {
    call("mkldnn::_linear_pointwise", {x, packed, c10::IValue(), "none", no_scalars(), std::string()});
  };
}

std::function<void()> byte_product(const torch::Tensor& x, const torch::Tensor& w) {
  const torch::Tensor whole = w.clamp(-2, 2).mul(60).to(torch::kInt8);
  const torch::Tensor packed = call("onednn::qlinear_prepack", {whole, x.sizes().vec()});
  const torch::Tensor bytes = x.abs().clamp(0, 2).mul(60).to(torch::kUInt8);
  const torch::Tensor scales = torch::ones({w.size(0)}), zeros = torch::zeros({w.size(0)}, torch::kInt64);
  return [=] {
    call("onednn::qlinear_pointwise",
         {bytes, 1.0, int64_t{0}, packed, scales, zeros, c10::IValue(), 1.0, int64_t{0},
          static_cast<int64_t>(torch::kBFloat16), "none", no_scalars(), ""});
  };
}

}  // namespace

BenchDtype parse_bench_dtype(const std::string& name) {
  static const std::vector<std::string> known = {"fp32", "bf16", "int8"};
  for (size_t i = 0; i < known.size(); ++i)
    if (name == known[i]) return static_cast<BenchDtype>(i);
  fail_usage("--precision '", name, "', must be ", join(known, ", "), did_you_mean(name, known));
}

const char* name_of(BenchDtype dtype) {
  static constexpr std::array names = {"fp32", "bf16", "int8"};
  return names[static_cast<size_t>(dtype)];
}

LimitProduct::LimitProduct(BenchDtype dtype, int64_t rows, int64_t in, int64_t out)
    : gflop_(2e-9 * static_cast<double>(rows) * static_cast<double>(in) * static_cast<double>(out)) {
  const torch::NoGradGuard no_grad;
  const auto type = dtype == BenchDtype::bf16 ? torch::kBFloat16 : torch::kFloat32;
  const torch::Tensor x = torch::randn({rows, in}).to(type), w = torch::randn({out, in}).to(type);
  run_ = dtype == BenchDtype::int8 ? byte_product(x, w) : float_product(x, w);
}

Step waited_for(const Step& step, const torch::Device& device) {
  if (!device.is_cuda()) return step;
  return [step, device] {
    step();
    torch::cuda::synchronize(device.index());
  };
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

Limit::Limit(BenchDtype dtype, std::vector<ProductShape> shapes) {
  constexpr size_t kMost = 4;
  check(!shapes.empty(), "the model makes no matrix product to compare with");
  const auto work = [](const ProductShape& s) {
    return s.calls * static_cast<double>(s.rows) * static_cast<double>(s.in) * static_cast<double>(s.out);
  };
  std::sort(shapes.begin(), shapes.end(),
            [&](const ProductShape& a, const ProductShape& b) { return work(a) > work(b); });
  shapes.resize(std::min(shapes.size(), kMost));
  std::vector<BenchDtype> precisions = {dtype};
  if (dtype == BenchDtype::bf16) precisions.push_back(BenchDtype::fp32);
  for (const BenchDtype precision : precisions) {
    std::vector<Timed>& way = ways_.emplace_back();
    for (const ProductShape& s : shapes)
      way.push_back({LimitProduct(precision, s.rows, s.in, s.out), s.calls, {}});
  }
  for (const auto& way : ways_)
    for (const Timed& timed : way) timed.product();  // warm
}

void Limit::run() {
  for (auto& way : ways_)
    for (Timed& timed : way) {
      const double start = steady_seconds();
      timed.product();
      timed.seconds.push_back(steady_seconds() - start);
    }
}

double Limit::gflops() const {
  double best = 0;
  for (const auto& way : ways_) {
    double work = 0, seconds = 0;
    for (const Timed& timed : way) {
      work += timed.calls * timed.product.gflop();
      seconds += timed.calls * median(timed.seconds);
    }
    best = std::max(best, work / seconds);
  }
  return best;
}

}  // namespace tessera::cli
