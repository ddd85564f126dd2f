// Our side of tools/scripts/compare-speed. Reads one line at a time: a work with its arguments,
// which prepares it and answers "ready", or "run", which does it once and answers with the seconds
// of processor time that it took. The script runs a peer between two runs, so that other load of
// the machine meets both.
//
//   read BYTES             one core reads a buffer
//   multiply               one core's fused multiply-adds, 2e8 operations
//   multiply8              the same of 8-bit integers, 1.6e9 operations
//   score KEYS ROWS DIM QUERIES COUNT TOP
//                          scores of all rows and the TOP largest per query; 0: scores alone
//   codes KEYS ROWS DIM QUERIES COUNT TOP BITS OUT
//                          the same from codes of BITS; the largest go to OUT
//   k_means KEYS ROWS DIM CLUSTERS ITERATIONS OUT
//                          0 iterations: until stable; centroids go to OUT
//   attend KEYS VALUES ROWS DIM QUERY TOKENS COUNT
//
// Files are raw: half-precision rows, single-precision queries, int32 tokens.

#include <cstdint>
#include <ctime>
#include <exception>
#include <fstream>
#include <functional>
#include <iostream>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "policies/kernels/coded_rows.hpp"
#include "policies/kernels/kernels.hpp"
#include "tests/policies/kernels/limits.hpp"

