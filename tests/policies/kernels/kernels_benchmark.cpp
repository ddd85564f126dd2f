#include <benchmark/benchmark.h>

#include <Eigen/Core>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <numeric>
#include <span>
#include <vector>

#include "policies/kernels/coded_rows.hpp"
#include "policies/kernels/table.hpp"
#include "tests/policies/kernels/limits.hpp"
#include "tests/policies/kernels/support.hpp"

#if defined(KVREPLAY_HAS_OPENBLAS)
#include <cblas.h>
#endif

// Compares the kernels with what one would write with Eigen or the standard library, and with the
// machine's limits, measured here too. "of_limit" is the time that the slower of memory and
// arithmetic alone would take, divided by the time taken. Build with -march=native for Eigen's
// best.

namespace kvreplay::kernels {
namespace {

// ---- Limits ----

double seconds_now() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

/// The shortest time per call of many calls, because the machine may be shared.
template <typename Work>
double shortest_s(Work work) {
  double shortest = 1e9;
  const double end = seconds_now() + 0.2;
  for (int i = 0; i < 3 || seconds_now() < end; ++i) {
    const double start = seconds_now();
    work();
    shortest = std::min(shortest, seconds_now() - start);
  }
  return shortest;
}

double peak_flops() {
  if (!limits_are_known()) return 0.0;
  static const double peak =
      kMultiplyOperations / shortest_s([] { benchmark::DoNotOptimize(multiply_all()); });
  return peak;
}

/// Of products of 8-bit integers that are added up, two operations each.
double peak_operations8() {
  if (!limits_are_known()) return 0.0;
  static const double peak =
      kMultiply8Operations / shortest_s([] { benchmark::DoNotOptimize(multiply8_all()); });
  return peak;
}

/// Bytes per second that one core reads from a buffer of this size, wherever that stays.
double read_rate(std::int64_t bytes) {
  if (!limits_are_known()) return 0.0;
  static std::map<std::int64_t, double> rates;
  double& rate = rates[bytes];
  if (rate == 0.0) {
    const std::vector<char> data(at(bytes), 1);
    rate = static_cast<double>(bytes) /
           shortest_s([&] { benchmark::DoNotOptimize(read_all(data.data(), data.size())); });
  }
  return rate;
}

/// bytes and flops: per iteration; footprint: bytes that all iterations pass over.
void report(benchmark::State& state, double bytes, double flops, std::int64_t footprint,
            double peak = peak_flops()) {
  using benchmark::Counter;
  const auto rate = Counter::kIsIterationInvariantRate;
  state.counters["GB/s"] = Counter(bytes * 1e-9, rate);
  state.counters["GFLOP/s"] = Counter(flops * 1e-9, rate);
  const double limit = std::max(bytes / read_rate(footprint), flops / peak);
  state.counters["of_limit"] = Counter(limit, rate);
}

void limit_memory(benchmark::State& state) {
  const std::int64_t bytes = state.range(0);
  for (auto _ : state) benchmark::DoNotOptimize(read_rate(bytes));
  state.counters["GB/s"] = read_rate(bytes) * 1e-9;
}
BENCHMARK(limit_memory)->RangeMultiplier(2)->Range(1 << 19, 1 << 26)->Iterations(1);

void limit_arithmetic(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(peak_flops());
  state.counters["GFLOP/s"] = peak_flops() * 1e-9;
}
BENCHMARK(limit_arithmetic)->Iterations(1);

void limit_arithmetic8(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(peak_operations8());
  state.counters["GOP/s"] = peak_operations8() * 1e-9;
}
BENCHMARK(limit_arithmetic8)->Iterations(1);

// ---- Scores: {queries, rows, dim} ----

using HalfMatrix = Eigen::Matrix<Eigen::half, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

Eigen::Map<const HalfMatrix> as_eigen(const std::vector<Half>& rows, std::int64_t dim) {
  static_assert(sizeof(Half) == sizeof(Eigen::half));
  return {reinterpret_cast<const Eigen::half*>(rows.data()),
          static_cast<std::int64_t>(rows.size()) / dim, dim};
}
Eigen::Map<const Matrix> as_eigen(const std::vector<float>& rows, std::int64_t dim) {
  return {rows.data(), static_cast<std::int64_t>(rows.size()) / dim, dim};
}

template <typename T>
std::vector<T> random_rows(std::int64_t n) {
  if constexpr (std::is_same_v<T, Half>) return random_halves(n, 1);
  if constexpr (std::is_same_v<T, float>) return random_floats(n, 1);
}

template <typename T>
void report_score(benchmark::State& state) {
  const std::int64_t elements = state.range(1) * state.range(2);
  const auto bytes = elements * static_cast<std::int64_t>(sizeof(T));
  const double flops = 2.0 * static_cast<double>(elements * state.range(0));
  report(state, static_cast<double>(bytes), flops, bytes);
}

template <typename T, Isa kIsa>
void score_ours(benchmark::State& state) {
  if (kIsa > best_isa()) return state.SkipWithError("not on this machine");
  const WithIsa with(kIsa);
  const std::int64_t queries = state.range(0);
  const std::int64_t rows = state.range(1);
  const std::int64_t dim = state.range(2);
  const std::vector<float> query = random_floats(queries * dim, 2);
  const std::vector<T> data = random_rows<T>(rows * dim);
  std::vector<float> scores(at(queries * rows));
  for (auto _ : state) {
    score(query.data(), queries, data.data(), rows, dim, scores.data(), rows);
    benchmark::ClobberMemory();
  }
  report_score<T>(state);
}

template <typename T>
void score_eigen(benchmark::State& state) {
  const std::int64_t dim = state.range(2);
  const std::vector<float> query = random_floats(state.range(0) * dim, 2);
  const std::vector<T> data = random_rows<T>(state.range(1) * dim);
  Matrix scores(state.range(0), state.range(1));
  const auto rows = as_eigen(data, dim);
  for (auto _ : state) {
    if (state.range(0) == 1) {
      const Eigen::Map<const Eigen::VectorXf> one(query.data(), dim);
      scores.row(0).transpose().noalias() = rows.template cast<float>() * one;
    } else {
      scores.noalias() = as_eigen(query, dim) * rows.template cast<float>().transpose();
    }
    benchmark::ClobberMemory();
  }
  report_score<T>(state);
}

void score_shapes(benchmark::internal::Benchmark* b) {
  b->ArgsProduct({{1, 3, 4, 8}, {4096, 131072}, {64, 128}});
}
BENCHMARK_TEMPLATE(score_ours, Half, Isa::kAvx512)->Apply(score_shapes);
BENCHMARK_TEMPLATE(score_ours, Half, Isa::kAvx2)->Apply(score_shapes);
BENCHMARK_TEMPLATE(score_ours, Half, Isa::kScalar)->Args({4, 4096, 128});
BENCHMARK(score_eigen<Half>)->Apply(score_shapes);
BENCHMARK_TEMPLATE(score_ours, float, Isa::kAvx512)->Apply(score_shapes);
BENCHMARK_TEMPLATE(score_ours, float, Isa::kAvx2)->Apply(score_shapes);
BENCHMARK(score_eigen<float>)->Apply(score_shapes);

// ---- Scores from codes: {queries, rows, dim} ----

template <int kBits, Isa kIsa>
void score_codes(benchmark::State& state) {
  if (kIsa > best_isa()) return state.SkipWithError("not on this machine");
  const WithIsa with(kIsa);
  const std::int64_t queries = state.range(0);
  const std::int64_t rows = state.range(1);
  const std::int64_t dim = state.range(2);
  const std::vector<float> query = random_floats(queries * dim, 2);
  const std::vector<float> offsets(at(queries));
  const std::vector<float> data = random_floats(rows * dim, 1);
  CodedRows codes(dim, kBits);
  codes.resize(rows);
  for (std::int64_t n = 0; n < rows; ++n) codes.set(n, data.data() + n * dim);
  std::vector<float> scores(at(queries * rows));
  for (auto _ : state) {
    codes.score(query.data(), queries, offsets.data(), scores.data(), rows);
    benchmark::ClobberMemory();
  }
  const std::int64_t bytes = rows * (dim * kBits / 8 + 2);
  report(state, static_cast<double>(bytes), 2.0 * static_cast<double>(rows * dim * queries), bytes,
         peak_operations8());
}
void coded_shapes(benchmark::internal::Benchmark* b) {
  b->ArgsProduct({{1, 6}, {4096, 32768, 131072}, {128}});
}
BENCHMARK_TEMPLATE(score_codes, 8, Isa::kAvx512)->Apply(coded_shapes);
BENCHMARK_TEMPLATE(score_codes, 4, Isa::kAvx512)->Apply(coded_shapes);
BENCHMARK_TEMPLATE(score_codes, 8, Isa::kAvx2)->Apply(coded_shapes);
BENCHMARK_TEMPLATE(score_codes, 4, Isa::kAvx2)->Apply(coded_shapes);

// ---- Top k: {n, k} ----

void report_top_k(benchmark::State& state) {
  const std::int64_t bytes = state.range(0) * 4;
  report(state, static_cast<double>(bytes), 0.0, bytes);
}

void top_k_ours(benchmark::State& state) {
  const std::vector<float> scores = random_floats(state.range(0), 3);
  std::vector<std::int32_t> indices(at(state.range(1)));
  for (auto _ : state) {
    top_k(scores.data(), state.range(0), state.range(1), indices);
    benchmark::ClobberMemory();
  }
  report_top_k(state);
}

template <bool kPartialSort>
void top_k_standard(benchmark::State& state) {
  const std::vector<float> scores = random_floats(state.range(0), 3);
  std::vector<std::int32_t> order(scores.size());
  const auto before = [&](std::int32_t a, std::int32_t b) {
    const float x = scores[at(a)];
    const float y = scores[at(b)];
    return x > y || (x == y && a < b);
  };
  for (auto _ : state) {
    std::iota(order.begin(), order.end(), 0);
    const auto end = order.begin() + state.range(1);
    if constexpr (kPartialSort) std::partial_sort(order.begin(), end, order.end(), before);
    if constexpr (!kPartialSort) std::nth_element(order.begin(), end, order.end(), before);
    std::sort(order.begin(), end);
    benchmark::ClobberMemory();
  }
  report_top_k(state);
}

void top_k_shapes(benchmark::internal::Benchmark* b) {
  b->ArgsProduct({{4096, 32768, 131072}, {256, 1024}});
}
BENCHMARK(top_k_ours)->Apply(top_k_shapes);
BENCHMARK(top_k_standard<true>)->Name("top_k_partial_sort")->Apply(top_k_shapes);
BENCHMARK(top_k_standard<false>)->Name("top_k_nth_element")->Apply(top_k_shapes);

void order_ours(benchmark::State& state) {
  const std::vector<float> scores = random_floats(state.range(0), 3);
  std::vector<std::int32_t> indices(scores.size());
  for (auto _ : state) {
    order_descending(scores.data(), state.range(0), indices);
    benchmark::ClobberMemory();
  }
  report_top_k(state);
}
BENCHMARK(order_ours)->Arg(512)->Arg(4096)->Arg(131072);

void order_standard(benchmark::State& state) {
  const std::vector<float> scores = random_floats(state.range(0), 3);
  std::vector<std::int32_t> order(scores.size());
  for (auto _ : state) {
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](std::int32_t a, std::int32_t b) { return scores[at(a)] > scores[at(b)]; });
    benchmark::ClobberMemory();
  }
  report_top_k(state);
}
BENCHMARK(order_standard)->Arg(512)->Arg(4096)->Arg(131072);

