// The kernels' library for GPUs: loading, and the choice of a form for a call.
#pragma once

#include <string>

#include "core/error.h"
#include "core/text.h"
#include "kernels/gpu/table.h"

namespace tessera::kernels::gpu {

// Loads libtessera_gpu.so from a file and uses its table. Returns an empty text, or why there is none, as the
// end of a message: "no libtessera_gpu.so in /usr/bin".
std::string load_library(const std::string& path);
// Returns the path next to the running program.
std::string library_path();

// The table in use; null without one.
const Table* table();
// Replaces it, and reads TESSERA_GPU. Throws a usage error if that names no form of the table. At the start of a
// process, before other threads; tests use the emulator's table.
void use_table(const Table* table);

// True if code for `images` ("80;90a;100;120") runs on a GPU of this compute capability: code of the same major and no
// higher minor number, "90a" on 90 alone, and the last one's intermediate code on later GPUs.
bool has_image(const std::string& images, int capability);
// Returns the compute capability of a device; -1 if the library has no code for it, or there is no such device.
int usable_capability(const Table& table, int device);

// Returns TESSERA_GPU as it was: "composition", the name of a form, or empty.
const std::string& forced_form();
// True if TESSERA_GPU=cublaslt: all forms, and products by cuBLASLt (products.h).
bool products_wanted();
// Returns "norm rows, activation vectors, …": the best form of each operator on a GPU of this capability.
std::string describe_forms(const Table& table, int capability);

// True if a GPU of this capability can run a form.
template <class Call>
bool fits(const Form<Call>& form, int capability) {
  return form.capability <= capability && form.shared <= most_shared(capability);
}

// Returns the first form that takes a call; null: the composition computes.
template <class Call>
const Form<Call>* choose_form(const Forms<Call>& forms, int capability, const Call& call) {
  const std::string& forced = forced_form();
  for (const Form<Call>& form : forms)
    if (fits(form, capability) && (forced.empty() || forced == form.name) && form.takes(call)) return &form;
  return nullptr;
}

// Runs a form. Throws Error with CUDA's text.
template <class Call>
void run_form(const char* operation, const Form<Call>& form, const Call& call, Stream stream) {
  const int error = form.run(call, stream);
  if (error != 0)
    fail("the GPU's kernel '", form.name, "' of ", operation, ": ", table()->error_text(error),
         "; TESSERA_GPU=composition computes without it");
}

}  // namespace tessera::kernels::gpu
