// The table of an operator's implementations: best first, the reference last.
#pragma once

#include <stdint.h>

#include "kernels/isa.h"

namespace tessera::kernels {

// `Functions` is the operator's struct of function pointers.
template <class Functions>
struct Implementation {
  Isa isa;
  const Functions* functions;
};

template <class Functions>
struct Table {
  const Implementation<Functions>* first;
  int64_t count;
  const Implementation<Functions>* begin() const { return first; }
  const Implementation<Functions>* end() const { return first + count; }
};

// Returns the first implementation that the instruction set in use can run.
template <class Functions>
const Implementation<Functions>& choose_entry(const Table<Functions>& table) {
  const Isa isa = active_isa();
  for (const Implementation<Functions>& entry : table)
    if (entry.isa <= isa) return entry;
  return table.first[table.count - 1];
}
template <class Functions>
const Functions& choose(const Table<Functions>& table) {
  return *choose_entry(table).functions;
}
// The same for a table without a reference; null if it has none for that instruction set.
template <class Functions>
const Functions* choose_if_any(const Table<Functions>& table) {
  const Isa isa = active_isa();
  for (const Implementation<Functions>& entry : table)
    if (entry.isa <= isa) return entry.functions;
  return nullptr;
}

// For the file with an operator's table: declares the object `name` of each instruction set's namespace (and
// of `reference`), and lists them as kImplementations.
#if TESSERA_KERNELS_X86
#define TESSERA_IMPLEMENTATIONS(Functions, name)                                                     \
  namespace avx512 {                                                                                 \
  extern const Functions name;                                                                       \
  }                                                                                                  \
  namespace avx2 {                                                                                   \
  extern const Functions name;                                                                       \
  }                                                                                                  \
  namespace portable {                                                                               \
  extern const Functions name;                                                                       \
  }                                                                                                  \
  namespace reference {                                                                              \
  extern const Functions name;                                                                       \
  }                                                                                                  \
  static constexpr Implementation<Functions> kImplementations[] = {{Isa::avx512, &avx512::name},     \
                                                                   {Isa::avx2, &avx2::name},         \
                                                                   {Isa::portable, &portable::name}, \
                                                                   {Isa::reference, &reference::name}}
#else
#define TESSERA_IMPLEMENTATIONS(Functions, name)                                                     \
  namespace portable {                                                                               \
  extern const Functions name;                                                                       \
  }                                                                                                  \
  namespace reference {                                                                              \
  extern const Functions name;                                                                       \
  }                                                                                                  \
  static constexpr Implementation<Functions> kImplementations[] = {{Isa::portable, &portable::name}, \
                                                                   {Isa::reference, &reference::name}}
#endif

}  // namespace tessera::kernels
