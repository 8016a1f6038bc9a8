// Matrices of numbers as coloured cells (similarities, planes of a loss, attention), and points on a plane.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::report {

struct Matrix {
  std::vector<std::string> rows{}, columns{};  // one name per row and per column
  std::vector<double> values{};                // [rows, columns]; a non-finite cell is left empty
};

// A named point: its position among the cells, with 0 in the middle of the first row and column.
struct MatrixMark {
  double row = 0, column = 0;
  std::string letter{}, name{};  // text in a small disc, and its tooltip
};

struct MatrixOptions {
  std::string title{}, note{};
  std::string row_label{}, column_label{};
  double width = 560;
  // The values of the palest and the darkest cell; if not finite, those of the matrix.
  double low = 0, high = 0;
  bool whole_range = true;  // use the matrix's range instead of low and high
  int digits = 2;           // digits of numbers, in cells large enough for them
  std::vector<MatrixMark> marks{};
};

// Draws at most kMostMatrixCells cells; more are an error. Each cell has a tooltip.
constexpr size_t kMostMatrixCells = 40000;
std::string matrix_chart(const Matrix& matrix, const MatrixOptions& options);

struct Dot {
  double x = 0, y = 0;
  size_t group = 0;  // index of its name
};
struct ScatterOptions {
  std::string title{}, x_label{}, y_label{};
  double width = 560, height = 440;
};
// Draws dots in the colours of their groups, with a legend of at most 24 groups. Without a finite dot: "no
// data".
std::string scatter_chart(const std::vector<Dot>& dots, const std::vector<std::string>& groups,
                          const ScatterOptions& options);

}  // namespace tessera::report
