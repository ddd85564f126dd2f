#pragma once

#include <CLI/CLI.hpp>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "tools/kvreplay/option_values.hpp"

namespace kvreplay {

/// The subcommands of `kvreplay device`.
void add_device_describe(CLI::App& device);
void add_device_probe(CLI::App& device);
void add_device_calibrate(CLI::App& device);
void add_device_compare(CLI::App& device);
void add_device_replay(CLI::App& device);  ///< schedule, time, replay

class RemoteDevice;

/// How a device that is not this machine is reached; for every command that takes such a target.
struct RemoteFlags {
  std::vector<std::string> ssh_options;
  std::string agent;
  std::string agent_folder;
  double link_timeout_s = 20;

  void add_to(CLI::App& command);
  /// The device of an address, with an agent started on it; null for a path of this machine.
  [[nodiscard]] std::unique_ptr<RemoteDevice> connect(const std::string& target,
                                                      bool allow_destructive) const;
};

/// Whether SIGINT, SIGTERM or SIGHUP came since stop_at_signals(); a second one ends the program at
/// once. One that is ignored stays ignored.
extern std::atomic<bool> interrupted;
void stop_at_signals();
/// Ends the program as whoever interrupted it expects; nothing without an interrupt.
void raise_interrupt();

/// --plot FILE, of which plot_csv makes a figure.
CLI::Option* add_plot_option(CLI::App& command, std::string& file);
/// Hands `csv` to a module of tools/python/kvreplay, which writes the figure. A UserError when it
/// does not.
void plot_csv(const std::string& module, const std::string& csv, const std::string& title,
              const std::string& file);

/// --set NAME=VALUE, any number of them.
CLI::Option* add_set_option(CLI::App& command, std::vector<std::string>& sets);
/// The preset with each NAME=VALUE replaced. An unknown name is refused when it is parsed.
[[nodiscard]] ConfigNode with_sets(ConfigNode preset, const std::vector<std::string>& sets);

}  // namespace kvreplay
