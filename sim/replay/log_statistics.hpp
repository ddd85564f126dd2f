#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/statistics.hpp"
#include "policies/decide/log/access_log.hpp"
#include "traces/trace.hpp"

namespace kvreplay {

/// How groups are spread, updated, selected again and read, in one layer of one access log or in
/// all of its layers that select (the footer of `kvreplay statistics` defines the names).
struct LogStatistics {
  struct Field {
    std::string name;
    Mean mean;  ///< of nothing where count is 0
    int decimals = 0;
  };
  std::string system;
  std::string layer;  ///< the recorded model's number, or "all"
  std::vector<Field> fields;
};

/// One for each layer that selects, or (not `by_layer`) one for all of them. `trace`: the one that
/// was replayed, or null: then there is no variance of keys.
[[nodiscard]] std::vector<LogStatistics> log_statistics(const AccessLog& log,
                                                        const TraceReader* trace, bool by_layer);

/// The logs that a path names: itself, or those of a folder of results. UserError where it has
/// none.
[[nodiscard]] std::vector<std::string> access_logs_at(const std::string& path);

/// To be read; "-" for a mean of nothing. At least one row.
[[nodiscard]] std::string statistics_table(std::span<const LogStatistics> rows);
/// The same as JSON; null for a mean of nothing.
[[nodiscard]] std::string statistics_json(std::span<const LogStatistics> rows);

}  // namespace kvreplay
