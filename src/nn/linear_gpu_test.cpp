// MLPs in products of a GPU, which a library of the test computes on the host.
#include <ATen/autocast_mode.h>

#include "kernels/gpu/cublaslt_testing.h"
#include "nn/linear.h"
#include "ops/gpu_testing.h"

namespace tessera::nn {
namespace {

using torch::Tensor;

TEST(GpuMlp, GeluByTanhIsInTheProducts) {
  for (const bool trained : {true, false}) {
    torch::manual_seed(2);
    AnyMlp mlp(MlpForm::gelu_tanh, 16, 24);
    const Tensor x = torch::randn({2, 3, 16}).requires_grad_(), residual = torch::randn({2, 3, 16});
    const Tensor scale = torch::full({16}, 0.5);
    std::vector<Tensor> inputs = {x};
    for (const Tensor& p : mlp->parameters()) p.requires_grad_(trained);
    if (trained) inputs = mlp->parameters(), inputs.push_back(x);
    const auto forward = [&] { return mlp->forward(x, {scale, residual}); };
    const auto want = ops::with_gradients(inputs, forward);
    const kernels::gpu_testing::StandIn library;
    const int64_t before = library.products();
    at::autocast::set_autocast_enabled(torch::kCPU, true);
    const ops::Runs passes("activation");
    const auto got = ops::with_gradients(inputs, forward);
    at::autocast::set_autocast_enabled(torch::kCPU, false);
    ops::expect_close(got, want, 2e-2);
    EXPECT_EQ(library.products() - before, trained ? 6 : 4);
    EXPECT_TRUE(passes.names().empty()) << passes.names().front();
  }
}

}  // namespace
}  // namespace tessera::nn