// ---- Attention over a subset: {tokens read, dim} of 32,768 ----

constexpr std::int64_t kContext = 32768;

std::vector<std::int32_t> spread_tokens(std::int64_t count) {
  std::vector<std::int32_t> tokens;
  Random random(4);
  const std::int64_t step = kContext / count;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto offset = random.below(static_cast<std::uint64_t>(step));
    tokens.push_back(static_cast<std::int32_t>(i * step + static_cast<std::int64_t>(offset)));
  }
  return tokens;
}

void report_attend(benchmark::State& state) {
  const std::int64_t elements = 2 * state.range(0) * state.range(1);
  report(state, 2.0 * static_cast<double>(elements), 2.0 * static_cast<double>(elements),
         2 * elements);
}

template <Isa kIsa>
void attend_ours(benchmark::State& state) {
  if (kIsa > best_isa()) return state.SkipWithError("not on this machine");
  const WithIsa with(kIsa);
  const std::int64_t dim = state.range(1);
  const std::vector<float> query = random_floats(dim, 5);
  const std::vector<Half> keys = random_halves(kContext * dim, 6);
  const std::vector<Half> values = random_halves(kContext * dim, 7);
  const std::vector<std::int32_t> tokens = spread_tokens(state.range(0));
  std::vector<float> weights(tokens.size());
  std::vector<float> output(at(dim));
  for (auto _ : state) {
    benchmark::DoNotOptimize(attend(query.data(), keys.data(), values.data(), tokens, dim, 0.1f,
                                    weights.data(), output.data()));
  }
  report_attend(state);
}

