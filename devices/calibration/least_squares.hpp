#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace kvreplay {

/// A parameter that a search may change. It is searched on a logarithmic scale.
struct Unknown {
  std::string name;
  double base = 0;   ///< its value where the data determine nothing else
  double start = 0;  ///< the same, or a nearby value above 0
  double min = 0.01;
  double max = 1e6;
};

using Values = std::map<std::string, double>;  ///< by parameter
using Residuals = std::function<std::vector<double>(const Values&)>;

struct Fit {
  Values values;
  double loss = 0;  ///< sum of the squared residuals
};

[[nodiscard]] double sum_of_squares(std::span<const double> values);

/// The residual of modelled / measured whose square is Cauchy's loss of the logarithm: an error far
/// beyond a factor of 1.2 hardly counts, so that one point spoilt by a stall of the device does not
/// bend the fit of all others.
[[nodiscard]] double robust_residual(double ratio);

/// Rounds to four digits: more than any measurement resolves.
[[nodiscard]] double rounded(double value);

/// Changes the unknowns among `values` until the sum of squared residuals hardly falls any more
/// (Levenberg and Marquardt, on their logarithms), for at most the given number of iterations.
/// Deterministic. Finds the nearest local minimum. The resulting values have four digits.
[[nodiscard]] Fit descend(Values values, std::span<const Unknown> unknowns,
                          const Residuals& residuals, int max_iterations);

}  // namespace kvreplay
