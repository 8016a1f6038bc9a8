#include "nn/own_rows.h"

#include <c10/core/CPUAllocator.h>
#include <sys/mman.h>

#include <algorithm>
#include <new>
#include <unordered_map>

namespace tessera::nn {
namespace {

thread_local OwnRows* active = nullptr;

struct Pages {
  void* begin;
  size_t bytes;
};

void unmap(void* context) {
  const auto* const pages = static_cast<const Pages*>(context);
  ::munmap(pages->begin, pages->bytes);
  delete pages;
}

}  // namespace

torch::Tensor lazy_zeros(torch::IntArrayRef shape, torch::ScalarType type) {
  const size_t bytes = static_cast<size_t>(c10::multiply_integers(shape)) * c10::elementSize(type);
  void* const begin =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (begin == MAP_FAILED) throw std::bad_alloc();
  c10::Storage storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), bytes,
      c10::DataPtr(begin, new Pages{begin, bytes}, &unmap, torch::Device(torch::kCPU)),
      c10::GetCPUAllocator(),
      /*resizable=*/true));
  torch::Tensor tensor = torch::empty({0}, type);
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  return tensor.set_(std::move(storage), 0, shape, strides);
}

std::optional<RowRange> OwnRows::cut(const torch::Tensor& parameter) {
  const auto same = [&](const torch::Tensor& one) { return one.is_same(parameter); };
  if (parameter.dim() < 2 || parameter.size(0) < processes_ || std::ranges::any_of(whole_, same)) return {};
  if (std::ranges::none_of(cut_, [&](const Cut& one) { return same(one.tensor); }))
    cut_.push_back({parameter, parameter.sizes().vec()});
  const int64_t rows = parameter.size(0), each = rows / processes_, rest = rows % processes_;
  return RowRange{process_ * each, std::min(rows, (process_ + 1) * each + rest)};
}

void OwnRows::copy(const torch::Tensor& parameter, const torch::Tensor& value) {
  if (const auto rows = cut(parameter)) {
    const int64_t height = rows->end - rows->begin;
    parameter.narrow(0, rows->begin, height).copy_(value.narrow(0, rows->begin, height));
  } else {
    torch::Tensor(parameter).copy_(value);
  }
}

void OwnRows::see(const torch::Tensor& value) {
  constexpr int64_t kSeen = 8;  // numbers from each end
  const torch::Tensor numbers = value.reshape({-1});
  const int64_t count = std::min(kSeen, numbers.numel());
  for (const int64_t from : {int64_t{0}, numbers.numel() - count}) {
    const torch::Tensor some = numbers.narrow(0, from, count).to(torch::kCPU, torch::kFloat64).contiguous();
    seen_.insert(seen_.end(), some.const_data_ptr<double>(), some.const_data_ptr<double>() + count);
  }
}

bool OwnRows::all_in(const NamedTensors& state) const {
  std::unordered_map<const c10::TensorImpl*, torch::IntArrayRef> shapes;
  for (const auto& one : state) shapes.emplace(one.second.unsafeGetTensorImpl(), one.second.sizes());
  return std::ranges::all_of(cut_, [&](const Cut& one) {
    const auto found = shapes.find(one.tensor.unsafeGetTensorImpl());
    return found != shapes.end() && found->second == torch::IntArrayRef(one.shape);
  });
}

OwnRowsScope::OwnRowsScope(OwnRows* rows) : before_(active) { active = rows; }
OwnRowsScope::~OwnRowsScope() { active = before_; }
OwnRows* OwnRowsScope::rows() { return active; }

void change_type(torch::Tensor parameter, torch::ScalarType type) {
  const torch::NoGradGuard no_grad;
  OwnRows* const own = OwnRowsScope::rows();
  const std::optional<RowRange> rows = own ? own->cut(parameter) : std::nullopt;
  if (!rows || !parameter.is_cpu()) return parameter.set_data(parameter.detach().to(type));
  const torch::Tensor changed = lazy_zeros(parameter.sizes(), type);
  changed.slice(0, rows->begin, rows->end).copy_(parameter.detach().slice(0, rows->begin, rows->end));
  parameter.set_data(changed);
}

void keep_whole(const torch::Tensor& parameter) {
  if (active) active->keep_whole(parameter);
}

void copy_rows(const torch::Tensor& target, const torch::Tensor& value, bool read) {
  if (!active) {
    torch::Tensor(target).copy_(value);
    return;
  }
  if (read) active->see(value);
  active->copy(target, value);
}

}  // namespace tessera::nn
