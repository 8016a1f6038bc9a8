// A library with the part of cuBLASLt's C interface that products.cpp calls, on the host's memory and by plain loops, for tests.
// It uses the numbers of NVIDIA's documentation, not those of cublaslt.h, and refuses what cuBLASLt would refuse.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <set>

namespace {

constexpr int kInvalid = 7, kNotSupported = 15;  // cublasStatus_t
constexpr int kFloat = 0, kHalf = 14;            // cudaDataType
constexpr size_t kWorkspace = 4096;              // bytes that each product writes

struct Description {
  int compute, scale;
  int32_t of_a = 0, of_b = 0;
  uint32_t epilogue = 1;
  char *bias = nullptr, *stored = nullptr;
  int64_t stored_stride = 0;
};
struct Layout {
  int type;
  uint64_t rows, columns;
  int64_t stride;
};
struct Preference {
  uint64_t workspace = 0;
  uint32_t alignment[4] = {256, 256, 256, 256};
};
// The product that an algorithm is for.
struct Purpose {
  uint64_t data[8];
};
struct Proposal {
  Purpose algorithm;
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
};

int64_t objects = 0, products = 0;
std::set<uint32_t> refused;  // epilogues
std::set<const void*> handles;

template <class T>
int make(T** to, const T& value) {
  ++objects;
  *to = new T(value);
  return 0;
}
template <class T>
int destroy(T* object) {
  if (!object) return kInvalid;
  --objects;
  delete object;
  return 0;
}
template <class T>
int assign(T& to, const void* value, size_t bytes) {
  if (!value || bytes != sizeof(T)) return kInvalid;
  std::memcpy(&to, value, bytes);
  return 0;
}

float read(const void* data, int type, int64_t i) {
  float x;
  if (type == kFloat) {
    std::memcpy(&x, static_cast<const char*>(data) + 4 * i, 4);
    return x;
  }
  uint16_t half;
  std::memcpy(&half, static_cast<const char*>(data) + 2 * i, 2);
  const uint32_t bits = uint32_t{half} << 16;
  std::memcpy(&x, &bits, 4);
  return x;
}
void write(void* data, int type, int64_t i, double value) {
  const auto x = static_cast<float>(value);
  if (type == kFloat) {
    std::memcpy(static_cast<char*>(data) + 4 * i, &x, 4);
    return;
  }
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  const auto half = static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
  std::memcpy(static_cast<char*>(data) + 2 * i, &half, 2);
}

uint64_t rows_of(const Layout& x, int32_t transposed) { return transposed ? x.columns : x.rows; }
uint64_t columns_of(const Layout& x, int32_t transposed) { return transposed ? x.rows : x.columns; }

// Returns 0, or a status for shapes and types that do not fit each other.
int check_shapes(const Description& of, const Layout& a, const Layout& b, const Layout& c, const Layout& d) {
  for (const Layout* x : {&a, &b, &c, &d})
    if (x->rows == 0 || x->columns == 0 || x->stride < static_cast<int64_t>(x->rows)) return kInvalid;
  if (rows_of(a, of.of_a) != d.rows || columns_of(b, of.of_b) != d.columns ||
      columns_of(a, of.of_a) != rows_of(b, of.of_b) || c.rows != d.rows || c.columns != d.columns)
    return kInvalid;
  const bool types = a.type == kHalf && b.type == kHalf && c.type == d.type &&
                     (d.type == kHalf || d.type == kFloat) && of.compute == 68 && of.scale == kFloat;
  return types ? 0 : kNotSupported;
}
int check_epilogue(const Description& of, const Layout& d) {
  const bool with_bias = of.epilogue == 4 || of.epilogue == 36 || of.epilogue == 164 || of.epilogue == 512;
  const bool stored = of.epilogue == 160 || of.epilogue == 164 || of.epilogue == 192;
  if (of.epilogue != 1 && of.epilogue != 32 && !with_bias && !stored) return kNotSupported;
  if (with_bias != (of.bias != nullptr)) return kInvalid;
  if (stored && (!of.stored || of.stored_stride < static_cast<int64_t>(d.rows) || of.stored_stride % 8 != 0 ||
                 d.type != kHalf || reinterpret_cast<uintptr_t>(of.stored) % 16 != 0))
    return kInvalid;
  return refused.count(of.epilogue) ? kNotSupported : 0;
}

Purpose purpose_of(const Description& of, const Layout& a, const Layout& b, const Layout& c, const Layout& d,
                   const uint32_t (&alignment)[4]) {
  Purpose purpose{{of.epilogue, static_cast<uint64_t>(of.of_a * 2 + of.of_b), d.rows, d.columns,
                   columns_of(a, of.of_a), static_cast<uint64_t>(d.type), 0, 0}};
  for (const Layout* x : {&a, &b, &c, &d}) purpose.data[6] = purpose.data[6] * 1000003 + x->stride;
  for (const uint32_t x : alignment) purpose.data[7] = purpose.data[7] * 512 + x;
  return purpose;
}

double gelu_tanh(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
}

double gelu_tanh_slope(double x) {
  const double root = std::sqrt(2 / 3.14159265358979323846);
  const double t = std::tanh(root * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * root * (1 + 3 * 0.044715 * x * x);
}

struct Operands {
  const void *a, *b, *c;
  void* d;
  float alpha, beta;
};
void compute(const Description& of, const Operands& x, const Layout& a, const Layout& b, const Layout& c,
             const Layout& d) {
  const auto at = [](const void* data, const Layout& l, int32_t transposed, uint64_t row, uint64_t column) {
    return read(data, l.type,
                static_cast<int64_t>(transposed ? row : column) * l.stride +
                    static_cast<int64_t>(transposed ? column : row));
  };
  const uint64_t inner = columns_of(a, of.of_a);
  for (uint64_t j = 0; j < d.columns; ++j)
    for (uint64_t i = 0; i < d.rows; ++i) {
      double sum = 0;
      for (uint64_t k = 0; k < inner; ++k)
        sum += double{at(x.a, a, of.of_a, i, k)} * at(x.b, b, of.of_b, k, j);
      sum *= x.alpha;
      if (x.beta != 0) sum += x.beta * at(x.c, c, 0, i, j);
      if (of.epilogue & 4) sum += read(of.bias, d.type, static_cast<int64_t>(i));
      const int64_t place = static_cast<int64_t>(j) * of.stored_stride + static_cast<int64_t>(i);
      if (of.epilogue == 192) sum *= gelu_tanh_slope(read(of.stored, d.type, place));
      if (of.epilogue == 160 || of.epilogue == 164) write(of.stored, d.type, place, sum);
      if (of.epilogue & 32) sum = gelu_tanh(sum);
      write(x.d, d.type, static_cast<int64_t>(j) * d.stride + static_cast<int64_t>(i), sum);
    }
  if (of.epilogue != 512) return;
  for (uint64_t j = 0; j < d.columns; ++j) {
    double sum = 0;
    for (uint64_t k = 0; k < inner; ++k) sum += at(x.b, b, of.of_b, k, j);
    write(of.bias, d.type, static_cast<int64_t>(j), sum);
  }
}

bool on_boundary(const void* data, uint64_t bytes) {
  return data && bytes > 0 && reinterpret_cast<uintptr_t>(data) % bytes == 0;
}

}  // namespace

extern "C" {

// For tests.
int64_t stand_in_objects() { return objects; }
int64_t stand_in_products() { return products; }
void stand_in_refuse(uint32_t epilogue, int refuse) {
  if (refuse)
    refused.insert(epilogue);
  else
    refused.erase(epilogue);
}

size_t cublasLtGetVersion() { return 130002; }
const char* cublasLtGetStatusString(int status) {
  return status == kInvalid ? "CUBLAS_STATUS_INVALID_VALUE" : "CUBLAS_STATUS_NOT_SUPPORTED";
}
int cublasLtCreate(int** handle) {
  const int status = make(handle, 1);
  handles.insert(*handle);
  return status;
}
int cublasLtDestroy(int* handle) { return handles.erase(handle) ? destroy(handle) : kInvalid; }

int cublasLtMatmulDescCreate(Description** to, int compute, int scale) {
  return make(to, Description{compute, scale});
}
int cublasLtMatmulDescDestroy(Description* description) { return destroy(description); }
int cublasLtMatmulDescSetAttribute(Description* to, int attribute, const void* value, size_t bytes) {
  switch (attribute) {
    case 3:
      return assign(to->of_a, value, bytes);
    case 4:
      return assign(to->of_b, value, bytes);
    case 7:
      return assign(to->epilogue, value, bytes);
    case 8:
      return assign(to->bias, value, bytes);
    case 11:
      return assign(to->stored, value, bytes);
    case 12:
      return assign(to->stored_stride, value, bytes);
    default:
      return kInvalid;
  }
}

int cublasLtMatrixLayoutCreate(Layout** to, int type, uint64_t rows, uint64_t columns, int64_t stride) {
  return make(to, Layout{type, rows, columns, stride});
}
int cublasLtMatrixLayoutDestroy(Layout* layout) { return destroy(layout); }

int cublasLtMatmulPreferenceCreate(Preference** to) { return make(to, Preference{}); }
int cublasLtMatmulPreferenceDestroy(Preference* preference) { return destroy(preference); }
int cublasLtMatmulPreferenceSetAttribute(Preference* to, int attribute, const void* value, size_t bytes) {
  if (attribute == 1) return assign(to->workspace, value, bytes);
  if (attribute >= 5 && attribute <= 8) return assign(to->alignment[attribute - 5], value, bytes);
  return kInvalid;
}

int cublasLtMatmulAlgoGetHeuristic(int* handle, Description* of, Layout* a, Layout* b, Layout* c, Layout* d,
                                   Preference* preference, int most, Proposal* proposals, int* count) {
  if (!handles.count(handle) || most < 1) return kInvalid;
  *count = 0;
  if (const int status = check_shapes(*of, *a, *b, *c, *d)) return status;
  if (const int status = check_epilogue(*of, *d)) return status;
  if (preference->workspace < kWorkspace) return kNotSupported;
  for (const uint32_t alignment : preference->alignment)
    if (alignment < 16 || (alignment & (alignment - 1)) != 0) return kNotSupported;
  proposals[0] = {purpose_of(*of, *a, *b, *c, *d, preference->alignment), kWorkspace, 0, 1, {}};
  *count = 1;
  return 0;
}

int cublasLtMatmul(int* handle, Description* of, const float* alpha, const void* a, Layout* layout_a,
                   const void* b, Layout* layout_b, const float* beta, const void* c, Layout* layout_c,
                   void* d, Layout* layout_d, const Purpose* algorithm, void* workspace,
                   size_t workspace_bytes, void*) {
  if (!handles.count(handle)) return kInvalid;
  if (const int status = check_shapes(*of, *layout_a, *layout_b, *layout_c, *layout_d)) return status;
  if (const int status = check_epilogue(*of, *layout_d)) return status;
  uint32_t alignment[4];
  for (int i = 0; i < 4; ++i) alignment[i] = static_cast<uint32_t>(algorithm->data[7] >> (27 - 9 * i) & 511);
  const Purpose now = purpose_of(*of, *layout_a, *layout_b, *layout_c, *layout_d, alignment);
  if (std::memcmp(&now, algorithm, sizeof(now)) != 0) return kInvalid;
  const void* const operands[] = {a, b, c, d};
  for (int i = 0; i < 4; ++i)
    if (!on_boundary(operands[i], alignment[i])) return kInvalid;
  if (workspace_bytes < kWorkspace || !on_boundary(workspace, 256)) return kInvalid;
  std::memset(workspace, 0xff, kWorkspace);
  compute(*of, {a, b, c, d, *alpha, *beta}, *layout_a, *layout_b, *layout_c, *layout_d);
  ++products;
  return 0;
}

}  // extern "C"
