#include "devices/calibration/least_squares.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace kvreplay {
namespace {

/// Log errors of a + b x against a known truth, as when a latency is fitted by size.
std::vector<double> line_errors(const Values& values) {
  std::vector<double> errors;
  for (const double x : {1.0, 2.0, 4.0, 8.0, 16.0}) {
    const double model = values.at("a") + values.at("b") * x;
    errors.push_back(std::log(model / (30 + 5 * x)));
  }
  return errors;
}

TEST(LeastSquares, FindsTheMinimumFromFarAway) {
  const std::vector<Unknown> unknowns{{"a", 1, 1}, {"b", 1, 1}};
  for (const auto& [a, b] : {std::pair{1.0, 1.0}, {500.0, 0.1}, {0.05, 900.0}}) {
    const Fit fit = descend({{"a", a}, {"b", b}, {"held", 7}}, unknowns, line_errors, 60);
    EXPECT_NEAR(fit.values.at("a"), 30, 0.1) << a << ", " << b;
    EXPECT_NEAR(fit.values.at("b"), 5, 0.02);
    EXPECT_EQ(fit.values.at("held"), 7);
    EXPECT_LT(fit.loss, 1e-4);
    EXPECT_DOUBLE_EQ(fit.loss, sum_of_squares(line_errors(fit.values)));
  }
}

TEST(LeastSquares, StaysWithinTheBoundsAndToFourDigits) {
  const std::vector<Unknown> unknowns{
      {"a", 1, 1, 0.01, 20}, {"b", 1, 1}, {.name = "nothing", .base = 3, .start = 3}};
  const Fit fit = descend({{"a", 1}, {"b", 1}, {"nothing", 3}}, unknowns, line_errors, 60);
  EXPECT_EQ(fit.values.at("a"), 20);
  EXPECT_GT(fit.values.at("b"), 5);  // makes up for it
  EXPECT_EQ(fit.values.at("b"), rounded(fit.values.at("b")));
  EXPECT_EQ(fit.values.at("nothing"), 3);  // without a slope
  EXPECT_EQ(rounded(123456), 123500);
  EXPECT_EQ(rounded(0.00123456), 0.001235);
}

}  // namespace
}  // namespace kvreplay
