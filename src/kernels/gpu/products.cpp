#include "kernels/gpu/products.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "kernels/gpu/cublaslt.h"
#include "kernels/gpu/library.h"

namespace tessera::kernels::gpu {
namespace {

using namespace cublaslt;

// All that a proposal depends on.
using Key = std::array<int64_t, 20>;

struct Library {
  Functions call{};
  std::mutex mutex;
  std::map<int, Handle> handles;                    // of each device
  std::map<Key, std::optional<Proposal>> proposed;  // none: no algorithm
};
std::unique_ptr<Library> loaded;
std::atomic<Library*> in_use = nullptr;

void check_status(const Library& library, Status status, const char* step) {
  if (status == kSuccess) return;
  fail("cuBLASLt: ", step, ": ", library.call.get_status_string(status),
       "; without TESSERA_GPU=cublaslt LibTorch computes products");
}

// An object of the library during a call.
template <class Object>
class Held {
 public:
  explicit Held(Status (*destroy)(Object)) : destroy_(destroy) {}
  ~Held() {
    if (object) destroy_(object);
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  Object object = nullptr;

 private:
  Status (*destroy_)(Object);
};

// Returns the first name that is missing, or null.
const char* find_functions(void* library, Functions& to) {
  const char* missing = nullptr;
  const auto find = [&](const char* name, auto& function) {
    void* const found = dlsym(library, name);
    if (!found && !missing) missing = name;
    // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast)
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(found);
  };
  find("cublasLtGetVersion", to.get_version);
  find("cublasLtGetStatusString", to.get_status_string);
  find("cublasLtCreate", to.create);
  find("cublasLtDestroy", to.destroy);
  find("cublasLtMatmulDescCreate", to.description_create);
  find("cublasLtMatmulDescDestroy", to.description_destroy);
  find("cublasLtMatmulDescSetAttribute", to.description_set);
  find("cublasLtMatrixLayoutCreate", to.layout_create);
  find("cublasLtMatrixLayoutDestroy", to.layout_destroy);
  find("cublasLtMatmulPreferenceCreate", to.preference_create);
  find("cublasLtMatmulPreferenceDestroy", to.preference_destroy);
  find("cublasLtMatmulPreferenceSetAttribute", to.preference_set);
  find("cublasLtMatmulAlgoGetHeuristic", to.propose);
  find("cublasLtMatmul", to.multiply);
  return missing;
}

Handle handle_of(Library& library, int device) {
  const std::lock_guard lock(library.mutex);
  Handle& handle = library.handles[device];
  if (!handle) check_status(library, library.call.create(&handle), "start on the GPU");
  return handle;
}

uint32_t epilogue_of(const Product& p) {
  if (p.sums_of_a) return kBiasGradientOfB;
  if (p.gelu_gradient) return kGeluGradient;
  const uint32_t steps = (p.bias ? uint32_t{kBias} : 0) | (p.gelu_tanh ? uint32_t{kGeluTanh} : 0) |
                         (p.before ? uint32_t{kStored} : 0);
  return steps ? steps : uint32_t{kNoEpilogue};
}
void* bias_of(const Product& p) { return p.sums_of_a ? p.sums_of_a : const_cast<void*>(p.bias); }

// Returns the largest power of two up to 256 that divides an address.
uint32_t alignment_of(const void* data) {
  const auto address =
      reinterpret_cast<uintptr_t>(data);  // NOLINT(cppcoreguidelines-pro-type-reinterpret-cast)
  return static_cast<uint32_t>(std::min<uintptr_t>(256, address & (~address + 1)));
}

// A row-major matrix is a column-major one, transposed: the library gets b as its first factor, a as its second, and computes
// the transposed result.
struct Problem {
  Problem(const Library& of, const Product& p)
      : library(of),
        description(of.call.description_destroy),
        a(of.call.layout_destroy),
        b(of.call.layout_destroy),
        c(of.call.layout_destroy),
        d(of.call.layout_destroy) {
    must(of.call.description_create(&description.object, kComputeFloat32, kFloat32));
    set(kOperationOfA, operation(p.b)), set(kOperationOfB, operation(p.a));
    set(kEpilogueOfResult, epilogue_of(p));
    if (void* const bias = bias_of(p)) set(kBiasPointer, bias);
    if (p.before) set(kStoredPointer, p.before), set(kStoredStride, p.columns);
    lay_out(a, p.b, p.inner, p.columns), lay_out(b, p.a, p.rows, p.inner);
    const Type type = p.result.element == Element::bf16 ? kBfloat16 : kFloat32;
    lay_out(c, type, p.rows, p.columns, p.added.data ? p.added.row : p.result.row);
    lay_out(d, type, p.rows, p.columns, p.result.row);
  }

