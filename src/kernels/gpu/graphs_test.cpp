// Loading of the library of graphs, which are off by default.
#include "kernels/gpu/graphs.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace tessera::kernels::gpu {
namespace {

TEST(GpuGraphs, OtherFilesAreRefused) {
  EXPECT_EQ(load_graphs("/nowhere/libtessera_gpu_torch.so"), "no libtessera_gpu_torch.so in /nowhere");
  EXPECT_NE(load_graphs(TESSERA_GPU_STRANGER).find("has no tessera_gpu_graph_calls"), std::string::npos);
  EXPECT_TRUE(graphs_path().ends_with("/libtessera_gpu_torch.so"));
  EXPECT_EQ(graph_calls(), nullptr);
}

TEST(GpuGraphs, AreOffByDefault) {
  const GraphCalls calls;
  for (const char* words : {"", "composition", "cublaslt", "graph", "graphs2"}) {
    setenv("TESSERA_GPU", words, 1);
    use_graphs(&calls);
    EXPECT_EQ(graph_calls(), nullptr) << words;
  }
  for (const char* words : {"graphs", "cublaslt,graphs", "graphs,composition"}) {
    setenv("TESSERA_GPU", words, 1);
    use_graphs(&calls);
    EXPECT_EQ(graph_calls(), &calls) << words;
  }
  unsetenv("TESSERA_GPU");
  EXPECT_EQ(graph_calls(), &calls) << "read once";
  use_graphs(nullptr);
  EXPECT_EQ(graph_calls(), nullptr);
}

}  // namespace
}  // namespace tessera::kernels::gpu
