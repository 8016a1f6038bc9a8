// Ten faults of seven kinds in the mLSTM's device code, each of which the tests on the emulator must find.
#include <dlfcn.h>

#include <cstring>
#include <filesystem>

#include "kernels/mlstm/mlstm_gpu_testing.h"

namespace tessera::kernels {
namespace {

using namespace gpu_testing;

// Keys and values of the case, with NaN after the last token.
struct Longer {
  explicit Longer(const DeviceArray& from) : memory(Element::bf16, from.count() + 64 * 64) {
    for (int64_t i = 0; i < from.count(); ++i) write_element(memory.data(), Element::bf16, i, from.get(i));
  }
  DeviceArray memory;
};

// True if a library's cell differs from the definition, or if the emulator stopped it.
bool is_caught(const std::string& library, const CellCase& c) {
  void* loaded = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!loaded) {
    ADD_FAILURE() << dlerror();
    return false;
  }
  const auto run = reinterpret_cast<int (*)(const gpu::MlstmCell*, int)>(dlsym(loaded, "planted_run"));
  const auto run_gradients =
      reinterpret_cast<int (*)(const gpu::MlstmGradients*, int)>(dlsym(loaded, "planted_gradients"));
  CellProblem p(c);
  Longer k(p.k), v(p.v);
  gpu::MlstmCell call = p.cell();
  call.k = k.memory.as<uint16_t>(), call.v = v.memory.as<uint16_t>();
  const auto want = mlstm_head_forward(p.head(0));
  const auto gradients = mlstm_head_backward(p.head(0), p.walked(p.dh, 0), false, {});
  bool caught = false;
  for (const int early : {0, 1}) {
    std::memset(p.h.data(), 0xff, p.h.count() * 2);
    if (run(&call, early) != 0) caught = true;
    const RowErrors errors = row_errors(p.walked(p.h, 0), want.h, c.dim);
    caught = caught || !(errors.all < 4e-3 && errors.worst < 1.6e-2);  // as in mlstm_gpu_test.cpp
    if (caught) continue;
    const gpu::MlstmGradients backward = p.gradients();
    for (DeviceArray* out : {&p.dq, &p.dk, &p.dv}) std::memset(out->data(), 0xff, out->count() * 2);
    if (run_gradients(&backward, early) != 0) caught = true;
    const auto wrong = [&](const DeviceArray& got, const std::vector<double>& of) {
      return !(row_errors(p.walked(got, 0), of, c.tokens * c.dim).all < 4e-3);
    };
    caught = caught || wrong(p.dq, gradients.dq) || wrong(p.dk, gradients.dk) || wrong(p.dv, gradients.dv);
  }
  dlclose(loaded);
  return caught;
}

TEST(PlantedFaults, EachIsCaughtAndNothingElse) {
  // The floor decides in some rows, no tile is forgotten, and the last one is short.
  const CellCase c{1, 1, 195, 64, 256, false, 2, false, false, 6, -9};
  int faults = 0;
  std::stringstream libraries(TESSERA_PLANTED);
  for (std::string library; std::getline(libraries, library, ',');) {
    const std::string name = std::filesystem::path(library).stem().string();
    if (name == "libplanted_none") {
      EXPECT_FALSE(is_caught(library, c)) << "the device code itself fails";
      continue;
    }
    ++faults;
    EXPECT_TRUE(is_caught(library, c)) << name;
  }
  EXPECT_EQ(faults, 10);
}

}  // namespace
}  // namespace tessera::kernels
