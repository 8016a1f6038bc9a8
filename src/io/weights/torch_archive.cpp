#include "io/weights/torch_archive.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "io/files/zip.h"
#include "io/weights/numpy_pickle.h"
#include "io/weights/pickle.h"

namespace tessera {
namespace {

using Kind = PickleNode::Kind;

constexpr size_t kMaxDims = 8, kMaxDepth = 8, kMaxName = 1024, kMaxTensors = 200'000;
constexpr uint64_t kMaxExpansion = 4;                    // copies, relative to the file
constexpr uint64_t kFreeExpansion = uint64_t{16} << 20;  // bytes of copies that are allowed for any file

constexpr std::pair<std::string_view, DType> kStorages[] = {
    {"torch.DoubleStorage", DType::f64}, {"torch.FloatStorage", DType::f32},
    {"torch.HalfStorage", DType::f16},   {"torch.BFloat16Storage", DType::bf16},
    {"torch.LongStorage", DType::i64},   {"torch.IntStorage", DType::i32},
    {"torch.ShortStorage", DType::i16},  {"torch.CharStorage", DType::i8},
    {"torch.ByteStorage", DType::u8},    {"torch.BoolStorage", DType::boolean}};

// The names that a pickle may contain. None is ever called: most become nodes that are never read.
constexpr std::string_view kAllowed[] = {
    // tensors
    "torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_tensor", "torch._utils._rebuild_parameter",
    "torch._utils._rebuild_parameter_with_state", "torch._tensor._rebuild_from_type_v2", "torch.Tensor",
    "torch.nn.parameter.Parameter", "torch.nn.parameter.Buffer",
    // their storages
    "torch.DoubleStorage", "torch.FloatStorage", "torch.HalfStorage", "torch.BFloat16Storage",
    "torch.LongStorage", "torch.IntStorage", "torch.ShortStorage", "torch.CharStorage", "torch.ByteStorage",
    "torch.BoolStorage",
    // containers
    "collections.OrderedDict", "collections.Counter", "collections.defaultdict", "torch.Size",
    "__builtin__.set", "builtins.set", "__builtin__.list", "builtins.list", "__builtin__.dict",
    "builtins.dict",
    // objects that training scripts save next to the weights
    "argparse.Namespace", "torch.device", "torch.float64", "torch.float32", "torch.float16", "torch.bfloat16",
    "torch.int64", "torch.int32", "torch.int16", "torch.int8", "torch.uint8", "torch.bool",
    "numpy.core.multiarray.scalar", "numpy._core.multiarray.scalar", "_codecs.encode",
    // NumPy arrays
    "numpy.core.multiarray._reconstruct", "numpy._core.multiarray._reconstruct", "numpy.ndarray",
    "numpy.dtype"};

// The usual keys of the weights in published files, most likely first.
constexpr const char* kUsualKeys[] = {
    "state_dict", "model",  "model_state_dict", "module",         "net",     "network", "backbone",
    "weights",    "params", "model_ema",        "state_dict_ema", "teacher", "blobs",   ""};

struct Storage {
  DType dtype = DType::f32;
  std::span<const std::byte> bytes;
};

// Converts the pickle's nodes into tensors.
class Interpreter {
 public:
  Interpreter(const std::vector<ZipEntry>& entries, std::string prefix, const Pickle& pickle,
              const std::string& file, uint64_t file_bytes)
      : prefix_(std::move(prefix)),
        pickle_(pickle),
        file_(file),
        copies_left_(kFreeExpansion + kMaxExpansion * file_bytes) {
    for (const ZipEntry& entry : entries) entries_.emplace(entry.name, entry.bytes);
  }

  // Reads a TorchScript program: a tree of modules; only its tensors are read.
  TorchContent run_script() {
    TorchGroup group;
    visit_module(pickle_.root, "", 0, group);
    check(!group.tensors.empty(), file_, ": is a TorchScript program without weights");
    content_.groups.push_back(std::move(group));
    return std::move(content_);
  }

  TorchContent run_arrays() {
    content_.arrays_alone = true;
    visit(pickle_.root, "", 0);
    content_.unread = pickle_.unknown;
    return std::move(content_);
  }

