#include "answer/request.h"

#include <algorithm>
#include <array>

#include "core/text.h"

namespace tessera::answer {
namespace {

struct DatatypeRow {
  const char* name;
  size_t size;
};
constexpr std::array<DatatypeRow, 7> kDatatypes = {
    {{"BOOL", 1}, {"UINT8", 1}, {"INT32", 4}, {"INT64", 8}, {"FP32", 4}, {"FP64", 8}, {"BYTES", 0}}};

std::string shape_text(const std::vector<int64_t>& shape) {
  std::vector<std::string> words;
  for (const int64_t extent : shape) words.push_back(std::to_string(extent));
  return "[" + join(words, ", ") + "]";
}

bool fits(const std::vector<int64_t>& shape, const std::vector<int64_t>& wanted) {
  return std::ranges::equal(shape, wanted, [](int64_t extent, int64_t free) {
    return extent >= 0 && (free < 0 || extent == free);
  });
}

void check_alternatives(const Request& request, const Description& description) {
  std::vector<std::string> given;
  for (const Array& input : request.inputs)
    if (std::ranges::find(description.alternatives, input.name) != description.alternatives.end())
      given.push_back(input.name);
  if (given.size() > 1) fail_usage("inputs ", some_of(given), " are alternatives: give one of them");
  if (given.empty() && !description.alternatives.empty())
    fail_usage("no input: give one of ", join(description.alternatives, ", "));
}

}  // namespace

const char* name_of(Datatype type) { return kDatatypes[static_cast<size_t>(type)].name; }

Datatype parse_datatype(const std::string& name) {
  std::vector<std::string> known;
  for (size_t i = 0; i < kDatatypes.size(); ++i) {
    if (kDatatypes[i].name == name) return static_cast<Datatype>(i);
    known.emplace_back(kDatatypes[i].name);
  }
  fail_usage("datatype '", printable(name), "', must be ", join(known, ", "), did_you_mean(name, known));
}

size_t size_of(Datatype type) { return kDatatypes[static_cast<size_t>(type)].size; }

int64_t element_count(const std::vector<int64_t>& shape, int64_t most, const std::string& where) {
  int64_t count = 1;
  bool empty = false;
  for (const int64_t extent : shape) {
    if (extent < 0) fail_usage(where, ": shape ", shape_text(shape), " has a negative extent");
    empty = empty || extent == 0;
    if (extent > 0 && count > most / extent)
      throw TooLarge(text(where, ": shape ", shape_text(shape), " has more than ", most, " elements"));
    count *= std::max<int64_t>(extent, 1);
  }
  return empty ? 0 : count;
}

void check_inputs(const Request& request, const Description& description) {
  std::vector<std::string> known, seen;
  for (const ArrayDescription& input : description.inputs) known.push_back(input.name);
  for (const Array& input : request.inputs) {
    const auto row = std::ranges::find(description.inputs, input.name, &ArrayDescription::name);
    if (row == description.inputs.end())
      fail_usage("there is no input '", printable(input.name), "', it must be ", join(known, ", "),
                 did_you_mean(input.name, known));
    if (std::ranges::find(seen, input.name) != seen.end())
      fail_usage("input ", input.name, " is given twice");
    seen.push_back(input.name);
    if (input.type != row->type)
      fail_usage("input ", input.name, " has datatype ", name_of(input.type), ", must be ",
                 name_of(row->type));
    if (!fits(input.shape, row->shape))
      fail_usage("input ", input.name, " has shape ", shape_text(input.shape), ", must be ",
                 shape_text(row->shape), " (-1: any extent)");
    if (std::ranges::find(input.shape, 0) != input.shape.end())
      fail_usage("input ", input.name, " has shape ", shape_text(input.shape), ", which is empty");
  }
  check_alternatives(request, description);
}

}  // namespace tessera::answer
