#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "base/config.hpp"
#include "devices/real/block_target.hpp"

namespace kvreplay {

/// What the agent does for one kvreplay: it takes requests in frames from `input` and answers in
/// frames to `output`. It touches only the target that its first request names, and does only what
/// its verbs say. docs/real-devices.md describes the protocol.
///
/// The end of the input ends the process at once: the other side is gone, and nothing of the agent
/// outlives it. A session whose run() has begun is never destroyed, because its threads use it.
class Session {
 public:
  /// `sha256`: hash of the program, so that the other side knows what answers.
  Session(int input, int output, std::string sha256);

  /// Runs until `bye`. Throws UserError when the input is not a frame.
  void run();

 private:
  using Json = nlohmann::ordered_json;

  void read_requests();
  void beat();
  [[nodiscard]] std::string next_request();
  void send(const Json& event);

  void answer(const ConfigNode& request);
  void hello(const ConfigNode& request);
  void create(const ConfigNode& request);
  void open(const ConfigNode& request);
  void remove(const ConfigNode& request);
  void probe(const ConfigNode& request);
  void schedule(const ConfigNode& request);
  void replay(const ConfigNode& request);
  void send_target();
  [[nodiscard]] const BlockTarget& target() const;

  const int input_;
  const int output_;
  const std::string sha256_;

  std::mutex output_mutex_;
  std::mutex mutex_;  ///< guards what the reading thread hands over
  std::condition_variable changed_;
  std::deque<std::string> requests_;
  std::size_t waiting_bytes_ = 0;      ///< of requests_
  std::optional<std::string> broken_;  ///< why no more requests can be read
  std::atomic<bool> stop_{false};

  std::optional<std::string> path_;  ///< path of the target, once the other side has said hello
  bool allow_destructive_ = false;
  std::optional<BlockTarget> target_;
  std::string schedule_;  ///< text received so far
};

}  // namespace kvreplay
