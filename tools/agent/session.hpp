#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "base/config.hpp"
#include "devices/real/block_target.hpp"

namespace kvreplay {

/// What the agent does for one kvreplay: takes requests in frames from `input`, answers in frames
/// to `output`. It touches one target, which its first request names, and does what its verbs say,
/// nothing else. docs/real-devices.md has the protocol.
///
/// The end of the input ends the process at once: the other side is gone, and the agent has nothing
/// that outlives it. A session whose run() has begun is never destroyed: its threads use it.
class Session {
 public:
  /// `sha256` is of the program, so that the other side knows what answers.
  Session(int input, int output, std::string sha256);

  /// Until `bye`. UserError when the input is no frame.
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
  std::mutex mutex_;  ///< of what the reading thread hands over
  std::condition_variable changed_;
  std::deque<std::string> requests_;
  std::optional<std::string> broken_;  ///< why no more requests can be read
  std::atomic<bool> stop_{false};

  std::optional<std::string> path_;  ///< of the target, once the other side has said hello
  bool allow_destructive_ = false;
  std::optional<BlockTarget> target_;
  std::string schedule_;  ///< text, as far as it has come
};

}  // namespace kvreplay
