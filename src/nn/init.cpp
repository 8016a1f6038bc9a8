#include "nn/init.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/error.h"
#include "core/threads.h"

namespace tessera::nn {
namespace {
thread_local bool shapes_only = false;
thread_local torch::ScalarType parameter_type = torch::kFloat32;

torch::TensorOptions parameter_options() {
  return torch::TensorOptions().dtype(parameter_type).device(shapes_only ? torch::kMeta : torch::kCPU);
}
}  // namespace

torch::Tensor zeros(torch::IntArrayRef shape) {
  constexpr int64_t kLarge = int64_t{1} << 14;  // numbers
  if (OwnRowsScope::rows() && !shapes_only && c10::multiply_integers(shape) >= kLarge)
    return lazy_zeros(shape, parameter_type);
  return torch::zeros(shape, parameter_options());
}
torch::Tensor ones(torch::IntArrayRef shape) { return torch::ones(shape, parameter_options()); }

ShapesOnly::ShapesOnly() : before_(shapes_only) { shapes_only = true; }
ShapesOnly::~ShapesOnly() { shapes_only = before_; }
ParameterType::ParameterType(torch::ScalarType type) : before_(parameter_type) { parameter_type = type; }
ParameterType::~ParameterType() { parameter_type = before_; }
bool ShapesOnly::active() { return shapes_only; }

bool ends_with(const std::string& name, const std::string& ending) {
  return name.size() >= ending.size() &&
         name.compare(name.size() - ending.size(), ending.size(), ending) == 0;
}

Filler::Filler(torch::Tensor parameter, uint64_t seed, const std::string& name, std::optional<RowRange> rows)
    : parameter_(std::move(parameter)), seed_(seed), name_(name), begin_(0), end_(parameter_.numel()) {
  if (!rows) return;
  const int64_t row = parameter_.numel() / std::max<int64_t>(1, parameter_.size(0));
  begin_ = rows->begin * row, end_ = rows->end * row;
}

void Filler::fill(const std::function<double(RandomStream&)>& draw) const {
  RandomStream stream(seed_, "init:" + name_);
  float* value = parameter_.data_ptr<float>();
  for (int64_t i = 0; i < begin_; ++i) draw(stream);
  for (int64_t i = begin_; i < end_; ++i) value[i] = static_cast<float>(draw(stream));
}

void Filler::constant(double value) const {
  fill([value](RandomStream&) { return value; });
}

void Filler::normal(double deviation) const {
  fill([deviation](RandomStream& stream) { return deviation * stream.normal(); });
}

void Filler::truncated_normal(double deviation) const {
  fill([deviation](RandomStream& stream) {
    double value = deviation * stream.normal();
    while (std::abs(value) > 2) value = deviation * stream.normal();
    return value;
  });
}

void Filler::uniform(double bound) const {
  fill([bound](RandomStream& stream) { return stream.uniform(-bound, bound); });
}

void Filler::xavier_uniform() const {
  const auto out = static_cast<double>(parameter_.size(0));
  uniform(std::sqrt(6 / (out + static_cast<double>(parameter_.numel()) / out)));
}

void Filler::fan_in_uniform(int64_t fan_in) const { uniform(1 / std::sqrt(static_cast<double>(fan_in))); }

void Filler::linspace(double first, double last) const {
  const double step =
      parameter_.numel() > 1 ? (last - first) / static_cast<double>(parameter_.numel() - 1) : 0;
  double at = first - step;
  fill([&at, step](RandomStream&) { return at += step; });
}

void initialise(torch::nn::Module& module, uint64_t seed, const InitRule& rule) {
  if (shapes_only) return;
  const auto parameters = module.named_parameters().pairs();
  std::vector<std::optional<RowRange>> rows(parameters.size());
  if (OwnRows* const own = OwnRowsScope::rows())
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = own->cut(parameters[i].second);
  parallel_for(static_cast<int64_t>(parameters.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const auto& [name, parameter] = parameters[static_cast<size_t>(i)];
      const torch::Tensor values = parameter.detach();
      rule(name, values, Filler(values, seed, name, rows[static_cast<size_t>(i)]));
    }
  });
}

}  // namespace tessera::nn