namespace kvreplay::kernels {
namespace {

using Work = std::function<void()>;

std::size_t at(std::int64_t index) {
  return static_cast<std::size_t>(index);
}

template <typename T>
std::vector<T> load(const std::string& file, std::int64_t count) {
  std::vector<T> values(at(count));
  std::ifstream in(file, std::ios::binary);
  const auto bytes = static_cast<std::streamsize>(values.size() * sizeof(T));
  if (!in.read(reinterpret_cast<char*>(values.data()), bytes)) {
    throw std::runtime_error(file + " is shorter than " + std::to_string(bytes) + " bytes");
  }
  return values;
}

volatile double kept = 0;  // so that no work is left out

void keep(double value) {
  kept = value;
}

Work read_work(std::istream& line) {
  std::int64_t bytes = 0;
  line >> bytes;
  return [data = std::vector<char>(at(bytes), 1)] { keep(read_all(data.data(), data.size())); };
}

Work score_work(std::istream& line) {
  std::string keys;
  std::string queries;
  std::int64_t rows = 0;
  std::int64_t dim = 0;
  std::int64_t count = 0;
  std::int64_t top = 0;
  line >> keys >> rows >> dim >> queries >> count >> top;
  return [=, from = load<Half>(keys, rows * dim), query = load<float>(queries, count * dim),
          scores = std::vector<float>(at(count * rows)),
          best = std::vector<std::int32_t>(at(top))]() mutable {
    score(query.data(), count, from.data(), rows, dim, scores.data(), rows);
    if (top > 0) {
      for (std::int64_t q = 0; q < count; ++q) top_k(scores.data() + q * rows, rows, top, best);
    }
    keep(scores.back());
  };
}

template <typename T>
void save(const std::vector<T>& values, const std::string& file) {
  std::ofstream(file, std::ios::binary)
      .write(reinterpret_cast<const char*>(values.data()),
             static_cast<std::streamsize>(values.size() * sizeof(T)));
}

Work codes_work(std::istream& line) {
  std::string keys;
  std::string queries;
  std::string out;
  std::int64_t rows = 0;
  std::int64_t dim = 0;
  std::int64_t count = 0;
  std::int64_t top = 0;
  int bits = 0;
  line >> keys >> rows >> dim >> queries >> count >> top >> bits >> out;
  CodedRows codes(dim, bits);
  codes.resize(rows);
  std::vector<float> row(at(dim));
  const std::vector<Half> from = load<Half>(keys, rows * dim);
  for (std::int64_t n = 0; n < rows; ++n) {
    to_float(from.data() + n * dim, row.data(), dim);
    codes.set(n, row.data());
  }
  return [=, first = true, codes = std::move(codes), query = load<float>(queries, count * dim),
          offsets = std::vector<float>(at(count)), scores = std::vector<float>(at(count * rows)),
          best = std::vector<std::int32_t>(at(count * top))]() mutable {
    codes.score(query.data(), count, offsets.data(), scores.data(), rows);
    keep(scores.back());
    if (top == 0) return;
    for (std::int64_t q = 0; q < count; ++q) {
      top_k(scores.data() + q * rows, rows, top, std::span(best).subspan(at(q * top), at(top)));
    }
    if (std::exchange(first, false)) save(best, out);
  };
}

Work k_means_work(std::istream& line) {
  std::string keys;
  std::string out;
  std::int64_t rows = 0;
  std::int64_t dim = 0;
  std::int64_t clusters = 0;
  std::int64_t iterations = 0;
  line >> keys >> rows >> dim >> clusters >> iterations >> out;
  const bool until_stable = iterations == 0;
  const std::int64_t most = until_stable ? 100000 : iterations;
  const KMeansOptions options{Metric::kEuclidean, clusters, most, until_stable, 1};
  std::vector<float> start(at(clusters * dim));
  std::vector<std::int32_t> labels(at(rows));
  std::vector<Half> from = load<Half>(keys, rows * dim);
  KMeansOptions none = options;
  none.max_iterations = 0;
  k_means(from.data(), rows, dim, none, start, labels);
  save(start, out + ".start");
  return [=, first = true, centroids = std::move(start), labels = std::move(labels),
          from = std::move(from)]() mutable {
    k_means(from.data(), rows, dim, options, centroids, labels);
    if (std::exchange(first, false)) save(centroids, out);
  };
}

Work attend_work(std::istream& line) {
  std::string keys;
  std::string values;
  std::string query_file;
  std::string token_file;
  std::int64_t rows = 0;
  std::int64_t dim = 0;
  std::int64_t count = 0;
  line >> keys >> values >> rows >> dim >> query_file >> token_file >> count;
  return [=, key = load<Half>(keys, rows * dim), value = load<Half>(values, rows * dim),
          query = load<float>(query_file, dim), tokens = load<std::int32_t>(token_file, count),
          weights = std::vector<float>(at(count)), output = std::vector<float>(at(dim))]() mutable {
    keep(attend(query.data(), key.data(), value.data(), tokens, dim, 0.088388f, weights.data(),
                output.data()));
  };
}

/// Processor time, so that other programs on a shared machine do not count.
std::int64_t processor_ns() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<std::int64_t>(time.tv_sec) * 1000000000 + time.tv_nsec;
}

Work work_of(const std::string& text) {
  std::istringstream line(text);
  std::string name;
  line >> name;
  if (name == "read") return read_work(line);
  if (name == "multiply") return [] { keep(multiply_all()); };
  if (name == "multiply8") return [] { keep(multiply8_all()); };
  if (name == "score") return score_work(line);
  if (name == "codes") return codes_work(line);
  if (name == "k_means") return k_means_work(line);
  if (name == "attend") return attend_work(line);
  throw std::runtime_error("no work " + name);
}

void serve() {
  Work work;
  for (std::string line; std::getline(std::cin, line);) {
    if (line != "run") {
      work = work_of(line);
      std::cout << "ready" << std::endl;
      continue;
    }
    const std::int64_t start = processor_ns();
    work();
    std::cout << static_cast<double>(processor_ns() - start) * 1e-9 << std::endl;
  }
}

}  // namespace
}  // namespace kvreplay::kernels

int main(int argc, char** argv) try {
  std::cout.precision(9);
  const std::string isa = argc > 1 ? argv[1] : "";
  for (const auto each : kvreplay::kernels::available_isas()) {
    if (kvreplay::kernels::isa_name(each) == isa) kvreplay::kernels::use_isa(each);
  }
  kvreplay::kernels::serve();
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
