// Loading of the kernels' library, and the choice of forms.
#include "kernels/gpu/library.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace tessera::kernels::gpu {
namespace {

// Sets TESSERA_GPU and the table, and removes both again.
struct Chosen {
  Chosen(const char* name, const Table* table) {
    setenv("TESSERA_GPU", name, 1);
    use_table(table);
  }
  ~Chosen() {
    unsetenv("TESSERA_GPU");
    use_table(nullptr);
  }
};

std::string folder() { return ::testing::TempDir(); }

TEST(GpuLibrary, AMissingFileIsNamed) {
  EXPECT_EQ(load_library("/nowhere/libtessera_gpu.so"), "no libtessera_gpu.so in /nowhere");
  EXPECT_EQ(table(), nullptr);
}

TEST(GpuLibrary, AFileThatIsNoLibraryIsRefused) {
  const std::string path = folder() + "libtessera_gpu_text.so";
  std::ofstream(path) << "text";
  EXPECT_NE(load_library(path).find(path + " does not load: "), std::string::npos);
  std::filesystem::remove(path);
}

TEST(GpuLibrary, OtherLibrariesAndVersionsAreRefused) {
  EXPECT_NE(load_library(TESSERA_GPU_STRANGER).find("has no tessera_gpu_table"), std::string::npos);
  const std::string why = load_library(TESSERA_GPU_OLDER);
  EXPECT_NE(why.find(text("is of another version of Tessera (", kTableVersion - 1, ".", kTableLayout,
                          ", this program needs ", kTableVersion, ".", kTableLayout, ")")),
            std::string::npos)
      << why;
  EXPECT_EQ(table(), nullptr);
}

TEST(GpuLibrary, TheBuiltLibraryLoadsWithoutADriver) {
  if (std::string(TESSERA_GPU_BUILT).empty()) GTEST_SKIP() << "no nvcc here";
  ASSERT_EQ(load_library(TESSERA_GPU_BUILT), "");
  ASSERT_NE(table(), nullptr);
  EXPECT_EQ(table()->on_host, 0);
  EXPECT_EQ(describe_forms(*table(), 90), describe_forms(*tessera_gpu_table(), 90));
  if (table()->capability(0) < 0) {  // no driver: a call is an error with a text
    alignas(16) float x[8] = {}, y[8];
    const NormForward call{1, 8, {x, Element::f32, 8}, nullptr, nullptr, 1e-5f, true, {y, Element::f32, 8}};
    try {
      run_form("norm", *choose_form(table()->norm, 90, call), call, nullptr);
      ADD_FAILURE() << "a kernel ran";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("the GPU's kernel 'rows' of norm: "), std::string::npos);
    }
  }
  use_table(nullptr);
}

TEST(GpuLibrary, FormsAreChosenByCapabilityAndName) {
  alignas(16) uint16_t rows[8] = {};
  MlstmCell call;
  call.batch = call.heads = 1, call.tokens = 64, call.chunk = 64, call.key_dim = call.value_dim = 384;
  call.q = call.k = call.v = call.h = rows;
  const auto name = [&](int capability) -> std::string {
    const Form<MlstmCell>* form = choose_form(tessera_gpu_table()->mlstm, capability, call);
    return form ? form->name : "composition";
  };
  EXPECT_EQ(name(75), "composition");
  EXPECT_EQ(name(80), "composition");  // its tiles exceed Ampere's shared memory
  EXPECT_EQ(name(120), "composition");
  EXPECT_EQ(name(90), "tile384");
  {
    const Chosen chosen("composition", tessera_gpu_table());
    EXPECT_EQ(name(90), "composition");
    EXPECT_NE(describe_forms(*table(), 90).find("norm composition"), std::string::npos);
  }
  {
    const Chosen chosen("tile96", tessera_gpu_table());
    EXPECT_EQ(name(90), "composition");
    EXPECT_NE(describe_forms(*table(), 90).find("mlstm tile96"), std::string::npos);
  }
  EXPECT_EQ(name(90), "tile384");
}

// Words are combined by commas: at most one form, with products and graphs.
TEST(GpuLibrary, WordsAreCombined) {
  for (const char* words : {"cublaslt,graphs", "graphs,cublaslt"}) {
    const Chosen chosen(words, tessera_gpu_table());
    EXPECT_TRUE(products_wanted());
    EXPECT_EQ(forced_form(), "");
  }
  {
    const Chosen chosen("graphs,composition", tessera_gpu_table());
    EXPECT_FALSE(products_wanted());
    EXPECT_EQ(forced_form(), "composition");
  }
  EXPECT_THROW(Chosen("composition,tile96", tessera_gpu_table()), Error);
  EXPECT_THROW(Chosen("graphs,row", tessera_gpu_table()), Error);
  unsetenv("TESSERA_GPU");
  use_table(nullptr);
  EXPECT_FALSE(products_wanted());
}

TEST(GpuLibrary, AGpuWithoutCodeHasNoCapability) {
  const std::string images = "80;90a;100;120";
  for (const int capability : {80, 86, 89, 90, 100, 103, 120, 121, 130})
    EXPECT_TRUE(has_image(images, capability));
  for (const int capability : {70, 75, 110}) EXPECT_FALSE(has_image(images, capability)) << capability;
  EXPECT_FALSE(has_image("90a", 91));
  EXPECT_FALSE(has_image("", 90));
  Table table = *tessera_gpu_table();
  EXPECT_EQ(usable_capability(table, 0), 90);
  table.images = "100;120";
  EXPECT_EQ(usable_capability(table, 0), -1);
  table.capability = [](int) { return -1; };
  EXPECT_EQ(usable_capability(table, 0), -1);
}

TEST(GpuLibrary, AnUnknownFormIsAUsageError) {
  setenv("TESSERA_GPU", "row", 1);
  try {
    use_table(tessera_gpu_table());
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind, ErrorKind::usage);
    EXPECT_NE(std::string(error.what()).find("TESSERA_GPU='row', must be composition, rows, "),
              std::string::npos);
  }
  unsetenv("TESSERA_GPU");
  use_table(nullptr);
}

}  // namespace
}  // namespace tessera::kernels::gpu