  TorchContent run() {
    visit(pickle_.root, "", 0);
    const bool beside = std::any_of(content_.groups.begin(), content_.groups.end(),
                                    [](const TorchGroup& group) { return !group.key.empty(); });
    if (!pickle_.unknown.empty() && !beside) refuse(pickle_.unknown.front());
    content_.unread = pickle_.unknown;
    return std::move(content_);
  }

 private:
  [[noreturn]] void refuse(const std::string& name) const {
    constexpr std::string_view kRebuild = "torch._utils.";
    const bool tensor = name.ends_with("Storage") ||
                        (name.starts_with(kRebuild) && name.find('.', kRebuild.size()) == std::string::npos);
    if (tensor) fail(file_, ": data.pkl: names '", printable(name), "', a kind of tensor that is not read");
    fail(file_, ": data.pkl: names '", printable(name),
         "': it holds a pickled model or program, which was not run; save model.state_dict()");
  }

  const PickleNode& at(uint32_t place) const { return pickle_.at(place); }

  // Returns the name of the function in a call; "" for any other node.
  std::string_view callee(const PickleNode& node) const {
    return node.kind == Kind::call ? std::string_view(at(node.items[0]).text) : "";
  }

  static bool is_dict_class(std::string_view name) {
    return name == "collections.OrderedDict" || name == "collections.Counter" ||
           name == "collections.defaultdict" || name == "__builtin__.dict" || name == "builtins.dict";
  }

  bool is_dictionary(const PickleNode& node) const {
    return node.kind == Kind::dict || is_dict_class(callee(node));
  }

  // Calls see(key, value) for the entries of a dictionary of any class. If a call created it, the call's
  // argument may be a list of pairs with its first entries.
  template <class See>
  void for_each_entry(const PickleNode& node, const See& see) const {
    const bool made = node.kind == Kind::call;
    if (made && at(node.items[1]).items.size() == 1)
      if (const PickleNode& pairs = at(at(node.items[1]).items[0]); pairs.kind == Kind::list)
        for (const uint32_t pair : pairs.items)
          if (at(pair).items.size() == 2 && (at(pair).kind == Kind::list || at(pair).kind == Kind::tuple))
            see(at(pair).items[0], at(pair).items[1]);
    for (size_t i = made ? 3 : 0; i + 1 < node.items.size(); i += 2) see(node.items[i], node.items[i + 1]);
  }

  // True on the first visit. A dictionary, or a list of pairs, may be reachable in several ways, even from
  // itself.
  bool is_new(uint32_t place) {
    const PickleNode& node = at(place);
    if (!is_dictionary(node) || !visited_.insert(place).second) return false;
    if (node.kind == Kind::dict || at(node.items[1]).items.size() != 1) return true;
    const uint32_t argument = at(node.items[1]).items[0];
    return at(argument).kind != Kind::list || visited_.insert(argument).second;
  }

  void visit(uint32_t place, const std::string& key, size_t depth) {
    if (depth > kMaxDepth || key.size() > kMaxName || !is_new(place)) return;
    const PickleNode& node = at(place);
    TorchGroup group{key, {}};
    for_each_entry(node, [&](uint32_t key_place, uint32_t value) {
      const auto call = tensor_call(value);
      const auto name = name_of(at(key_place));
      if (call && name) add_tensor(*call, *name, group);
    });
    if (!group.tensors.empty()) content_.groups.push_back(std::move(group));
    for_each_entry(node, [&](uint32_t key_place, uint32_t value) {
      const auto name = name_of(at(key_place));
      if (name && is_dictionary(at(value))) visit(value, key.empty() ? *name : key + "." + *name, depth + 1);
    });
  }

  // Returns a string key; in Python 2 it is bytes.
  static std::optional<std::string> name_of(const PickleNode& key) {
    if (key.kind == Kind::text) return key.text;
    if (key.kind == Kind::bytes && key.raw.size() <= kMaxName && is_utf8(key.raw))
      return std::string(key.raw);
    return std::nullopt;
  }

