// Operations that move elements: reshaping, slicing, joining, gathering, and filling.
#include "onnx/lowering.h"

#include <limits>

#include "core/error.h"

namespace tessera::onnx {
namespace {

constexpr int64_t kEnd = std::numeric_limits<int64_t>::max();

// Returns the shape for Reshape: at most one size is left open (-1); other sizes that depend on the inputs
// are computed.
std::string reshape_sizes(Call& call, std::vector<Size> sizes) {
  bool open = std::any_of(sizes.begin(), sizes.end(), [](const Size& size) { return size.value == -1; });
  for (Size& size : sizes)
    if (size.rule && !open) size = {-1}, open = true;
  return call.to.sizes(sizes);
}

void reshape_to(Call& call, std::vector<Size> sizes) {
  call.result(call.to.add("Reshape", {call.tensor("self"), reshape_sizes(call, std::move(sizes))}));
}

void view(Call& call) {
  reshape_to(call, call.sizes(call.operation() == "aten::reshape" ? "shape" : "size"));
}

// Sizes before and after the axes are kept (0), and those between become one.
void flatten(Call& call) {
  const int64_t first = call.axis("start_dim"), last = call.axis("end_dim");
  std::vector<Size> sizes(static_cast<size_t>(first), Size{0});
  sizes.push_back({-1});
  const std::vector<int64_t> shape = call.shape("self");
  if (last + 1 == call.rank("self")) return reshape_to(call, sizes);
  // A size after the open one cannot be written as a number if it depends on the inputs.
  const std::string kept = call.to.add("Shape", {call.tensor("self")}, {{"start", last + 1}});
  std::vector<int64_t> head(static_cast<size_t>(first), 0);
  head.push_back(-1);
  const std::string all = call.to.add("Concat", {call.to.integers(head), kept}, {{"axis", int64_t{0}}});
  call.result(call.to.add("Reshape", {call.tensor("self"), all}));
}

void unflatten(Call& call) {
  const int64_t axis = call.axis("dim");
  std::vector<Size> sizes(static_cast<size_t>(axis), Size{0});
  for (const Size& size : call.sizes("sizes")) sizes.push_back(size);
  if (axis + 1 == call.rank("self")) return reshape_to(call, sizes);
  const std::string kept = call.to.add("Shape", {call.tensor("self")}, {{"start", axis + 1}});
  const std::string all = call.to.add("Concat", {reshape_sizes(call, sizes), kept}, {{"axis", int64_t{0}}});
  call.result(call.to.add("Reshape", {call.tensor("self"), all}));
}

void transpose_by(Call& call, std::vector<int64_t> order) {
  call.result(call.to.add("Transpose", {call.tensor("self")}, {{"perm", std::move(order)}}));
}
void permute(Call& call) {
  std::vector<int64_t> order = call.integers("dims");
  for (int64_t& axis : order) axis += axis < 0 ? call.rank("self") : 0;
  transpose_by(call, order);
}
void transpose(Call& call) {
  std::vector<int64_t> order;
  for (int64_t axis = 0; axis < call.rank("self"); ++axis) order.push_back(axis);
  std::swap(order.at(static_cast<size_t>(call.axis("dim0"))),
            order.at(static_cast<size_t>(call.axis("dim1"))));
  transpose_by(call, order);
}
void t(Call& call) { transpose_by(call, {1, 0}); }

void unsqueeze(Call& call) {
  const int64_t axis = call.integer("dim");
  const int64_t at = axis < 0 ? axis + call.rank("self") + 1 : axis;
  call.result(call.to.add("Unsqueeze", {call.tensor("self"), call.to.integers({at})}));
}
void squeeze(Call& call) {
  const int64_t axis = call.axis("dim");
  if (call.shape("self").at(static_cast<size_t>(axis)) != 1) return call.same("self");
  call.result(call.to.add("Squeeze", {call.tensor("self"), call.to.integers({axis})}));
}

// A negative index counts from the end, in ONNX as in ATen.
void select(Call& call) {
  const Size index = call.size("index");
  const std::string place = index.rule ? call.to.add("Squeeze", {call.to.size(index)})
                                       : call.to.constant(torch::tensor(index.value, torch::kInt64));
  call.result(call.to.add("Gather", {call.tensor("self"), place}, {{"axis", call.axis("dim")}}));
}
void slice(Call& call) {
  const Size start = call.has("start") ? call.size("start") : Size{0};
  const Size end = call.has("end") ? call.size("end") : Size{kEnd};
  const int64_t step = call.integer("step");
  if (!start.rule && start.value == 0 && !end.rule && end.value == kEnd && step == 1)
    return call.same("self");
  call.result(call.to.add("Slice", {call.tensor("self"), call.to.size(start), call.to.size(end),
                                    call.to.integers({call.axis("dim")}), call.to.integers({step})}));
}
// `length` numbers from `start` on.
void narrow(Call& call) {
  const int64_t start = call.integer("start"), end = start + call.integer("length");
  call.result(call.to.add("Slice", {call.tensor("self"), call.to.integers({start}), call.to.integers({end}),
                                    call.to.integers({call.axis("dim")})}));
}
// Each element several times, for the traced size of the axis.
void repeat_interleave(Call& call) {
  const int64_t axis = call.axis("dim"), times = call.integer("repeats"),
                size = call.shape("self")[static_cast<size_t>(axis)];
  const torch::Tensor order = torch::arange(size).repeat_interleave(times);
  call.result(call.to.add("Gather", {call.tensor("self"), call.to.constant(order)}, {{"axis", axis}}));
}
void flip(Call& call) {
  std::vector<int64_t> axes = call.integers("dims");
  const std::vector<int64_t> last(axes.size(), -1),
      before(axes.size(), std::numeric_limits<int64_t>::min() + 1);
  for (int64_t& axis : axes) axis += axis < 0 ? call.rank("self") : 0;
  call.result(call.to.add("Slice", {call.tensor("self"), call.to.integers(last), call.to.integers(before),
                                    call.to.integers(axes), call.to.integers(last)}));
}

// A roll by n > 0 moves the last n entries to the front, by n < 0 the first -n entries to the end.
void roll(Call& call) {
  const std::vector<int64_t> shifts = call.integers("shifts"), axes = call.integers("dims");
  std::string rolled = call.tensor("self");
  for (size_t i = 0; i < axes.size(); ++i) {
    const int64_t axis = axes[i] < 0 ? axes[i] + call.rank("self") : axes[i];
    const std::string cut = call.to.integers({-shifts[i]}), at = call.to.integers({axis});
    const std::string first = call.to.add("Slice", {rolled, cut, call.to.integers({kEnd}), at});
    const std::string second = call.to.add("Slice", {rolled, call.to.integers({0}), cut, at});
    rolled = call.to.add("Concat", {first, second}, {{"axis", axis}});
  }
  call.result(rolled);
}

void expand(Call& call) {
  std::vector<Size> sizes = call.sizes("size");
  for (Size& size : sizes)
    if (size.value == -1 && !size.rule) size = {1};
  call.result(call.to.add("Expand", {call.tensor("self"), call.to.sizes(sizes)}));
}
void expand_as(Call& call) {
  call.result(call.to.add("Expand", {call.tensor("self"), call.to.add("Shape", {call.tensor("other")})}));
}
void repeat(Call& call) {
  const std::vector<Size> times = call.sizes("repeats");
  std::string self = call.tensor("self");
  if (const size_t more = times.size() - static_cast<size_t>(call.rank("self")); more > 0) {
    std::vector<int64_t> axes(more);
    for (size_t i = 0; i < more; ++i) axes[i] = static_cast<int64_t>(i);
    self = call.to.add("Unsqueeze", {self, call.to.integers(axes)});
  }
  call.result(call.to.add("Tile", {self, call.to.sizes(times)}));
}

void cat(Call& call) {
  const int64_t axis = call.integer("dim"), rank = static_cast<int64_t>(call.result_shape().size());
  call.result(call.to.add("Concat", call.tensors("tensors"), {{"axis", axis < 0 ? axis + rank : axis}}));
}
void stack(Call& call) {
  const int64_t axis = call.integer("dim"), rank = static_cast<int64_t>(call.result_shape().size());
  const int64_t at = axis < 0 ? axis + rank : axis;
  std::vector<std::string> parts;
  for (const std::string& one : call.tensors("tensors"))
    parts.push_back(call.to.add("Unsqueeze", {one, call.to.integers({at})}));
  call.result(call.to.add("Concat", parts, {{"axis", at}}));
}

void index_select(Call& call) {
  call.result(
      call.to.add("Gather", {call.tensor("self"), call.tensor("index")}, {{"axis", call.axis("dim")}}));
}
void embedding(Call& call) {
  call.result(call.to.add("Gather", {call.tensor("weight"), call.tensor("indices")}, {{"axis", int64_t{0}}}));
}
void gather(Call& call) {
  call.result(call.to.add("GatherElements", {call.tensor("self"), call.tensor("index")},
                          {{"axis", call.axis("dim")}}));
}

// ATen lists paddings from the last axis on; ONNX lists all begins before all ends.
void constant_pad(Call& call) {
  const std::vector<int64_t> pad = call.integers("pad");
  const auto rank = static_cast<size_t>(call.rank("self"));
  std::vector<int64_t> ordered(2 * rank, 0);
  for (size_t i = 0; i < pad.size() / 2; ++i) {
    ordered[rank - 1 - i] = pad[2 * i];
    ordered[2 * rank - 1 - i] = pad[2 * i + 1];
  }
  call.result(call.to.add("Pad", {call.tensor("self"), call.to.integers(ordered),
                                  call.to.scalar(call.real("value"), call.type("self"))}));
}

void filled(Call& call, double value) {
  const std::string one = call.to.constant(torch::full({1}, value, call.result_type()));
  call.result(call.to.add("Expand", {one, call.to.sizes(call.sizes("size"))}));
}
void ones(Call& call) { filled(call, 1); }
void zeros(Call& call) { filled(call, 0); }
void full(Call& call) { filled(call, call.real("fill_value")); }
void like(Call& call, double value) {
  const std::string one = call.to.constant(torch::full({1}, value, call.result_type()));
  call.result(call.to.add("Expand", {one, call.to.add("Shape", {call.tensor("self")})}));
}
void zeros_like(Call& call) { like(call, 0); }
void ones_like(Call& call) { like(call, 1); }
void full_like(Call& call) { like(call, call.real("fill_value")); }

void arange(Call& call) {
  const auto number = [&](const char* name, int64_t standard) {
    if (!call.has(name)) return call.to.constant(torch::tensor(standard, torch::kInt64));
    const Size size = call.size(name);
    return size.rule ? call.to.add("Squeeze", {call.to.size(size)})
                     : call.to.constant(torch::tensor(size.value, torch::kInt64));
  };
  const std::string range = call.to.add("Range", {number("start", 0), number("end", 0), number("step", 1)});
  call.result(call.converted(range, torch::kInt64, call.result_type()));
}

void tri(Call& call) {
  const bool upper = call.operation() == "aten::triu";
  call.result(call.to.add(
      "Trilu",
      {call.tensor("self"), call.to.constant(torch::tensor(call.integer("diagonal"), torch::kInt64))},
      {{"upper", static_cast<int64_t>(upper)}}));
}

void masked_fill(Call& call) {
  call.result(call.to.add(
      "Where", {call.tensor("mask"), call.operand("value", call.type("self")), call.tensor("self")}));
}
void where(Call& call) {
  call.result(call.to.add("Where", {call.tensor("condition"), call.operand("self", call.result_type()),
                                    call.operand("other", call.result_type())}));
}

void convert(Call& call) {
  call.result(call.converted(call.tensor("self"), call.type("self"), call.result_type()));
}
void same(Call& call) { call.same("self"); }

}  // namespace

void add_shape_entries(Entries& table) {
  table.insert({{"aten::view", view},
                {"aten::reshape", view},
                {"aten::flatten", flatten},
                {"aten::unflatten", unflatten},
                {"aten::permute", permute},
                {"aten::transpose", transpose},
                {"aten::t", t},
                {"aten::unsqueeze", unsqueeze},
                {"aten::squeeze", squeeze},
                {"aten::select", select},
                {"aten::slice", slice},
                {"aten::narrow", narrow},
                {"aten::repeat_interleave", repeat_interleave},
                {"aten::flip", flip},
                {"aten::roll", roll},
                {"aten::expand", expand},
                {"aten::expand_as", expand_as},
                {"aten::repeat", repeat},
                {"aten::cat", cat},
                {"aten::stack", stack},
                {"aten::index_select", index_select},
                {"aten::embedding", embedding},
                {"aten::gather", gather},
                {"aten::constant_pad_nd", constant_pad},
                {"aten::ones", ones},
                {"aten::zeros", zeros},
                {"aten::full", full},
                {"aten::zeros_like", zeros_like},
                {"aten::ones_like", ones_like},
                {"aten::full_like", full_like},
                {"aten::arange", arange},
                {"aten::triu", tri},
                {"aten::tril", tri},
                {"aten::masked_fill", masked_fill},
                {"aten::where", where},
                {"aten::to", convert},
                {"aten::type_as", convert},
                {"aten::contiguous", same},
                {"aten::clone", same},
                {"aten::detach", same},
                {"aten::alias", same},
                {"aten::dropout", same}});
}

}  // namespace tessera::onnx
