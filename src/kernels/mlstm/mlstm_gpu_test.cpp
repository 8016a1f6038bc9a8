// The mLSTM cell and its states for GPUs on the emulator, against the definition in double.
#include "kernels/mlstm/mlstm_gpu_testing.h"

#include <numeric>

namespace tessera::kernels {
namespace {

using namespace gpu_testing;

// Tokens around a tile, a chunk and several; every head dim; both directions; usual, strong and closed gates.
const CellCase kCases[] = {
    {1, 1, 1, 48, 64},
    {2, 2, 7, 48, 256, true, 1, true},
    {1, 2, 64, 64, 64, false, 10},
    {1, 2, 65, 64, 128, true, 1, true},
    {1, 2, 196, 96, 256, false, 1, true},
    {1, 1, 196, 96, 256, true, 10, true},
    {1, 1, 300, 96, 64, true, 10},
    {1, 1, 130, 96, 64, false, 40},
    {1, 1, 530, 48, 256, false, 1, true},
    {1, 1, 129, 48, 128, false, 1, true, true},
    {1, 1, 70, 128, 64, true, 1, true},
    {1, 1, 100, 192, 128},
    {1, 1, 65, 192, 64, true},
    {1, 1, 40, 256, 64, false, 1, false, true},
    {1, 1, 20, 384, 64, true, 1, false, true},
    {1, 1, 20, 512, 64, false, 3},
    {1, 2, 90, 48, 64, false, 1, false, false, 3, -12},
};

// h is rounded to bfloat16 (1.6e-3 by itself), its scores and states before the products too; a single row may
// be four times worse than all. Sums of strong gates reach hundreds, and their last bits are factors.
constexpr double kAll = 4e-3, kRow = 1.6e-2, kGradient = 5e-3;

// Computes h and the normaliser, after the states that it reads.
void run_cell(CellProblem& p) {
  if (p.has_states())
    run_emulated(&gpu::Table::mlstm_states, p.states(), {&p.states_c, &p.states_n, &p.states_m});
  run_emulated(&gpu::Table::mlstm, p.cell(), {&p.h, &p.normaliser});
}

TEST(MlstmOnGpu, CellIsTheDefinition) {
  for (const CellCase& c : kCases) {
    SCOPED_TRACE(::testing::Message() << c);
    CellProblem p(c);
    run_cell(p);
    for (int64_t item = 0; item < p.items; ++item) {
      const auto want = mlstm_head_forward(p.head(item));
      const RowErrors of_h = row_errors(p.walked(p.h, item), want.h, c.dim);
      EXPECT_LT(of_h.all, kAll);
      EXPECT_LT(of_h.worst, kRow);
      const RowErrors of_normaliser = row_errors(p.walked_gate(p.normaliser, item), want.normaliser, 1);
      EXPECT_LT(of_normaliser.worst, kRow);
      if (c.after) {
        const RowErrors of_y = row_errors(p.walked(p.y, item), p.after(want.h, item), c.dim);
        EXPECT_LT(of_y.all, 2 * kAll);
      }
    }
  }
}

TEST(MlstmOnGpu, StatesAreTheDefinition) {
  for (const CellCase& c : kCases) {
    SCOPED_TRACE(::testing::Message() << c);
    CellProblem p(c);
    run_emulated(&gpu::Table::mlstm_states, p.states(), {&p.states_c, &p.last_c, &p.last_n, &p.last_m});
    for (int64_t item = 0; item < p.items; ++item) {
      const auto want = mlstm_head_forward(p.head(item)).last;
      EXPECT_NEAR(p.last_m.get(item), want.m, 1e-4 + 1e-5 * std::abs(want.m));
      const auto last = [&](const DeviceArray& from, int64_t size) {
        std::vector<double> all;
        for (int64_t i = 0; i < size; ++i) all.push_back(from.get(item * size + i));
        return all;
      };
      EXPECT_LT(row_errors(last(p.last_c, c.dim * c.dim), want.c, c.dim * c.dim).all, kAll);
      EXPECT_LT(row_errors(last(p.last_n, c.dim), want.n, c.dim).all, kAll);
    }
  }
}

// Each gradient is rounded, and so are its weights before the product. A forget gate's is a difference of terms as
// large as the input gates'.
TEST(MlstmOnGpu, GradientsAreTheDefinition) {
  for (const CellCase& c : kCases) {
    SCOPED_TRACE(::testing::Message() << c);
    CellProblem p(c);
    run_cell(p);
    run_emulated(&gpu::Table::mlstm_backward, p.gradients(), {&p.dq, &p.dk, &p.dv, &p.digate, &p.dfgate});
    for (int64_t item = 0; item < p.items; ++item) {
      const auto want = mlstm_head_backward(p.head(item), p.walked(p.dh, item), false, {});
      const auto norm = [](const std::vector<double>& x) {
        return std::sqrt(std::inner_product(x.begin(), x.end(), x.begin(), 0.0));
      };
      // The second part: eps as a constant, which is all of a single token's gradient, and terms that cancel.
      const auto check = [&](const char* name, const std::vector<double>& got, const std::vector<double>& of,
                             double terms) {
        double error = 0;
        for (size_t i = 0; i < of.size(); ++i) error += std::pow(got[i] - of[i], 2);
        EXPECT_LE(std::sqrt(error), kGradient * norm(of) + terms) << name;
      };
      const double least = 1e-5 * std::sqrt(static_cast<double>(c.tokens));
      check("dq", p.walked(p.dq, item), want.dq, least);
      check("dk", p.walked(p.dk, item), want.dk, least);
      check("dv", p.walked(p.dv, item), want.dv, least);
      check("digate", p.walked_gate(p.digate, item), want.digate, least);
      check("dfgate", p.walked_gate(p.dfgate, item), want.dfgate, least + 4e-3 * norm(want.digate));
    }
  }
}

TEST(MlstmOnGpu, OtherShapesAreDeclined) {
  CellProblem p({1, 1, 70, 96, 64});
  gpu::MlstmCell call = p.cell();
  const auto taken = [&] { return gpu::choose_form(tessera_gpu_table()->mlstm, 90, call) != nullptr; };
  EXPECT_TRUE(taken());
  call.key_dim = call.value_dim = 80;
  EXPECT_FALSE(taken());
  call = p.cell(), call.c = nullptr;  // two chunks need a state
  EXPECT_FALSE(taken());
  call = p.cell(), call.chunk = 96;
  EXPECT_FALSE(taken());
  call = p.cell(), call.chunk = 512;
  EXPECT_FALSE(taken());
  call = p.cell(), call.k = call.k + 1;
  EXPECT_FALSE(taken());
}

}  // namespace
}  // namespace tessera::kernels
