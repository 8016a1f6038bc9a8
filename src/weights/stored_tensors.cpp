#include "weights/stored_tensors.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "weights/load_tensors.h"

namespace tessera::train {
namespace {

using Shape = std::vector<int64_t>;

// Returns the length of part `rows` of an extent, which must be a multiple of `rows.of`.
int64_t rows_in(int64_t extent, const RowRange& rows, const std::string& name) {
  check(extent % rows.of == 0, "tensor '", printable(name), "' has ", extent, " rows, must be a multiple of ",
        rows.of);
  return extent / rows.of * (rows.last - rows.first);
}

torch::Tensor cut(const torch::Tensor& tensor, const RowRange& rows, const std::string& name) {
  if (rows.whole()) return tensor;
  check(tensor.dim() > 0, "tensor '", printable(name), "' is a number, must have rows");
  const int64_t length = rows_in(tensor.size(0), rows, name), start = tensor.size(0) / rows.of * rows.first;
  return tensor.slice(0, start, start + length);
}

void require_matrix(size_t axes, const std::string& name) {
  check(axes == 2, "tensor '", printable(name), "' has ", axes, " axes, must be a matrix");
}

Shape part_shape(const TensorView& view, const Join& join) {
  Shape shape = view.shape;
  if (!join.theirs.whole()) {
    check(!shape.empty(), "tensor '", printable(view.name), "' is a number, must have rows");
    shape[0] = rows_in(shape[0], join.theirs, view.name);
  }
  if (join.transposed) {
    require_matrix(shape.size(), view.name);
    std::reverse(shape.begin(), shape.end());
  }
  return shape;
}

Shape whole_shape(const StoredTensor& tensor) {
  const std::vector<NamePlace>& parts = tensor.source.parts;
  Shape whole = part_shape(tensor.view(), parts[0].join);
  for (size_t i = 1; i < parts.size(); ++i) {
    const TensorView &first = tensor.view(), &view = *tensor.views[i];
    const Shape shape = part_shape(view, parts[i].join);
    if (shape.size() != whole.size() || shape.empty() || view.dtype != first.dtype ||
        !std::equal(shape.begin() + 1, shape.end(), whole.begin() + 1))
      fail("'", printable(view.name), "' is ", c10::IntArrayRef(view.shape), ", '", printable(first.name),
           "' ", c10::IntArrayRef(first.shape), ": together they are no '", printable(tensor.name()), "'");
    whole[0] += shape[0] * (1 + parts[i].join.ours.first - parts[i - 1].join.ours.last);
  }
  whole.insert(whole.begin(), static_cast<size_t>(parts[0].join.axes), 1);
  return whole;
}

}  // namespace

bool is_floating(const TensorView& view) {
  return view.dtype == DType::f64 || view.dtype == DType::f32 || view.dtype == DType::f16 ||
         view.dtype == DType::bf16;
}

bool StoredTensor::is_plain() const {
  const NamePlace& first = source.parts.front();
  return source.parts.size() == 1 && first.join.theirs.whole() && !first.join.transposed;
}

torch::Tensor StoredTensor::read() const {
  std::map<std::string, const TensorView*> by_name;
  for (const TensorView* one : views) by_name[one->name] = one;
  for (const std::string& name : source.copies) {
    const TensorView& copy = *by_name.at(name);
    if (copy.dtype != view().dtype || copy.shape != view().shape ||
        std::memcmp(copy.bytes.data(), view().bytes.data(), copy.bytes.size()) != 0)
      fail(printable(name), " differs from ", printable(view().name), ": they must be the same");
  }
  return assemble(source, [&](const std::string& name) { return to_tensor(*by_name.at(name)); })
      .contiguous()
      .view(shape);
}

StoredTensors::StoredTensors(const std::vector<TensorView>& views, const std::vector<NamePlace>& places,
                             std::string where)
    : where_(std::move(where)) {
  std::map<std::string, const TensorView*> by_name;
  for (const TensorView& view : views) by_name[view.name] = &view;
  try {
    for (TensorSource& source : sources_of(places)) {
      StoredTensor& tensor = tensors_.emplace_back();
      for (const NamePlace& part : source.parts) tensor.views.push_back(by_name.at(part.theirs));
      for (const std::string& copy : source.copies) tensor.views.push_back(by_name.at(copy));
      tensor.source = std::move(source);
      tensor.shape = whole_shape(tensor);
      index_[tensor.name()] = tensors_.size() - 1;
    }
  } catch (const Error& error) {
    if (where_.empty()) throw;
    fail("'", where_, "': ", error.what());
  }
}

const StoredTensor* StoredTensors::find(const std::string& name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

torch::Tensor assemble(const TensorSource& source,
                       const std::function<torch::Tensor(const std::string&)>& get) {
  std::vector<torch::Tensor> parts;
  int64_t next = source.parts.front().join.ours.first;
  for (const NamePlace& place : source.parts) {
    const torch::Tensor part = cut(get(place.theirs), place.join.theirs, place.theirs);
    if (place.join.transposed) require_matrix(static_cast<size_t>(part.dim()), place.theirs);
    const int64_t at = place.join.ours.first;
    for (; next < at; ++next) parts.push_back(torch::zeros_like(part));  // a bias of keys (sources_of)
    parts.push_back(place.join.transposed ? part.t() : part);
    next = place.join.ours.last;
  }
  return parts.size() == 1 ? parts[0] : torch::cat(parts);
}

std::vector<TensorView> views_of(const std::vector<const StoredTensor*>& stored,
                                 std::vector<torch::Tensor>& kept) {
  std::vector<TensorView> views;
  for (const StoredTensor* one : stored) {
    TensorView& view = views.emplace_back(one->view());
    view.name = one->name();
    view.shape = one->shape;
    if (one->is_plain()) continue;
    const torch::Tensor& whole = kept.emplace_back(one->read());
    view.bytes = {static_cast<const std::byte*>(whole.const_data_ptr()), whole.nbytes()};
  }
  return views;
}

std::vector<std::string> names_of(const std::vector<TensorView>& views) {
  std::vector<std::string> names;
  for (const TensorView& view : views) names.push_back(view.name);
  return names;
}

NamedTensors by_names_of(const NameTable& table, const NamedTensors& ours) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : ours) names.push_back(name);
  const std::map<std::string, torch::Tensor> by_name(ours.begin(), ours.end());
  std::map<std::string, std::vector<NamePlace>> places;
  std::vector<std::string> order;
  for (const NamePlace& place : table.theirs(names)) {
    if (!places.contains(place.theirs)) order.push_back(place.theirs);
    places[place.theirs].push_back(place);
  }
  NamedTensors theirs;
  for (const std::string& name : order) {
    std::vector<NamePlace>& of_name = places[name];
    std::ranges::sort(of_name, {}, [](const NamePlace& place) { return place.join.theirs.first; });
    int64_t next = 0;
    std::vector<torch::Tensor> parts;
    for (const auto& [unused, own, join, known, is_older, each] : of_name) {
      torch::Tensor part = by_name.at(own);
      for (int64_t axis = 0; axis < join.axes && part.dim() > 0 && part.size(0) == 1; ++axis)
        part = part.squeeze(0);
      if (join.transposed) require_matrix(static_cast<size_t>(part.dim()), own);
      parts.push_back(cut(join.transposed ? part.t() : part, join.ours, own));
      check(join.theirs.first == next, "two tensors, such as '", printable(own), "', are '", printable(name),
            "' of ", table.program());
      next = join.theirs.last;
    }
    check(next == of_name.front().join.theirs.of, "'", printable(name), "' of ", table.program(),
          " has more parts than '", printable(of_name.front().ours), "', which is its only one here");
    theirs.emplace_back(name, (parts.size() == 1 ? parts[0] : torch::cat(parts)).contiguous());
  }
  return theirs;
}

}  // namespace tessera::train
