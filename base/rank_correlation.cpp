#include "base/rank_correlation.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

namespace kvreplay {
namespace {

std::vector<double> ranks(std::span<const double> values) {
  std::vector<double> result;
  for (const double value : values) {
    const auto below =
        std::count_if(values.begin(), values.end(), [=](double other) { return other < value; });
    const auto equal = std::count(values.begin(), values.end(), value);
    result.push_back(static_cast<double>(below) + static_cast<double>(equal + 1) / 2);
  }
  return result;
}

double ratio(double value, double square) {
  return square > 0 ? value / std::sqrt(square) : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

double spearman(std::span<const double> a, std::span<const double> b) {
  assert(a.size() == b.size());
  const std::vector<double> x = ranks(a);
  const std::vector<double> y = ranks(b);
  const double mean = static_cast<double>(a.size() + 1) / 2;
  double xy = 0;
  double xx = 0;
  double yy = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    xy += (x[i] - mean) * (y[i] - mean);
    xx += (x[i] - mean) * (x[i] - mean);
    yy += (y[i] - mean) * (y[i] - mean);
  }
  return ratio(xy, xx * yy);
}

double kendall(std::span<const double> a, std::span<const double> b) {
  assert(a.size() == b.size());
  const auto order = [](double x, double y) {
    return static_cast<int>(x > y) - static_cast<int>(x < y);
  };
  std::int64_t concordant = 0;
  std::int64_t in_a = 0;
  std::int64_t in_b = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const std::int64_t by_a = order(a[i], a[j]);
      const std::int64_t by_b = order(b[i], b[j]);
      concordant += by_a * by_b;
      in_a += by_a * by_a;
      in_b += by_b * by_b;
    }
  }
  return ratio(static_cast<double>(concordant),
               static_cast<double>(in_a) * static_cast<double>(in_b));
}

}  // namespace kvreplay