  static int32_t operation(const ProductFactor& factor) {
    return factor.transposed ? kTransposed : kAsStored;
  }
  void must(Status status) const { check_status(library, status, "describe a product"); }
  template <class Value>
  void set(DescriptionAttribute attribute, const Value& value) {
    must(library.call.description_set(description.object, attribute, &value, sizeof(value)));
  }
  // Describes a row-major matrix.
  void lay_out(Held<Layout>& to, Type type, int64_t rows, int64_t columns, int64_t row) const {
    must(library.call.layout_create(&to.object, type, static_cast<uint64_t>(columns),
                                    static_cast<uint64_t>(rows), row));
  }
  void lay_out(Held<Layout>& to, const ProductFactor& of, int64_t rows, int64_t columns) const {
    lay_out(to, kBfloat16, of.transposed ? columns : rows, of.transposed ? rows : columns, of.row);
  }

  const Library& library;
  Held<Description> description;
  Held<Layout> a, b, c, d;
};

Key key_of(int device, const Product& p) {
  return {device,
          p.rows,
          p.columns,
          p.inner,
          p.a.row,
          p.a.transposed,
          p.b.row,
          p.b.transposed,
          static_cast<int64_t>(p.result.element),
          p.result.row,
          p.added.data != nullptr,
          p.added.row,
          epilogue_of(p),
          alignment_of(p.a.data),
          alignment_of(p.b.data),
          alignment_of(p.added.data ? p.added.data : p.result.data),
          alignment_of(p.result.data),
          bias_of(p) ? alignment_of(bias_of(p)) : 0,
          p.before ? alignment_of(p.before) : 0};
}

std::optional<Proposal> propose(const Library& library, Handle handle, const Product& p,
                                const Problem& problem) {
  const Functions& call = library.call;
  Held<Preference> preference(call.preference_destroy);
  check_status(library, call.preference_create(&preference.object), "choose an algorithm");
  const auto set = [&](PreferenceAttribute attribute, const auto& value) {
    check_status(library, call.preference_set(preference.object, attribute, &value, sizeof(value)),
                 "choose an algorithm");
  };
  set(kMostWorkspace, uint64_t{kProductWorkspace});
  set(kAlignmentOfA, alignment_of(p.b.data)), set(kAlignmentOfB, alignment_of(p.a.data));
  set(kAlignmentOfC, alignment_of(p.added.data ? p.added.data : p.result.data));
  set(kAlignmentOfD, alignment_of(p.result.data));
  Proposal first{};
  int count = 0;
  const Status status =
      call.propose(handle, problem.description.object, problem.a.object, problem.b.object, problem.c.object,
                   problem.d.object, preference.object, 1, &first, &count);
  if (status == kNotSupported || (status == kSuccess && (count == 0 || first.state != kSuccess))) return {};
  check_status(library, status, "choose an algorithm");
  return first;
}

std::optional<Proposal> proposal_of(Library& library, Handle handle, int device, const Product& p,
                                    const Problem& problem) {
  constexpr size_t kMost = 4096;
  const Key key = key_of(device, p);
  const std::lock_guard lock(library.mutex);
  if (const auto known = library.proposed.find(key); known != library.proposed.end()) return known->second;
  if (library.proposed.size() >= kMost) library.proposed.clear();
  return library.proposed[key] = propose(library, handle, p, problem);
}

}  // namespace

std::string load_products(const std::vector<std::string>& files) {
  std::string why;
  for (const std::string& file : files) {
    void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) {
      why += text(why.empty() ? "" : "; ", dlerror());
      continue;
    }
    auto found = std::make_unique<Library>();
    if (const char* const missing = find_functions(library, found->call)) {
      dlclose(library);
      return text(file, " is no cuBLASLt that Tessera can use: it has no ", missing);
    }
    forget_products();
    loaded = std::move(found), in_use = loaded.get();
    return "";
  }
  return why;
}

void forget_products() {
  in_use = nullptr;
  if (!loaded) return;
  for (const auto& [device, handle] : loaded->handles)
    if (handle) loaded->call.destroy(handle);
  loaded.reset();
}

std::string products_version() {
  const Library* const library = in_use;
  if (!library) return "";
  const size_t version = library->call.get_version();
  return text(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

bool products_in_use() { return in_use.load() != nullptr && products_wanted(); }

bool run_product(int device, const Product& p, Stream stream) {
  Library* const library = in_use;
  check(library != nullptr, "cuBLASLt is not loaded");
  const Handle handle = handle_of(*library, device);
  const Problem problem(*library, p);
  const std::optional<Proposal> proposal = proposal_of(*library, handle, device, p, problem);
  if (!proposal) return false;
  const float alpha = 1, beta = p.added.data ? 1 : 0;
  const void* const c = p.added.data ? p.added.data : p.result.data;
  check_status(
      *library,
      library->call.multiply(handle, problem.description.object, &alpha, p.b.data, problem.a.object, p.a.data,
                             problem.b.object, &beta, c, problem.c.object, p.result.data, problem.d.object,
                             &proposal->algorithm, p.workspace, kProductWorkspace, stream),
      "start a product");
  return true;
}

}  // namespace tessera::kernels::gpu
