#include "devices/remote/transport.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <utility>

#include "base/error.hpp"
#include "base/shell.hpp"

namespace kvreplay {
namespace {

constexpr std::size_t kLongestName = 255;
constexpr std::size_t kLongestPath = 4095;

bool is_control(char c) {
  return static_cast<unsigned char>(c) < ' ' || c == '\x7f';
}

/// Letters, digits and `others`, not beginning with a hyphen, which a program would take for an
/// option.
bool is_name(const std::string& text, std::string_view others) {
  return !text.empty() && text.size() <= kLongestName && text.front() != '-' &&
         std::all_of(text.begin(), text.end(), [&](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  others.find(c) != std::string_view::npos;
         });
}

class Ssh final : public Transport {
 public:
  Ssh(std::string destination, std::string port, std::vector<std::string> options)
      : destination_(std::move(destination)),
        port_(std::move(port)),
        options_(std::move(options)) {}

  [[nodiscard]] std::string name() const override { return "ssh:" + destination_; }
  [[nodiscard]] std::vector<std::string> shell(const std::string& line) const override {
    std::vector<std::string> words{"ssh", "-T"};
    if (!port_.empty()) words.insert(words.end(), {"-p", port_});
    // ssh uses the first value of an option, so the user's options go before ours. No questions,
    // because nobody can answer them. Keep-alives end a dead link.
    for (const std::string& option : options_) words.insert(words.end(), {"-o", option});
    for (const char* option : {"BatchMode=yes", "ConnectTimeout=15", "ServerAliveInterval=5",
                               "ServerAliveCountMax=3", "ClearAllForwardings=yes"}) {
      words.insert(words.end(), {"-o", option});
    }
    words.insert(words.end(), {"--", destination_, line});
    return words;
  }

 private:
  std::string destination_;
  std::string port_;
  std::vector<std::string> options_;
};

class Adb final : public Transport {
 public:
  explicit Adb(std::string serial) : serial_(std::move(serial)) {}
  [[nodiscard]] std::string name() const override { return "adb:" + serial_; }
  [[nodiscard]] std::vector<std::string> shell(const std::string& line) const override {
    return {"adb", "-s", serial_, "shell", "-T", line};  // -T: no terminal, which changes bytes
  }
  [[nodiscard]] std::string agent_folder() const override { return "/data/local/tmp"; }

 private:
  std::string serial_;
};

class Local final : public Transport {
 public:
  explicit Local(std::string runner) : runner_(std::move(runner)) {}
  [[nodiscard]] std::string name() const override { return "local:" + runner_; }
  [[nodiscard]] std::vector<std::string> shell(const std::string& line) const override {
    return {"/bin/sh", "-c", line};
  }
  [[nodiscard]] std::string start_line(const std::string& agent) const override {
    if (runner_.empty()) return Transport::start_line(agent);
    return "exec " + shell_quoted(runner_) + " " + shell_quoted(agent) + " --remove-self";
  }
  [[nodiscard]] std::string agent_folder() const override {
    return std::filesystem::temp_directory_path().string();
  }

 private:
  std::string runner_;
};

std::unique_ptr<Transport> make_ssh(const std::string& place, const SourceLocation& at,
                                    const std::vector<std::string>& options) {
  constexpr const char* kAllowed = "ssh:[USER@]HOST[:PORT]:/PATH";
  const std::size_t sign = place.rfind('@');
  const std::string user = sign == std::string::npos ? "" : place.substr(0, sign);
  std::string host = sign == std::string::npos ? place : place.substr(sign + 1);
  std::string port;
  // An IPv6 address stands in brackets here, but without them on ssh's command line.
  const std::size_t bracket = host.find(']');
  const bool ipv6 = host.starts_with('[') && bracket != std::string::npos;
  const std::size_t colon = host.find(':', ipv6 ? bracket : 0);
  if (colon != std::string::npos) {
    port = host.substr(colon + 1);
    host.resize(colon);
    unsigned number = 0;
    const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
    if (error != std::errc{} || end != port.data() + port.size() || number == 0 || number > 65535) {
      throw UserError(at, "port '" + port + "'", "1 to 65535");
    }
  }
  if (ipv6 && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  if (!is_name(host, ipv6 ? ".:%_-" : "._-")) throw UserError(at, "host '" + host + "'", kAllowed);
  if (sign != std::string::npos && !is_name(user, "._-")) {
    throw UserError(at, "user '" + user + "'", kAllowed);
  }
  for (const std::string& option : options) {
    const std::size_t equals = option.find_first_of("= ");
    if (equals == std::string::npos || !is_name(option.substr(0, equals), "") ||
        std::any_of(option.begin(), option.end(), is_control)) {
      throw UserError({"--ssh-option", ""}, "'" + option + "'", "NAME=VALUE, as after ssh -o");
    }
  }
  return std::make_unique<Ssh>(user.empty() ? host : user + "@" + host, port, options);
}

}  // namespace

std::string Transport::start_line(const std::string& agent) const {
  return "exec " + shell_quoted(agent) + " --remove-self";
}

bool is_device_address(const std::string& text) {
  return text.starts_with("ssh:") || text.starts_with("adb:") || text.starts_with("local:");
}

DeviceAddress parse_device_address(const std::string& text,
                                   const std::vector<std::string>& ssh_options) {
  const SourceLocation at{text, ""};
  const std::string kind = text.substr(0, text.find(':'));
  const std::string rest = text.substr(kind.size() + 1);
  // The path begins at the first slash, which cannot occur in the name before it.
  const std::size_t slash = rest.find('/');
  if (slash == std::string::npos || (slash == 0 ? kind != "local" : rest[slash - 1] != ':')) {
    throw UserError(at, "has no absolute path after a place",
                    "ssh:[USER@]HOST[:PORT]:/PATH, adb:SERIAL:/PATH, local:/PATH");
  }
  const std::string place = slash == 0 ? "" : rest.substr(0, slash - 1);
  std::string path = rest.substr(slash);
  if (path.size() > kLongestPath || std::any_of(path.begin(), path.end(), is_control)) {
    throw UserError(at, "its path is too long, or has control characters", "a plain path");
  }
  DeviceAddress address{nullptr, std::move(path)};
  if (kind == "ssh") {
    address.transport = make_ssh(place, at, ssh_options);
    return address;
  }
  if (!ssh_options.empty()) throw UserError(at, "takes no --ssh-option", "ssh:HOST:/PATH");
  if (kind == "adb") {
    if (!is_name(place, "._:-[]%")) throw UserError(at, "serial '" + place + "'", "as adb devices");
    address.transport = std::make_unique<Adb>(place);
    return address;
  }
  if (!place.empty() && !is_name(place, "._-")) {
    throw UserError(at, "runner '" + place + "'", "the name of a program on PATH");
  }
  address.transport = std::make_unique<Local>(place);
  return address;
}

}  // namespace kvreplay
