#pragma once

#include <memory>
#include <string>
#include <vector>

namespace kvreplay {

/// The way to a device: how a line of POSIX shell is run there. Everything else (sending the agent,
/// starting it, talking to it) builds on that.
class Transport {
 public:
  virtual ~Transport() = default;
  /// The device, as in "ssh:root@board".
  [[nodiscard]] virtual std::string name() const = 0;
  /// The words of a local program that runs the line there, whose standard input and output are
  /// those of the line.
  [[nodiscard]] virtual std::vector<std::string> shell(const std::string& line) const = 0;
  /// The line that starts the agent in place of the shell.
  [[nodiscard]] virtual std::string start_line(const std::string& agent) const;
  /// The folder in which a program may be placed and started.
  [[nodiscard]] virtual std::string agent_folder() const { return "/tmp"; }
};

/// A device on another machine, and the target on it.
struct DeviceAddress {
  std::unique_ptr<Transport> transport;
  std::string path;
};

/// Whether the text is an address rather than a path of this machine: it begins with "ssh:", "adb:"
/// or "local:".
[[nodiscard]] bool is_device_address(const std::string& text);

/// ssh:[USER@]HOST[:PORT]:/PATH, adb:SERIAL:/PATH or local:[RUNNER:]/PATH, which starts the agent
/// as a process of this machine (through RUNNER, such as qemu-aarch64-static). `ssh_options` are as
/// ssh(1) takes them after -o. Throws UserError for anything that is not clearly one of these.
[[nodiscard]] DeviceAddress parse_device_address(const std::string& text,
                                                 const std::vector<std::string>& ssh_options);

}  // namespace kvreplay
