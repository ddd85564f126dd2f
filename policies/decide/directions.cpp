#include "policies/decide/directions.hpp"

#include <Eigen/Eigenvalues>
#include <cassert>
#include <cmath>

#include "policies/kernels/kernels.hpp"

namespace kvreplay {
namespace {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

/// Eigenvectors of the largest eigenvalues, as rows. Reads the lower triangle.
std::vector<float> leading_eigenvectors(const Matrix& symmetric, std::int64_t count) {
  const std::int64_t dim = symmetric.rows();
  assert(count <= dim);
  const Eigen::SelfAdjointEigenSolver<Matrix> solver(symmetric);
  std::vector<float> rows;
  rows.reserve(static_cast<std::size_t>(count * dim));
  for (std::int64_t i = 0; i < count; ++i) {
    const auto vector = solver.eigenvectors().col(dim - 1 - i);
    std::int64_t peak = 0;
    for (std::int64_t j = 1; j < dim; ++j) {
      if (std::abs(vector[j]) > std::abs(vector[peak])) peak = j;
    }
    const double sign = vector[peak] < 0 ? -1 : 1;
    for (std::int64_t j = 0; j < dim; ++j) rows.push_back(static_cast<float>(sign * vector[j]));
  }
  return rows;
}

}  // namespace

Directions::Directions(std::int64_t dim)
    : dim_(dim),
      sum_(static_cast<std::size_t>(dim)),
      products_(static_cast<std::size_t>(dim * dim)),
      row_(static_cast<std::size_t>(dim)) {}

void Directions::add(std::span<const float> vector) {
  assert(std::ssize(vector) == dim_);
  ++count_;
  double* product = products_.data();
  for (std::size_t i = 0; i < vector.size(); ++i, product += dim_) {
    const auto x = static_cast<double>(vector[i]);
    sum_[i] += x;
    for (std::size_t j = 0; j <= i; ++j) product[j] += x * static_cast<double>(vector[j]);
  }
}

void Directions::add(const HalfTensor& rows, std::int64_t head) {
  for (std::int64_t i = 0; i < rows.tokens; ++i) {
    kernels::to_float(rows.row(head, i), row_.data(), dim_);
    add(row_);
  }
}

std::vector<float> Directions::leading(std::int64_t directions) const {
  return leading_eigenvectors(Eigen::Map<const Matrix>(products_.data(), dim_, dim_), directions);
}

std::vector<float> Directions::principal(std::int64_t directions) const {
  Matrix covariance = Eigen::Map<const Matrix>(products_.data(), dim_, dim_);
  const Eigen::Map<const Eigen::VectorXd> sum(sum_.data(), dim_);
  if (count_ > 0) covariance -= sum * sum.transpose() / static_cast<double>(count_);
  return leading_eigenvectors(covariance, directions);
}

}  // namespace kvreplay
