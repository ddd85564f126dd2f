#include "devices/calibration/least_squares.hpp"

#include <Eigen/Dense>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace kvreplay {
namespace {

using Vector = Eigen::VectorXd;

/// Solves (S'S + damping diag(S'S)) x = -S'r; column k of S are the slopes by unknown k.
Vector newton_step(const Eigen::MatrixXd& slopes, const Vector& residuals, double damping) {
  Eigen::MatrixXd normal = slopes.transpose() * slopes;
  // A parameter at its bound has no slope, and must not make the matrix singular.
  normal.diagonal() = normal.diagonal() * (1 + damping) + Vector::Constant(normal.rows(), 1e-9);
  return normal.llt().solve(-slopes.transpose() * residuals);
}

/// `step` holds natural logarithms; each parameter changes by at most a factor of e.
Values moved(Values values, std::span<const Unknown> unknowns, const Vector& step) {
  for (std::size_t k = 0; k < unknowns.size(); ++k) {
    const Unknown& unknown = unknowns[k];
    double& value = values.at(unknown.name);
    const double factor = std::exp(std::clamp(step[static_cast<Eigen::Index>(k)], -1.0, 1.0));
    value = rounded(std::clamp(value * factor, unknown.min, unknown.max));
  }
  return values;
}

}  // namespace

double robust_residual(double ratio) {
  constexpr double kScale = 0.2;
  const double error = std::log(ratio);
  const double scaled = error / kScale;
  return std::copysign(kScale * std::sqrt(std::log1p(scaled * scaled)), error);
}

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
            int max_iterations) {
  constexpr double kDifference = 0.04;  ///< wide, for the noise of random places
  const auto residuals_at = [&](const Values& tried) {
    const std::vector<double> found = residuals(tried);
    return Vector(Eigen::Map<const Vector>(found.data(), std::ssize(found)));
  };
  Vector here = residuals_at(values);
  double lowest = here.squaredNorm();
  double damping = 0.01;
  for (int iteration = 0; iteration < max_iterations; ++iteration) {
    Eigen::MatrixXd slopes(here.size(), std::ssize(unknowns));
    for (Eigen::Index k = 0; k < slopes.cols(); ++k) {
      const Vector step = kDifference * Vector::Unit(slopes.cols(), k);
      slopes.col(k) = (residuals_at(moved(values, unknowns, step)) - here) / kDifference;
    }
    bool better = false;
    for (; !better && damping < 1e4; damping *= 8) {
      const Values candidate = moved(values, unknowns, newton_step(slopes, here, damping));
      const Vector there = residuals_at(candidate);
      const double loss = there.squaredNorm();
      if (loss >= lowest * 0.999) continue;
      values = candidate;
      here = there;
      lowest = loss;
      better = true;
    }
    if (!better) break;
    damping /= 64;
  }
  return {values, lowest};
}

}  // namespace kvreplay
