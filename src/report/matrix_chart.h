// Matrices of numbers as coloured cells (similarities, planes of a loss, attention), and points on a plane.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::report {

struct Matrix {
  std::vector<std::string> rows{}, columns{};  // their names, as many as there are rows and columns
  std::vector<double> values{};                // [rows, columns]; a cell that is not finite stays empty
};

// A named point: where it stands among the cells, 0 being the middle of the first row and column.
struct MatrixMark {
  double row = 0, column = 0;
  std::string letter{}, name{};  // in a small disc, and its tooltip
};

struct MatrixOptions {
  std::string title{}, note{};
  std::string row_label{}, column_label{};
  double width = 560;
  // The values of the palest and the darkest cell; where not finite those of the matrix.
  double low = 0, high = 0;
  bool whole_range = true;  // take the matrix's own range instead of low and high
  int digits = 2;           // of the numbers in cells that are large enough for them
  std::vector<MatrixMark> marks{};
};

// At most kMostMatrixCells cells; more are an error. Each cell has a tooltip.
constexpr size_t kMostMatrixCells = 40000;
std::string matrix_chart(const Matrix& matrix, const MatrixOptions& options);

struct Dot {
  double x = 0, y = 0;
  size_t group = 0;  // the place of its name
};
struct ScatterOptions {
  std::string title{}, x_label{}, y_label{};
  double width = 560, height = 440;
};
// Dots in the colours of their groups, with a legend of up to 24 of them. Without a finite dot: "no data".
std::string scatter_chart(const std::vector<Dot>& dots, const std::vector<std::string>& groups,
                          const ScatterOptions& options);

}  // namespace tessera::report