void attend_eigen(benchmark::State& state) {
  const std::int64_t dim = state.range(1);
  const std::vector<float> query_data = random_floats(dim, 5);
  const std::vector<Half> key_data = random_halves(kContext * dim, 6);
  const std::vector<Half> value_data = random_halves(kContext * dim, 7);
  const std::vector<std::int32_t> tokens = spread_tokens(state.range(0));
  const Eigen::Map<const Eigen::RowVectorXf> query(query_data.data(), dim);
  const auto keys = as_eigen(key_data, dim);
  const auto values = as_eigen(value_data, dim);
  Eigen::ArrayXf weights(state.range(0));
  Eigen::RowVectorXf output(dim);
  for (auto _ : state) {
    for (std::int64_t i = 0; i < state.range(0); ++i) {
      weights[i] = keys.row(tokens[at(i)]).cast<float>().dot(query);
    }
    weights = ((weights - weights.maxCoeff()) * 0.1f).exp();
    weights /= weights.sum();
    output.setZero();
    for (std::int64_t i = 0; i < state.range(0); ++i) {
      output += weights[i] * values.row(tokens[at(i)]).cast<float>();
    }
    benchmark::DoNotOptimize(output.data());
    benchmark::ClobberMemory();
  }
  report_attend(state);
}

void attend_shapes(benchmark::internal::Benchmark* b) {
  b->ArgsProduct({{1024, 4096, 16384}, {64, 128}});
}
BENCHMARK_TEMPLATE(attend_ours, Isa::kAvx512)->Apply(attend_shapes);
BENCHMARK_TEMPLATE(attend_ours, Isa::kAvx2)->Apply(attend_shapes);
BENCHMARK(attend_eigen)->Apply(attend_shapes);