  // Returns the state of an object of the program; nothing for any other node.
  std::optional<uint32_t> module_state(uint32_t place) const {
    const PickleNode& node = at(place);
    if (!callee(node).starts_with("?__torch__.") || at(node.items[2]).kind != Kind::dict) return std::nullopt;
    return node.items[2];
  }

  void visit_module(uint32_t place, const std::string& path, size_t depth, TorchGroup& group) {
    constexpr size_t kMaxModules = 64;  // nesting depth
    const auto state = module_state(place);
    if (!state || depth > kMaxModules || !visited_.insert(place).second) return;
    for_each_entry(at(*state), [&](uint32_t key_place, uint32_t value) {
      if (at(key_place).kind != Kind::text) return;
      const auto call = tensor_call(value);
      if (!call && !module_state(value)) return;
      const std::string& key = at(key_place).text;
      check(path.size() + key.size() < kMaxName, file_, ": a module or tensor has a name of more than ",
            kMaxName, " bytes");
      const std::string name = path.empty() ? key : path + "." + key;
      if (!call) return visit_module(value, name, depth + 1, group);
      add_tensor(*call, name, group);
    });
  }

  void add_tensor(uint32_t call, const std::string& name, TorchGroup& group) {
    check(!name.empty() && name.size() <= kMaxName && printable(name, kMaxName) == name, file_,
          ": a tensor has the name '", printable(name), "': must have 1 to ", kMaxName,
          " bytes and no control characters");
    check(names_.insert({group.key, name}).second, file_, ": '", printable(name), "' occurs twice in '",
          printable(group.key), "'");
    check(++tensors_ <= kMaxTensors, file_, ": holds more than ", kMaxTensors, " tensors");
    group.tensors.push_back(read_tensor(call, name));
  }

  // Finds the call of _rebuild_tensor_v2 in a value, inside any parameter or typed tensor, or a NumPy array;
  // none if the value is not a tensor.
  std::optional<uint32_t> tensor_call(uint32_t place) const {
    // In files with PyTorch tensors, arrays are only training statistics.
    if (content_.arrays_alone && is_numpy_array(pickle_, place)) return place;
    for (int wraps = 0; wraps < 4; ++wraps) {
      const PickleNode& node = at(place);
      const std::string_view name = callee(node);
      if (name.empty()) return std::nullopt;
      const auto& arguments = at(node.items[1]).items;
      if (name == "torch._utils._rebuild_tensor_v2" || name == "torch._utils._rebuild_tensor") return place;
      if (name.starts_with("torch._utils._rebuild_parameter") && !arguments.empty()) {
        place = arguments[0];
      } else if (name == "torch._tensor._rebuild_from_type_v2" && arguments.size() >= 3) {
        // (function, class, its arguments, state): equivalent to a call of the function.
        if (at(arguments[0]).text == "torch._utils._rebuild_tensor_v2") return place;
        return std::nullopt;
      } else {
        return std::nullopt;
      }
    }
    return std::nullopt;
  }

  const std::vector<uint32_t>& tensor_arguments(uint32_t call) const {
    const auto& arguments = at(at(call).items[1]).items;
    return callee(at(call)) == "torch._tensor._rebuild_from_type_v2" ? at(arguments[2]).items : arguments;
  }

  // --- storages

  // ("storage", torch.FloatStorage, "17", "cpu", elements)
  const Storage& storage(uint32_t place, const std::string& where) {
    const PickleNode& node = at(place);
    check(node.kind == Kind::persistent, where, " has no storage");
    const PickleNode& id = at(node.items[0]);
    const bool fits = id.kind == Kind::tuple && id.items.size() == 5 && at(id.items[0]).text == "storage" &&
                      at(id.items[1]).kind == Kind::global && at(id.items[2]).kind == Kind::text &&
                      at(id.items[4]).kind == Kind::integer;
    check(fits, where, " has a storage of an unknown form");
    const std::string &type = at(id.items[1]).text, &key = at(id.items[2]).text;
    const int64_t elements = at(id.items[4]).integer;
    const auto [found, is_first] = storages_.try_emplace({type, key});
    Storage& out = found->second;
    if (is_first) out = open_storage(type, key, where);
    uint64_t bytes = 0;
    const bool overflows =
        elements < 0 || __builtin_mul_overflow(static_cast<uint64_t>(elements), size_of(out.dtype), &bytes);
    check(!overflows && bytes == out.bytes.size(), where, ": storage '", printable(key), "' has ",
          out.bytes.size(), " bytes, must have ", elements, " elements of ", type);
    return out;
  }

