#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/experiment.hpp"
#include "sim/time.hpp"

namespace kvreplay {

/// Means over decode steps, query heads and the recorded layers in which the system selects (not
/// its dense ones): docs/metrics.md.
struct QualityMeans {
  double recall = 0;
  double attention_mass = 0;
  double best_attention_mass = 0;
  double output_error = 0;
  double attended_tokens = 0;
};

/// One recorded layer of one system: a row of quality.csv.
struct LayerQuality {
  std::string trace;
  bool synthetic = false;  ///< the trace was generated, not recorded
  std::string system;
  std::int64_t layer = 0;
  bool dense = false;
  QualityMeans means;
};

/// One combination of the experiment's lists: a row of results.csv.
struct CellResult {
  std::string trace;
  bool synthetic = false;  ///< the trace was generated, not recorded
  std::string system;
  std::string model;
  std::string platform;
  std::string device;
  std::int64_t batch = 1;
  std::string projection;  ///< "none", or the recorded and the target shape
  std::int64_t platform_dram_bytes = 0;
  Timing timing;
  QualityMeans quality;
};

struct TraceHash {
  std::string trace;   ///< as the rows name it
  std::string sha256;  ///< of the file
  bool synthetic = false;
};

struct ReplayResult {
  std::vector<CellResult> cells;  ///< by trace, model, platform, batch, device, system
  std::vector<LayerQuality> layers;
  std::vector<TraceHash> traces;
};

struct ReplayOptions {
  bool show_progress = false;
  /// Where to write TRACE.SYSTEM.access.h5 for every access log; "" = nowhere.
  std::string access_log_folder;
  bool record_tokens = false;  ///< the access logs name every attended token
  /// Receives what the timed steps do. Then the experiment has one cell: a UserError otherwise.
  Schedule* schedule = nullptr;
};

/// The three stages end to end: decides once for all systems of a trace, places once for each
/// system and model, and times every cell.
[[nodiscard]] ReplayResult replay(const Experiment& experiment, const ReplayOptions& options = {});

}  // namespace kvreplay
