#include "analysis/counted_products.h"

#include <ATen/record_function.h>

#include <set>
#include <string_view>

#include "analysis/activations.h"
#include "core/error.h"

namespace tessera::analysis {
namespace {

using Inputs = c10::ArrayRef<const c10::IValue>;

// Counts the operators that LibTorch calls on this thread while this object lives.
class Counter {
 public:
  explicit Counter(const torch::nn::Module& model) {
    for (const auto& list : {model.parameters(), model.buffers()})
      for (const torch::Tensor& one : list) weights_.insert(one.storage().unsafeGetStorageImpl());
    check(current() == nullptr, "products are counted already");
    current() = this;
    handle_ = at::addThreadLocalCallback(
        at::RecordFunctionCallback(on_operator).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
  }
  ~Counter() {
    at::removeCallback(handle_);
    current() = nullptr;
  }
  Counter(const Counter&) = delete;

  const CountedProducts& counted() const { return counted_; }

 private:
  static Counter*& current() {
    static thread_local Counter* counter = nullptr;
    return counter;
  }
  static std::unique_ptr<at::ObserverContext> on_operator(const at::RecordFunction& function) {
    if (current()) current()->see(function.name(), function.inputs());
    return nullptr;
  }

  void see(std::string_view name, Inputs inputs) {
    if (name == "aten::mm" || name == "aten::bmm" || name == "aten::mv")
      product(inputs[0].toTensor(), inputs[1].toTensor());
    else if (name == "aten::addmm" || name == "aten::baddbmm" || name == "aten::addmv")
      product(inputs[1].toTensor(), inputs[2].toTensor());
    else if (name == "aten::convolution")
      convolution(inputs);
    else if (name == "aten::_scaled_dot_product_flash_attention_for_cpu")
      attention(inputs[0].toTensor(), inputs[1].toTensor(), inputs[2].toTensor());
    else if (name == "aten::_softmax")
      counted_.scores += inputs[0].toTensor().numel();
  }
  bool is_weight(const torch::Tensor& x) const {
    return weights_.contains(x.storage().unsafeGetStorageImpl());
  }
  void product(const torch::Tensor& a, const torch::Tensor& b) {
    const int64_t macs = a.numel() * (b.dim() > 1 ? b.size(-1) : 1);
    (is_weight(a) || is_weight(b) ? counted_.weights : counted_.between) += macs;
  }
  // [batch, heads, tokens, channels]
  void attention(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& v) {
    const int64_t scores = q.size(0) * q.size(1) * q.size(2) * k.size(2);
    counted_.scores += scores;
    counted_.between += scores * (q.size(3) + v.size(3));
  }
  // input, weight, bias, stride, padding, dilation, transposed, output padding, groups
  void convolution(Inputs inputs) {
    const torch::Tensor &x = inputs[0].toTensor(), &weight = inputs[1].toTensor();
    const auto stride = inputs[3].toIntVector(), padding = inputs[4].toIntVector(),
               dilation = inputs[5].toIntVector();
    int64_t cells = x.size(0);
    for (int64_t axis = 2; axis < x.dim(); ++axis) {
      const auto at = [&](const std::vector<int64_t>& list) { return list[list.size() == 1 ? 0 : axis - 2]; };
      const int64_t reach = at(dilation) * (weight.size(axis) - 1) + 1;
      cells *= inputs[6].toBool() ? x.size(axis) : (x.size(axis) + 2 * at(padding) - reach) / at(stride) + 1;
    }
    counted_.convolutions += cells * weight.numel();
  }

  std::set<const void*> weights_;
  CountedProducts counted_;
  at::CallbackHandle handle_ = 0;
};

CountedProducts difference(const CountedProducts& a, const CountedProducts& b) {
  return {a.weights - b.weights, a.convolutions - b.convolutions, a.between - b.between, a.scores - b.scores};
}

}  // namespace

std::vector<PlaceProducts> count_products(models::Classifier& model, int64_t channels, int64_t side) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor first = model.backbone->parameters().at(0);
  check(first.scalar_type() == torch::kFloat64, "products are counted of float64 weights");
  model.backbone->eval();
  std::vector<PlaceProducts> places;
  CountedProducts before;
  const Counter counter(*model.backbone);
  const auto reached = [&](const std::string& place) {
    places.push_back({place, difference(counter.counted(), before)});
    before = counter.counted();
  };
  models::Taps taps;
  taps.wanted = [&](const std::string& name) {  // keeps no values, but is called at every tap
    if (name == "embed" || is_block_place(name)) reached(name);
    return false;
  };
  model.forward(torch::empty({1, channels, side, side}, first.options().requires_grad(false)),
                {.taps = &taps});
  reached("head");
  return places;
}

CountedProducts sum_of(const std::vector<PlaceProducts>& places) {
  CountedProducts sum;
  for (const auto& [place, own] : places) {
    sum.weights += own.weights, sum.convolutions += own.convolutions;
    sum.between += own.between, sum.scores += own.scores;
  }
  return sum;
}

}  // namespace tessera::analysis