void softmax_ours(benchmark::State& state) {
  const std::vector<float> scores = random_floats(state.range(0), 8);
  std::vector<float> values = scores;
  for (auto _ : state) {
    std::copy(scores.begin(), scores.end(), values.begin());
    benchmark::DoNotOptimize(softmax(values.data(), state.range(0), 0.1f));
  }
  report_top_k(state);
}
BENCHMARK(softmax_ours)->Arg(4096)->Arg(131072);

// ---- k-means, 2 iterations: {rows, clusters, dim} ----
//
// Counted as if every row were compared with every centroid.

constexpr std::int64_t kIterations = 2;

void report_k_means(benchmark::State& state) {
  const std::int64_t elements = state.range(0) * state.range(2);
  const auto passes = static_cast<double>(kIterations + 1);
  report(state, passes * 2.0 * static_cast<double>(elements),
         passes * 2.0 * static_cast<double>(elements * state.range(1)), 2 * elements);
}

template <Isa kIsa>
void k_means_ours(benchmark::State& state) {
  if (kIsa > best_isa()) return state.SkipWithError("not on this machine");
  const WithIsa with(kIsa);
  const std::int64_t dim = state.range(2);
  const std::vector<Half> rows = random_halves(state.range(0) * dim, 9);
  std::vector<float> centroids(at(state.range(1) * dim));
  std::vector<std::int32_t> labels(at(state.range(0)));
  const KMeansOptions options{Metric::kEuclidean, state.range(1), kIterations, false, 1};
  for (auto _ : state) {
    k_means(rows.data(), state.range(0), dim, options, centroids, labels);
    benchmark::ClobberMemory();
  }
  report_k_means(state);
}

void k_means_eigen(benchmark::State& state) {
  const std::int64_t dim = state.range(2);
  const std::vector<Half> halves = random_halves(state.range(0) * dim, 9);
  for (auto _ : state) {
    const Matrix rows = as_eigen(halves, dim).cast<float>();
    Matrix centroids = rows.topRows(state.range(1));
    std::vector<Eigen::Index> labels(at(state.range(0)));
    constexpr std::int64_t kBlock = 1024;
    Matrix products(kBlock, state.range(1));
    for (std::int64_t iteration = 0; iteration <= kIterations; ++iteration) {
      const Eigen::RowVectorXf offset = -0.5f * centroids.rowwise().squaredNorm().transpose();
      for (std::int64_t first = 0; first < rows.rows(); first += kBlock) {
        products.noalias() = rows.middleRows(first, kBlock) * centroids.transpose();
        products.rowwise() += offset;
        for (std::int64_t r = 0; r < kBlock; ++r) {
          products.row(r).maxCoeff(&labels[at(first + r)]);
        }
      }
      if (iteration == kIterations) break;
      Eigen::VectorXf sizes = Eigen::VectorXf::Zero(state.range(1));
      centroids.setZero();
      for (std::int64_t n = 0; n < rows.rows(); ++n) {
        centroids.row(labels[at(n)]) += rows.row(n);
        sizes[labels[at(n)]] += 1.0f;
      }
      centroids.array().colwise() /= sizes.array().max(1.0f);
    }
    benchmark::ClobberMemory();
  }
  report_k_means(state);
}

