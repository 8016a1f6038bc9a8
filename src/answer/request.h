// Requests to opened models and their replies: named arrays in plain memory, and options. Free of LibTorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/value.h"
#include "io/images/image.h"

namespace tessera::answer {

// The element types of arrays, with their names in the Open Inference Protocol.
enum class Datatype { boolean, uint8, int32, int64, fp32, fp64, bytes };
const char* name_of(Datatype type);
// Throws a usage error that suggests the nearest name.
Datatype parse_datatype(const std::string& name);
// Returns the size of an element in bytes; 0 for `bytes`, where elements differ.
size_t size_of(Datatype type);

// Little-endian elements in rows without padding. Elements of `bytes` are strings.
struct Array {
  std::string name;
  Datatype type = Datatype::fp32;
  std::vector<int64_t> shape = {};
  std::string data = {};                // empty for `bytes`
  std::vector<std::string> texts = {};  // the elements of `bytes`
};
// Returns the number of elements of a shape. Throws a usage error that begins with `where` for a negative extent, or
// more than `most` elements.
int64_t element_count(const std::vector<int64_t>& shape, int64_t most, const std::string& where);

struct Request {
  std::vector<Array> inputs = {};
  Value options = {};  // a table
};

struct Reply {
  std::vector<Array> outputs = {};
  // The reply as JSON: one object per image, as the command's --json prints it.
  nlohmann::ordered_json results = nlohmann::ordered_json::array();
};

// Thrown if a request exceeds a limit on its size.
class TooLarge : public Error {
 public:
  explicit TooLarge(const std::string& message) : Error(ErrorKind::usage, message) {}
};

// Follows one request while it is computed. Both functions are called by the computing thread.
struct Control {
  std::function<bool()> cancelled = {};
  // `preview` makes a small image of the current state; it is called within this call or not at all.
  std::function<void(int64_t step, int64_t steps, const std::function<Image()>& preview)> progress = {};
  // Gets a text that is written, piece by piece.
  std::function<void(std::string_view piece)> text = {};
  // Called between steps of long work: other models may answer. Models call it by let_others() (image_rows.h).
  std::function<void()> between = {};

  bool stopped() const { return cancelled && cancelled(); }
};

// One input or output; extents of -1 are variable.
struct ArrayDescription {
  std::string name;
  Datatype type = Datatype::fp32;
  std::vector<int64_t> shape = {};
  std::string meaning = {};
};

struct OptionDescription {
  std::string key, meaning, values;  // values: "a whole number from 1 to 100"
  std::string type;                  // of JSON: "boolean", "integer", "number", "string", "array"
  std::string items = "string";      // of an array
  std::vector<std::string> choices = {};
  double low = 0, high = 0;              // infinite without a bound
  nlohmann::ordered_json standard = {};  // null: none
};

// The inputs, outputs and options of an answerer.
struct Description {
  std::string kind, summary;                  // "classes": "the most likely classes of images"
  std::vector<ArrayDescription> inputs = {};  // exactly one of those named in `alternatives` is required
  std::vector<std::string> alternatives = {};
  std::vector<ArrayDescription> outputs = {};
  std::vector<OptionDescription> options = {};
  bool slow = false;                                                  // takes seconds: use a job
  nlohmann::ordered_json details = nlohmann::ordered_json::object();  // preprocessing, classes, licence
};

// Throws a usage error with the nearest name for an input that the description lacks, or one of another type or shape.
void check_inputs(const Request& request, const Description& description);

}  // namespace tessera::answer
