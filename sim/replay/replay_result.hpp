#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/parameters.hpp"
#include "devices/endurance.hpp"
#include "policies/decide/layer_means.hpp"
#include "sim/time/time_plan.hpp"
#include "sim/time/timeline.hpp"

namespace kvreplay {

/// Names and values of the experiment's swept keys; no value where the key reaches nothing in the
/// row.
using RowSettings = std::vector<std::pair<std::string, std::optional<Value>>>;

/// One recorded layer of one system: a row of quality.csv.
struct LayerQuality {
  std::string trace;
  bool synthetic = false;  ///< the trace was generated, not recorded
  std::string system;
  RowSettings settings;  ///< those that stage 1 may depend on
  std::int64_t layer = 0;
  bool full_attention = false;
  QualityMeans means;
};

/// The shape of the conversations by which wear is counted: the prompt, then so many decoded
/// tokens.
struct Conversation {
  std::int64_t tokens = 0;
  double per_day = 0;
};

/// One cell of the experiment: a row of results.csv.
struct CellResult {
  std::string trace;
  bool synthetic = false;  ///< the trace was generated, not recorded
  std::string system;
  std::string model;
  std::string platform;
  std::string device;
  std::int64_t batch = 1;
  std::string projection;  ///< "none", or the recorded and the target shape
  /// Of the recording, where it stands for a longer sequence: what quality and hit rates are of;
  /// 0 = it stands for its own length.
  std::int64_t stretched_from_tokens = 0;
  RowSettings settings;
  std::int64_t platform_dram_bytes = 0;
  Endurance endurance;  ///< of the device
  Conversation conversation;
  Timing timing;
  QualityMeans quality;
  std::vector<QualityMeans> turn_quality;  ///< of a conversation's turns
  std::int64_t worst_layer = 0;            ///< the recorded model's number, of worst_layer()
  double worst_layer_error = 0;            ///< its output_error
  std::string marks;                       ///< of marks_of()
};

struct TraceHash {
  std::string trace;   ///< name in the rows
  std::string sha256;  ///< of the file
  bool synthetic = false;
};

struct ReplayResult {
  std::vector<CellResult> cells;  ///< of the shard, in the experiment's order
  std::vector<LayerQuality> layers;
  std::vector<TraceHash> traces;

  std::vector<CellTimeline> timelines;  ///< of the first cells: ReplayOptions::timeline_steps

  // Places in the whole experiment: cells[i] is the cell with number cell_numbers[i], and layers[i]
  // belongs to the block of rows that the cell layer_blocks[i] needs first.
  std::vector<std::size_t> cell_numbers;
  std::vector<std::size_t> layer_blocks;
};

}  // namespace kvreplay