  Storage open_storage(const std::string& type, const std::string& key, const std::string& where) const {
    const auto known = std::find_if(std::begin(kStorages), std::end(kStorages),
                                    [&](const auto& candidate) { return candidate.first == type; });
    if (type.starts_with('?')) refuse(type.substr(1));
    check(known != std::end(kStorages), where, " has a storage of type '", printable(type),
          "', which is not supported");
    const auto entry = entries_.find(prefix_ + "data/" + key);
    check(entry != entries_.end(), where, ": the file has no storage '", printable(key), "'");
    const auto is_bool = [](std::byte b) { return b <= std::byte{1}; };
    check(known->second != DType::boolean || std::all_of(entry->second.begin(), entry->second.end(), is_bool),
          where, " is of bool and holds a byte that is neither 0 nor 1");
    return {known->second, entry->second};
  }

  // --- tensors

  std::vector<int64_t> integers(uint32_t place, const std::string& where) const {
    const PickleNode* node = &at(place);
    if (callee(*node) == "torch.Size" && at(node->items[1]).items.size() == 1)
      node = &at(at(node->items[1]).items[0]);
    check(node->kind == Kind::tuple, where, " has a shape or strides of an unknown form");
    check(node->items.size() <= kMaxDims, where, " has more than ", kMaxDims, " dimensions");
    std::vector<int64_t> out;
    for (const uint32_t item : node->items) {
      check(at(item).kind == Kind::integer && at(item).integer >= 0, where,
            " has a shape or strides of an unknown form");
      out.push_back(at(item).integer);
    }
    return out;
  }

  // (storage, offset, shape, strides, requires_grad, hooks, …); offset and strides count elements.
  TensorView read_tensor(uint32_t call, const std::string& name) {
    const std::string where = text(file_, ": tensor '", printable(name), "'");
    if (is_numpy_array(pickle_, call)) return read_array(call, name, where);
    const auto& arguments = tensor_arguments(call);
    check(arguments.size() >= 4 && at(arguments[1]).kind == Kind::integer, where, " is of an unknown form");
    const Storage& from = storage(arguments[0], where);
    const int64_t offset = at(arguments[1]).integer;
    TensorView out{name, from.dtype, integers(arguments[2], where), {}};
    const std::vector<int64_t> strides = integers(arguments[3], where);
    check(strides.size() == out.shape.size(), where, " has ", out.shape.size(), " dimensions and ",
          strides.size(), " strides");

    int64_t elements = 1, last = offset;  // last: position in the storage of the tensor's last element
    bool overflows = offset < 0, empty = false, contiguous = true;
    for (const int64_t extent : out.shape) empty = empty || extent == 0;
    for (size_t i = out.shape.size(); i-- > 0;) {
      int64_t reach = 0;
      contiguous = contiguous && (out.shape[i] == 1 || strides[i] == elements);
      overflows = overflows || __builtin_mul_overflow(elements, out.shape[i], &elements) ||
                  (!empty && (__builtin_mul_overflow(out.shape[i] - 1, strides[i], &reach) ||
                              __builtin_add_overflow(last, reach, &last)));
    }
    const auto width = static_cast<int64_t>(size_of(from.dtype));
    int64_t bytes = 0;
    check(!overflows && !__builtin_mul_overflow(elements, width, &bytes), where,
          " has a size that overflows");
    if (empty) return out;
    const int64_t held = static_cast<int64_t>(from.bytes.size()) / width;
    check(last < held, where, " reaches to element ", last, " of a storage of ", held);
    out.bytes = contiguous
                    ? from.bytes.subspan(static_cast<size_t>(offset * width), static_cast<size_t>(bytes))
                    : copy(from, offset, out.shape, strides, static_cast<uint64_t>(bytes), where);
    return out;
  }

