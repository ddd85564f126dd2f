#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/statistics.hpp"
#include "policies/decide/log/access_log.hpp"
#include "traces/trace.hpp"

namespace kvreplay {

/// How groups are spread, updated, selected again and read, in one layer of an access log or over
/// all of its layers that select. The footer of `kvreplay statistics` defines the names.
struct LogStatistics {
  struct Field {
    std::string name;
    Mean mean;  ///< undefined where count is 0
    int decimals = 0;
  };
  std::string system;
  std::string layer;  ///< the recorded model's number, or "all"
  std::vector<Field> fields;
};

/// One result per layer that selects or, unless `by_layer`, one for all of them. `trace`: the
/// replayed trace, or null, which leaves out the variance of keys.
[[nodiscard]] std::vector<LogStatistics> log_statistics(const AccessLog& log,
                                                        const TraceReader* trace, bool by_layer);

/// The access logs at a path: the file itself, or those of a folder of results. Throws UserError
/// where there are none.
[[nodiscard]] std::vector<std::string> access_logs_at(const std::string& path);

/// For people, with "-" for an undefined mean. `rows` must not be empty.
[[nodiscard]] std::string statistics_table(std::span<const LogStatistics> rows);
/// The same as JSON, with null for an undefined mean.
[[nodiscard]] std::string statistics_json(std::span<const LogStatistics> rows);

}  // namespace kvreplay
