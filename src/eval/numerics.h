// Numerical methods of metrics: symmetric matrices, and the assignment problem.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tessera::eval {

// Linear algebra of symmetric matrices in double, to compare covariances. Matrices are [n, n], row-major;
// only their lower triangles are read. The bits do not depend on the number of threads.

// Returns the eigenvalues in ascending order, exact to the rounding of the largest: Householder
// tridiagonalisation, then bisection by Sturm sequences (Golub & Van Loan, "Matrix computations", 8.3 and
// 8.4). Takes 4/3 n^3 multiply-adds. Throws Error on a NaN.
std::vector<double> symmetric_eigenvalues(std::vector<double> matrix, int64_t n);

// Pivoted Cholesky factor L of a positive semidefinite matrix, rows in pivot order:
// matrix[order[i]][order[j]] = sum_k factor[i][k] factor[j][k]. It stops once the remainder is only rounding
// error.
struct PivotedCholesky {
  int64_t rank = 0;
  std::vector<int64_t> order;  // [n]
  std::vector<double> factor;  // [n, rank], zero above the diagonal
};
PivotedCholesky pivoted_cholesky(std::span<const double> matrix, int64_t n);

// Returns L^T B L for the factor L of pivoted_cholesky and a symmetric B [n, n] in its original order (both
// triangles are read): the lower triangle of [rank, rank].
std::vector<double> congruence(const PivotedCholesky& l, std::span<const double> b);

// Minimum-cost assignment of rows to columns (Kuhn 1955) by shortest augmenting paths (Jonker & Volgenant
// 1987).

struct Assignment {
  std::vector<int64_t> rows, columns;  // pairs, rows ascending; min(rows, columns) of them
};

// Returns a minimum-cost assignment. `cost` is [rows, columns], row-major. Throws Error with the entry if one
// is not finite. Takes at most min(rows, columns)^2 * max(rows, columns) steps.
Assignment cheapest_assignment(std::span<const double> cost, int64_t rows, int64_t columns);

}  // namespace tessera::eval
