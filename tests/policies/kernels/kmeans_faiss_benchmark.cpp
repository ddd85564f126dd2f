#include <benchmark/benchmark.h>
#include <cblas.h>
#include <faiss/Clustering.h>
#include <faiss/IndexFlat.h>
#include <omp.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <iostream>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/build_info.hpp"
#include "base/error.hpp"
#include "tests/policies/kernels/support.hpp"
#include "traces/trace.hpp"

// Compares k_means() with faiss::Clustering on the keys of real traces: every KV head of a layer,
// the prompt's tokens, Euclidean, one thread, the same first centroids and iterations, including a
// last assignment. The two differ in what they read (ours half precision, faiss single, converted
// before its time starts) and in empty clusters (ours keep their centroid, faiss splits a full
// one). A newer faiss stops early when its objective repeats, so speeds are compared by the
// arithmetic of comparing every row with every centroid, of which ours leaves out what bounds rule
// out: "speed-up" is our GFLOP/s divided by that of faiss.
//
// KVREPLAY_FULL_TRACES may name a folder with the longer recordings.

namespace kvreplay::kernels {
namespace {

constexpr std::int64_t kIterations = 20;
constexpr std::uint64_t kSeed = 1;
constexpr std::int64_t kTokensPerCluster = 80;

struct Task {
  std::vector<Half> halves;
  std::vector<float> floats;           ///< the same keys, [rows, dim]
  std::vector<float> first_centroids;  ///< [clusters, dim]
  std::int64_t rows = 0;
  std::int64_t dim = 0;
  std::int64_t clusters = 0;

