#pragma once

#include <CLI/CLI.hpp>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "devices/real/aligned_buffer.hpp"
#include "tools/kvreplay/option_values.hpp"

namespace kvreplay {

/// The subcommands of `kvreplay device`.
void add_device_describe(CLI::App& device);
void add_device_probe(CLI::App& device);
void add_device_calibrate(CLI::App& device);
void add_device_new(CLI::App& device);
void add_device_compare(CLI::App& device);
void add_device_replay(CLI::App& device);  ///< schedule, time, replay

class RemoteDevice;

/// How to reach a device of another machine; used by every command that takes such a target.
struct RemoteFlags {
  std::vector<std::string> ssh_options;
  std::string agent;
  std::string agent_folder;
  double link_timeout_s = 20;

  void add_to(CLI::App& command);
  /// The device at an address, with an agent started on it; null for a path of this machine.
  [[nodiscard]] std::unique_ptr<RemoteDevice> connect(const std::string& target,
                                                      bool allow_destructive) const;
};

/// Of what pages the memory of requests is.
struct PagesFlags {
  bool huge = false;
  bool scattered = false;

  void add_to(CLI::App& command);
  [[nodiscard]] Pages pages() const;
};

/// Whether SIGINT, SIGTERM or SIGHUP has come since stop_at_signals(). A second signal ends the
/// program at once. An ignored signal stays ignored.
extern std::atomic<bool> interrupted;
void stop_at_signals();
/// After an interrupt, ends the program by that signal; otherwise does nothing.
void raise_interrupt();

/// --plot FILE, the figure that plot_csv makes.
CLI::Option* add_plot_option(CLI::App& command, std::string& file);
/// Passes `csv` to a module of tools/python/kvreplay, which writes the figure. Throws UserError
/// when it fails.
void plot_csv(const std::string& module, const std::string& csv, const std::string& title,
              const std::string& file);

/// --set NAME=VALUE, repeatable.
CLI::Option* add_set_option(CLI::App& command, std::vector<std::string>& sets);
/// The preset with each NAME=VALUE replaced. Parsing it refuses unknown names.
[[nodiscard]] ConfigNode with_sets(ConfigNode preset, const std::vector<std::string>& sets);

}  // namespace kvreplay
