#include "devices/calibration/least_squares.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>

namespace kvreplay {
namespace {

using Vector = std::vector<double>;

double dot(const Vector& a, const Vector& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

/// Solves (S'S + damping diag(S'S)) x = -S'r by Cholesky's decomposition; slopes[k] is column k of
/// S.
Vector newton_step(const std::vector<Vector>& slopes, const Vector& residuals, double damping) {
  const std::size_t unknowns = slopes.size();
  std::vector<Vector> lower(unknowns, Vector(unknowns));
  Vector x(unknowns);
  for (std::size_t row = 0; row < unknowns; ++row) {
    x[row] = -dot(slopes[row], residuals);
    for (std::size_t column = 0; column <= row; ++column) {
      double sum = dot(slopes[row], slopes[column]);
      // A parameter at its bound has no slope, and must not make the matrix singular.
      if (row == column) sum = sum * (1 + damping) + 1e-9;
      for (std::size_t k = 0; k < column; ++k) sum -= lower[row][k] * lower[column][k];
      lower[row][column] = row == column ? std::sqrt(sum) : sum / lower[column][column];
    }
  }
  for (std::size_t row = 0; row < unknowns; ++row) {
    for (std::size_t k = 0; k < row; ++k) x[row] -= lower[row][k] * x[k];
    x[row] /= lower[row][row];
  }
  for (std::size_t row = unknowns; row-- > 0;) {
    for (std::size_t k = row + 1; k < unknowns; ++k) x[row] -= lower[k][row] * x[k];
    x[row] /= lower[row][row];
  }
  return x;
}

/// `step` holds natural logarithms; each parameter changes by at most a factor of e.
Values moved(Values values, std::span<const Unknown> unknowns, const Vector& step) {
  for (std::size_t k = 0; k < unknowns.size(); ++k) {
    const Unknown& unknown = unknowns[k];
    double& value = values.at(unknown.name);
    value = rounded(
        std::clamp(value * std::exp(std::clamp(step[k], -1.0, 1.0)), unknown.least, unknown.most));
  }
  return values;
}

}  // namespace

double sum_of_squares(std::span<const double> values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return sum;
}

double rounded(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.4g", value);
  return std::strtod(text.data(), nullptr);
}

Fit descend(Values values, std::span<const Unknown> unknowns, const Residuals& residuals,
            int most_iterations) {
  constexpr double kDifference = 0.04;  ///< wide, because random offsets add noise
  Vector here = residuals(values);
  double least = sum_of_squares(here);
  double damping = 0.01;
  for (int iteration = 0; iteration < most_iterations; ++iteration) {
    std::vector<Vector> slopes;
    for (std::size_t k = 0; k < unknowns.size(); ++k) {
      Vector step(unknowns.size());
      step[k] = kDifference;
      slopes.push_back(residuals(moved(values, unknowns, step)));
      for (std::size_t i = 0; i < here.size(); ++i) {
        slopes[k][i] = (slopes[k][i] - here[i]) / kDifference;
      }
    }
    bool better = false;
    for (; !better && damping < 1e4; damping *= 8) {
      const Values candidate = moved(values, unknowns, newton_step(slopes, here, damping));
      Vector there = residuals(candidate);
      const double loss = sum_of_squares(there);
      if (loss >= least * 0.999) continue;
      values = candidate;
      here = std::move(there);
      least = loss;
      better = true;
    }
    if (!better) break;
    damping /= 64;
  }
  return {values, least};
}

}  // namespace kvreplay
