#include "policies/decide/directions.hpp"

#include <Eigen/Eigenvalues>
#include <cassert>
#include <cmath>

#include "policies/kernels/kernels.hpp"

namespace kvreplay {
namespace {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Stride = Eigen::OuterStride<>;
using Products = Eigen::Map<const Matrix, Eigen::Unaligned, Stride>;

/// Vectors whose products are added together: a sum is loaded and stored once for all of them.
constexpr std::int64_t kRows = 16;
/// Sums that are kept in registers meanwhile.
constexpr int kRun = 8;

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
      stride_((dim + kRun - 1) / kRun * kRun),
      rows_(static_cast<std::size_t>(kRows * stride_)),
      sum_(static_cast<std::size_t>(dim)),
      products_(static_cast<std::size_t>(dim * stride_)),
      row_(static_cast<std::size_t>(dim)) {}

void Directions::add(std::span<const float> vector) {
  assert(std::ssize(vector) == dim_);
  ++count_;
  double* const row = rows_.data() + waiting_ * stride_;
  for (std::size_t i = 0; i < vector.size(); ++i) {
    row[i] = static_cast<double>(vector[i]);
    sum_[i] += row[i];
  }
  if (++waiting_ == kRows) add_waiting();
}

/// Each sum takes the vectors in their order, however many are added together.
void Directions::add_waiting() {
  for (std::int64_t i = 0; i < dim_; ++i) {
    for (std::int64_t j = 0; j <= i; j += kRun) {
      double* const product = products_.data() + i * stride_ + j;
      double sums[kRun];
      for (int k = 0; k < kRun; ++k) sums[k] = product[k];
      for (std::int64_t r = 0; r < waiting_; ++r) {
        const double x = rows_[static_cast<std::size_t>(r * stride_ + i)];
        const double* const others = rows_.data() + r * stride_ + j;
        for (int k = 0; k < kRun; ++k) sums[k] += x * others[k];
      }
      for (int k = 0; k < kRun; ++k) product[k] = sums[k];
    }
  }
  waiting_ = 0;
}

void Directions::add(const HalfTensor& rows, std::int64_t head) {
  for (std::int64_t i = 0; i < rows.tokens; ++i) {
    kernels::to_float(rows.row(head, i), row_.data(), dim_);
    add(row_);
  }
}

std::vector<float> Directions::leading(std::int64_t directions) {
  add_waiting();
  return leading_eigenvectors(Products(products_.data(), dim_, dim_, Stride(stride_)), directions);
}

std::vector<float> Directions::principal(std::int64_t directions) {
  add_waiting();
  Matrix covariance = Products(products_.data(), dim_, dim_, Stride(stride_));
  const Eigen::Map<const Eigen::VectorXd> sum(sum_.data(), dim_);
  if (count_ > 0) covariance -= sum * sum.transpose() / static_cast<double>(count_);
  return leading_eigenvectors(covariance, directions);
}

}  // namespace kvreplay
