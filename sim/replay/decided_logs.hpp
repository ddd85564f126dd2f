#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "policies/decide/log/access_log.hpp"
#include "policies/place/place.hpp"
#include "sim/replay/stage_context.hpp"

namespace kvreplay {

/// Runs stage 1. The access logs of a graph's decisions are decided together, or found in the
/// store. A log stays in memory until it is released. get() and bounds() are thread-safe.
class DecidedLogs {
 public:
  DecidedLogs(const StageContext& context, bool record_tokens);
  ~DecidedLogs();
  DecidedLogs(const DecidedLogs&) = delete;
  DecidedLogs& operator=(const DecidedLogs&) = delete;

  /// Upper limit of a log's memory: each query head's row of every step may pick every token as a
  /// group of its own, and attend to it.
  [[nodiscard]] std::int64_t max_bytes(std::size_t decision) const;

  /// Makes the decisions, which must all be of one LockstepGroup. If another process is already
  /// deciding them, the call waits and takes its results.
  void decide(std::vector<std::size_t> decisions);
  /// The log, as decided or stored. It is decided again if the store has lost it meanwhile.
  [[nodiscard]] std::shared_ptr<const AccessLog> get(std::size_t decision);
  /// What plans of the log share. Dropped when the log is released.
  [[nodiscard]] OracleBounds& bounds(std::size_t decision, const KvShape& shape);
  void release(std::size_t decision);

 private:
  struct Held;

  void decide_together(std::span<const std::size_t> decisions);
  [[nodiscard]] std::shared_ptr<const AccessLog> stored_log(std::size_t decision) const;

  const StageContext& context_;
  const bool record_tokens_;
  std::vector<std::unique_ptr<Held>> held_;  ///< by decision
  std::mutex decide_mutex_;                  ///< one decision at a time, on all threads
};

}  // namespace kvreplay