  TensorView read_array(uint32_t place, const std::string& name, const std::string& where) {
    const NumpyArray array = read_numpy_array(pickle_, place, where);
    check(array.shape.size() <= kMaxDims, where, " has more than ", kMaxDims, " dimensions");
    TensorView out{name, array.dtype, array.shape, array.bytes};
    if (!array.column_major || array.bytes.empty()) return out;
    std::vector<int64_t> strides;
    int64_t elements = 1;
    for (const int64_t extent : array.shape) strides.push_back(std::exchange(elements, elements * extent));
    out.bytes = copy({array.dtype, array.bytes}, 0, array.shape, strides, array.bytes.size(), where);
    return out;
  }

  // The elements in row-major order. All indices were checked.
  std::span<const std::byte> copy(const Storage& from, int64_t offset, const std::vector<int64_t>& shape,
                                  const std::vector<int64_t>& strides, uint64_t bytes,
                                  const std::string& where) {
    check(bytes <= copies_left_, where, " expands to ", human_bytes(bytes), ", far more than the file holds");
    copies_left_ -= bytes;
    std::byte* const out = content_.copies.emplace_back(std::make_unique<std::byte[]>(bytes)).get();
    const size_t width = size_of(from.dtype);
    std::vector<int64_t> index(shape.size(), 0);
    int64_t at_element = offset;
    for (uint64_t done = 0; done < bytes; done += width) {
      std::memcpy(out + done, from.bytes.data() + static_cast<size_t>(at_element) * width, width);
      for (size_t i = shape.size(); i-- > 0;) {  // the next index, as an odometer with a wheel per dimension
        if (++index[i] < shape[i]) {
          at_element += strides[i];
          break;
        }
        if (shape[i] > 1) at_element -= strides[i] * (shape[i] - 1);  // extent 1: any stride is valid
        index[i] = 0;
      }
    }
    return {out, bytes};
  }