  /// Assignments: the first or the last one, and one per iteration.
  [[nodiscard]] double flops(std::int64_t iterations) const {
    return 2.0 * static_cast<double>((iterations + 1) * rows * clusters * dim);
  }
};

template <typename Label>
struct Clusters {
  std::vector<float> centroids;  ///< [clusters, dim]
  std::vector<Label> labels;     ///< [rows]
  std::int64_t iterations = 0;   ///< done
};

Clusters<std::int32_t> cluster_ours(const Task& task, std::int64_t iterations = kIterations) {
  Clusters<std::int32_t> result{std::vector<float>(at(task.clusters * task.dim)),
                                std::vector<std::int32_t>(at(task.rows)), 0};
  const KMeansOptions options{Metric::kEuclidean, task.clusters, iterations, false, kSeed};
  result.iterations =
      k_means(task.halves.data(), task.rows, task.dim, options, result.centroids, result.labels);
  return result;
}

Clusters<std::int64_t> cluster_faiss(const Task& task) {
  faiss::ClusteringParameters parameters;
  parameters.niter = static_cast<int>(kIterations);
  parameters.nredo = 1;
  parameters.spherical = false;
  parameters.min_points_per_centroid = 1;
  // Above rows / clusters, so that faiss takes every row instead of a sample.
  parameters.max_points_per_centroid = static_cast<int>(task.rows);
  faiss::Clustering clustering(static_cast<int>(task.dim), static_cast<int>(task.clusters),
                               parameters);
  clustering.centroids = task.first_centroids;
  faiss::IndexFlatL2 index(task.dim);
  clustering.train(task.rows, task.floats.data(), index);

  const auto iterations = static_cast<std::int64_t>(clustering.iteration_stats.size());
  Clusters<std::int64_t> result{std::move(clustering.centroids),
                                std::vector<std::int64_t>(at(task.rows)), iterations};
  index.assign(task.rows, task.floats.data(), result.labels.data());
  return result;
}

/// The sum over rows of |row - its centroid|^2.
template <typename Label>
double inertia(const Task& task, const Clusters<Label>& clusters) {
  double sum = 0.0;
  for (std::int64_t n = 0; n < task.rows; ++n) {
    const float* row = task.floats.data() + n * task.dim;
    const float* centroid = clusters.centroids.data() + clusters.labels[at(n)] * task.dim;
    for (std::int64_t d = 0; d < task.dim; ++d) {
      const double difference = static_cast<double>(row[d]) - static_cast<double>(centroid[d]);
      sum += difference * difference;
    }
  }
  return sum;
}

/// One task per KV head. `index`: of the trace's recorded layers.
std::vector<Task> layer_tasks(const std::string& file, std::int64_t index, std::int64_t clusters) {
  const TraceReader reader(file);
  const TraceLayer layer = reader.load_layer(index);
  std::vector<Task> tasks;
  for (std::int64_t head = 0; head < reader.info().kv_heads; ++head) {
    Task task;
    task.rows = reader.info().prompt_tokens;
    task.dim = reader.info().head_dim;
    task.clusters = clusters;
    const Half* keys = layer.keys.row(head, 0);
    task.halves.assign(keys, keys + task.rows * task.dim);
    task.floats.resize(task.halves.size());
    to_float(task.halves.data(), task.floats.data(), task.rows * task.dim);
    task.first_centroids = cluster_ours(task, 0).centroids;
    tasks.push_back(std::move(task));
  }
  return tasks;
}

/// Processor time of all threads, so that other programs on a shared machine do not count.
double seconds_of(const std::function<void()>& work) {
  const std::clock_t start = std::clock();
  work();
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

/// The two take turns, so that other load of the machine affects both; each keeps its shortest
/// time.
void compare(benchmark::State& state, const std::string& file, std::int64_t index,
             std::int64_t clusters, Isa isa) {
  const WithIsa with(isa);
  double ours_flops = 0.0;
  double faiss_flops = 0.0;
  double ours_s = std::numeric_limits<double>::infinity();
  double faiss_s = ours_s;
  double ours_inertia = 0.0;
  double faiss_inertia = 0.0;
  const std::vector<Task> tasks = layer_tasks(file, index, clusters);
  for (const Task& task : tasks) {
    const auto ours = cluster_ours(task);
    const auto theirs = cluster_faiss(task);
    ours_flops += task.flops(ours.iterations);
    faiss_flops += task.flops(theirs.iterations);
    ours_inertia += inertia(task, ours);
    faiss_inertia += inertia(task, theirs);
  }
  for (auto _ : state) {
    ours_s = std::min(ours_s, seconds_of([&] {
                        for (const Task& task : tasks) benchmark::DoNotOptimize(cluster_ours(task));
                      }));
    faiss_s = std::min(faiss_s, seconds_of([&] {
                         for (const Task& task : tasks)
                           benchmark::DoNotOptimize(cluster_faiss(task));
                       }));
  }
  state.counters["ours_ms"] = ours_s * 1e3;
  state.counters["faiss_ms"] = faiss_s * 1e3;
  state.counters["speed-up"] = ours_flops / ours_s / (faiss_flops / faiss_s);
  state.counters["ours_GFLOP/s"] = ours_flops / ours_s * 1e-9;
  state.counters["faiss_GFLOP/s"] = faiss_flops / faiss_s * 1e-9;
  state.counters["ours_inertia"] = ours_inertia;
  state.counters["faiss_inertia"] = faiss_inertia;
}

void register_trace(const std::string& name, const std::string& file,
                    const std::array<std::int64_t, 2>& layers) {
  const TraceInfo info = TraceReader(file).info();
  const std::int64_t tokens = info.prompt_tokens;
  for (const std::int64_t layer : layers) {
    const auto& recorded = info.recorded_layers;
    const std::int64_t index =
        std::find(recorded.begin(), recorded.end(), layer) - recorded.begin();
    for (const std::int64_t clusters :
         {tokens / kTokensPerCluster, std::int64_t{96}, std::int64_t{256}}) {
      for (const Isa isa : {Isa::kAvx512, Isa::kAvx2}) {
        if (isa > best_isa()) continue;
        const std::string title =
            name + "/layer:" + std::to_string(layer) + "/rows:" + std::to_string(tokens) +
            "/clusters:" + std::to_string(clusters) + "/" + std::string(isa_name(isa));
        benchmark::RegisterBenchmark(title.c_str(), compare, file, index, clusters, isa)
            ->Unit(benchmark::kMillisecond)
            ->MinTime(1.0);
      }
    }
  }
}

void register_all() {
  register_trace("story-3k", source_folder() + "/traces/data/smollm2-135m-story-3k.kvtrace.h5",
                 {12, 24});
  if (const char* folder = std::getenv("KVREPLAY_FULL_TRACES")) {
    register_trace("dialogue-8k", std::string(folder) + "/smollm2-135m-dialogue-8k.kvtrace.h5",
                   {10, 26});
  }
}

}  // namespace
}  // namespace kvreplay::kernels

int main(int argc, char** argv) try {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  omp_set_num_threads(1);
  openblas_set_num_threads(1);
  benchmark::AddCustomContext("openblas_kernel", openblas_get_corename());
  kvreplay::kernels::register_all();
  benchmark::RunSpecifiedBenchmarks();
} catch (const kvreplay::UserError& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
