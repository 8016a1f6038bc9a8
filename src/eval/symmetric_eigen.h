// Linear algebra of symmetric matrices in double, for what compares covariances. Matrices are [n, n] in row-major
// order; only their lower triangles are read. Results have the same bits for any number of threads.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tessera::eval {

// Eigenvalues in rising order: Householder's tridiagonal form, then bisection by
// Sturm's sequences (Golub & Van Loan, "Matrix computations", 8.3 and 8.4), to the rounding of the largest. 4/3 n^3
// multiply-adds. Fails on a NaN.
std::vector<double> symmetric_eigenvalues(std::vector<double> matrix, int64_t n);

// A positive semidefinite matrix as L L^T with pivoting, the rows in the order of the pivots:
// matrix[order[i]][order[j]] = sum_k factor[i][k] factor[j][k]. Columns end where what is left is rounding.
struct PivotedCholesky {
  int64_t rank = 0;
  std::vector<int64_t> order;  // [n]
  std::vector<double> factor;  // [n, rank], zero right of the diagonal
};
PivotedCholesky pivoted_cholesky(std::span<const double> matrix, int64_t n);

// L^T B L for the factor L of pivoted_cholesky and a symmetric B [n, n] (both triangles are read) in its own order:
// lower triangle of [rank, rank].
std::vector<double> congruence(const PivotedCholesky& l, std::span<const double> b);

}  // namespace tessera::eval
