#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "devices/real/probe.hpp"
#include "devices/real/replay_target.hpp"
#include "devices/remote/child_process.hpp"
#include "devices/remote/frame.hpp"
#include "devices/remote/transport.hpp"

namespace kvreplay {

struct RemoteOptions {
  std::string agent;   ///< the program to send; "": the one in `agents` that suits the device
  std::string agents;  ///< folder of kvreplay-agent-MACHINE
  std::string folder;  ///< on the device, for the agent; "": the transport's default
  std::chrono::milliseconds silence{20'000};  ///< after this time the link counts as lost
  bool allow_destructive = false;
};

/// A device on the other side of a transport. An agent is sent there and started, executes
/// requests, and is removed afterwards. Every failure is a UserError that names the device. No call
/// waits for longer than `silence` without a sign of life.
class RemoteDevice {
 public:
  RemoteDevice(DeviceAddress address, RemoteOptions options);
  ~RemoteDevice();
  RemoteDevice(const RemoteDevice&) = delete;
  RemoteDevice& operator=(const RemoteDevice&) = delete;

  /// What the agent reported about itself and the device.
  [[nodiscard]] const nlohmann::ordered_json& hello() const { return *hello_; }
  [[nodiscard]] std::string name() const { return address_.transport->name(); }

  /// Creates the target as a new file. `on_progress` receives the bytes written so far.
  void create(std::uint64_t bytes, const std::atomic<bool>& stop,
              const std::function<void(std::uint64_t done_bytes)>& on_progress);
  /// Opens the target, which must exist.
  void open(bool write);
  /// Like run_probe(), on the device.
  [[nodiscard]] ProbeEnd probe(const ProbeRequest& request, const std::atomic<bool>& stop,
                               const ProbeSink& sink);
  /// Like replay_schedule(), on the device; it waits for the duration of computations. Steps are
  /// reported once per second. A device that is lost after some steps have arrived is not a
  /// UserError: it ends the replay.
  [[nodiscard]] ReplayEnd replay(const Schedule& schedule, const ReplayRequest& request,
                                 const std::atomic<bool>& stop, const ReplaySink& sink);

 private:
  using Json = nlohmann::ordered_json;
  using OnEvent = std::function<void(const Json& event)>;

  /// What the command line printed there, with `input` as its standard input. `what` names it in an
  /// error.
  [[nodiscard]] std::string run_there(const std::string& line, const std::string& what,
                                      std::string_view input = {});
  void send_agent(const std::string& file, const std::string& remote);
  void start();
  void end_quietly();
  /// Sends a request, passes every event to `on_event`, and returns the one named `last`.
  Json ask(const Json& request, const std::string& last, const std::atomic<bool>& stop,
           const OnEvent& on_event = {});
  /// Passes on the one setting that comes before all measurements.
  void take_setting(const Json& setting, bool& has_setting,
                    const std::function<void(const Json&)>& on_setting);
  void send(const Json& request);
  [[nodiscard]] std::optional<Json> next_event(std::chrono::milliseconds patience);
  [[nodiscard]] UserError lost(const std::string& how);
  [[nodiscard]] SourceLocation place() const { return {name(), ""}; }

  DeviceAddress address_;
  RemoteOptions options_;
  std::unique_ptr<ChildProcess> link_;
  FrameDecoder decoder_;
  std::unique_ptr<Json> hello_;
  std::string sent_agent_;  ///< a file on the device that may have to be removed
};

}  // namespace kvreplay