  const std::string prefix_;
  const Pickle& pickle_;
  const std::string& file_;
  uint64_t copies_left_;
  std::unordered_map<std::string, std::span<const std::byte>> entries_;
  std::map<std::pair<std::string, std::string>, Storage> storages_;  // by type and key
  std::set<uint32_t> visited_;
  std::set<std::pair<std::string, std::string>> names_;  // groups of tensors, with the key of each group
  size_t tensors_ = 0;
  TorchContent content_;
};

// Parses a bare pickle: dictionaries of NumPy arrays.
TorchContent parse_pickle(std::span<const std::byte> bytes, const std::string& name) {
  const Pickle tree = read_pickle(bytes, name, kAllowed);
  TorchContent content = Interpreter({}, "", tree, name, bytes.size()).run_arrays();
  check(!content.groups.empty(), name,
        ": is a bare pickle without arrays of numpy, which can run code when Python loads it: "
        "torch.save(model.state_dict(), FILE) with PyTorch 1.6 or later");
  return content;
}

// Throws an error for anything that is neither a zip archive nor a pickle.
void check_form(std::span<const std::byte> bytes, const std::string& name) {
  const std::string_view start = as_text(bytes.first(std::min<size_t>(bytes.size(), 64)));
  if (start.starts_with("PK")) return;
  if (start.starts_with(std::string_view("\x80\x02\x8A\x0A\x6C\xFC\x9C\x46\xF9\x20\x6A\xA8\x50\x19", 14)))
    fail(name,
         ": is in PyTorch's old form (before 1.6, no zip archive); load it there and torch.save() it again");
  if (start.starts_with('\x80')) return;
  if (start.starts_with("version https://git-lfs"))
    fail(name, ": is a Git LFS pointer: fetch the file itself");
  fail(name, ": is no PyTorch file: must be a zip archive of PyTorch 1.6 or later");
}

// "archive/" of "archive/data.pkl"; a TorchScript program also has its constants there.
struct ArchiveForm {
  std::string prefix;
  bool script = false;
};
ArchiveForm archive_form(const std::vector<ZipEntry>& entries, const std::string& name) {
  std::optional<std::string> prefix;
  bool script = false;
  for (const ZipEntry& entry : entries) {
    const size_t slash = entry.name.find('/');
    const std::string_view rest =
        std::string_view(entry.name).substr(slash == std::string::npos ? 0 : slash + 1);
    script = script || rest == "constants.pkl";
    if (rest != "data.pkl") continue;
    check(!prefix, name, ": holds two pickles");
    prefix = entry.name.substr(0, entry.name.size() - rest.size());
  }
  check(prefix.has_value(), name, ": is a zip archive, but not one of PyTorch: it has no data.pkl");
  return {*prefix, script};
}

}  // namespace

bool looks_like_torch(std::span<const std::byte> bytes) {
  const std::string_view start = as_text(bytes.first(std::min<size_t>(bytes.size(), 9)));
  // A safetensors file may start with the same byte, as part of its header's length; the upper half of that
  // is zero.
  const bool is_safetensors = start.size() == 9 && start.substr(4) == std::string_view("\0\0\0\0{", 5);
  return start.starts_with("PK\x03\x04") || (start.starts_with('\x80') && !is_safetensors);
}

TorchContent parse_torch_archive(std::span<const std::byte> bytes, const std::string& name) {
  check_form(bytes, name);
  if (as_text(bytes).starts_with('\x80')) return parse_pickle(bytes, name);
  const std::vector<ZipEntry> entries = index_zip(bytes, name);
  const auto [prefix, script] = archive_form(entries, name);
  std::span<const std::byte> pickle;
  for (const ZipEntry& entry : entries) {
    // The code of a program is compressed and never read.
    const bool read =
        !script || entry.name == prefix + "data.pkl" || entry.name.starts_with(prefix + "data/");
    check(entry.stored || !read, name, ": zip entry '", printable(entry.name),
          "' is compressed, PyTorch stores its own as they are");
    if (entry.name == prefix + "data.pkl") pickle = entry.bytes;
    if (entry.name == prefix + "byteorder")
      check(as_text(entry.bytes) == "little", name, ": its numbers are ", printable(as_text(entry.bytes), 20),
            "-endian, must be little-endian");
  }
  const Pickle tree = read_pickle(pickle, text(name, ": data.pkl"), kAllowed);
  Interpreter interpreter(entries, prefix, tree, name, bytes.size());
  return script ? interpreter.run_script() : interpreter.run();
}

TorchArchive::TorchArchive(const std::string& path)
    : path_(path), file_(path), content_(parse_torch_archive(file_.bytes(), path)) {}

const TorchGroup& TorchArchive::choose(const std::string& key) const {
  const auto find = [&](std::string_view wanted) {
    return std::find_if(groups().begin(), groups().end(),
                        [&](const TorchGroup& g) { return g.key == wanted; });
  };
  auto found = groups().end();
  if (!key.empty()) {
    found = find(key);
  } else {
    for (const char* usual : kUsualKeys)
      if (found == groups().end()) found = find(usual);
    if (found == groups().end() && groups().size() == 1) found = groups().begin();
  }
  if (found == groups().end()) {
    std::vector<std::string> keys;
    for (const TorchGroup& group : groups()) keys.push_back("'" + printable(group.key) + "'");
    if (keys.size() > 12) keys.resize(12), keys.push_back("...");
    fail(path_, ": has no weights", key.empty() ? "" : " under '" + key + "'",
         keys.empty() ? "" : text(", must be one of ", join(keys, ", ")));
  }
  return *found;
}

std::vector<TensorView> TorchArchive::weights(const std::string& key) const {
  std::vector<TensorView> out = choose(key).tensors;
  for (const std::string_view wrapper : {"module.", "_orig_mod.", "module."})
    if (std::all_of(out.begin(), out.end(), [&](const TensorView& t) { return t.name.starts_with(wrapper); }))
      for (TensorView& t : out) t.name.erase(0, wrapper.size());
  return out;
}

}  // namespace tessera