void k_means_shapes(benchmark::internal::Benchmark* b) {
  b->Args({4096, 64, 128})->Args({32768, 400, 64})->Args({32768, 400, 128});
  b->Args({32768, 2048, 128})->Unit(benchmark::kMillisecond);
}
BENCHMARK_TEMPLATE(k_means_ours, Isa::kAvx512)->Apply(k_means_shapes);
BENCHMARK_TEMPLATE(k_means_ours, Isa::kAvx2)->Apply(k_means_shapes);
BENCHMARK(k_means_eigen)->Apply(k_means_shapes);

// ---- Products with a matrix in panels: {rows, inputs, outputs} ----

std::int64_t panel_floats(const benchmark::State& state) {
  return state.range(1) * state.range(2);
}

void report_product(benchmark::State& state, std::int64_t element_bytes) {
  const auto matrix = static_cast<double>(panel_floats(state));
  report(state, matrix * static_cast<double>(element_bytes),
         2.0 * static_cast<double>(state.range(0)) * matrix, panel_floats(state) * element_bytes);
}

template <typename T>
void product(benchmark::State& state) {
  const std::int64_t rows = state.range(0);
  const std::int64_t inputs = state.range(1);
  const std::int64_t outputs = state.range(2);
  const std::vector<float> from = random_floats(rows * inputs, 1);
  const std::vector<T> panels(at(panel_floats(state)));
  std::vector<float> products(at(rows * outputs));
  for (auto _ : state) {
    multiply({.rows = from.data(),
              .row_count = rows,
              .row_stride = inputs,
              .depth = inputs,
              .panel_count = outputs / 16,
              .panel_stride = 16 * inputs,
              .products = products.data(),
              .product_stride = outputs},
             panels.data());
    benchmark::ClobberMemory();
  }
  report_product(state, sizeof(T));
}

void product_eigen(benchmark::State& state) {
  const std::vector<float> from = random_floats(state.range(0) * state.range(1), 1);
  const std::vector<float> weights = random_floats(panel_floats(state), 2);
  Matrix products(state.range(0), state.range(2));
  for (auto _ : state) {
    products.noalias() =
        as_eigen(from, state.range(1)) * as_eigen(weights, state.range(1)).transpose();
    benchmark::ClobberMemory();
  }
  report_product(state, 4);
}

#if defined(KVREPLAY_HAS_OPENBLAS)
void product_openblas(benchmark::State& state) {
  const auto rows = static_cast<int>(state.range(0));
  const auto inputs = static_cast<int>(state.range(1));
  const auto outputs = static_cast<int>(state.range(2));
  const std::vector<float> from = random_floats(state.range(0) * state.range(1), 1);
  const std::vector<float> weights = random_floats(panel_floats(state), 2);
  std::vector<float> products(at(state.range(0) * state.range(2)));
  openblas_set_num_threads(1);
  for (auto _ : state) {
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, rows, outputs, inputs, 1.0F, from.data(),
                inputs, weights.data(), inputs, 0.0F, products.data(), outputs);
    benchmark::ClobberMemory();
  }
  report_product(state, 4);
}
#endif

/// SmolLM2-135M's feed-forward layer, for a step and for a chunk of a prompt; Llama 3.1 8B's.
void product_shapes(benchmark::internal::Benchmark* benchmark) {
  for (const std::int64_t rows : {1, 256}) {
    benchmark->Args({rows, 576, 1536})->Args({rows, 1536, 576});
  }
  benchmark->Args({1, 4096, 14336})->Args({256, 4096, 14336});
}
BENCHMARK(product<float>)->Apply(product_shapes);
BENCHMARK(product<BFloat>)->Apply(product_shapes);
BENCHMARK(product_eigen)->Apply(product_shapes);
#if defined(KVREPLAY_HAS_OPENBLAS)
BENCHMARK(product_openblas)->Apply(product_shapes);
#endif

}  // namespace
}  // namespace kvreplay::kernels
