#include <algorithm>
#include <csignal>

#include "base/build_info.hpp"
#include "base/interrupt_cleanup.hpp"
#include "base/output_file.hpp"
#include "base/progress.hpp"
#include "devices/remote/remote_device.hpp"
#include "tools/kvreplay/open_target.hpp"

namespace kvreplay {
namespace {

std::atomic<int> interrupting_signal{0};
static_assert(std::atomic<int>::is_always_lock_free, "set by a signal handler");

}  // namespace

std::atomic<bool> interrupted{false};

void stop_at_signals() {
  for (const int signal : kEndingSignals) {
    if (is_ignored(signal)) continue;
    std::signal(signal, [](int number) {
      interrupted = true;
      interrupting_signal = number;
      clean_up_at(number);
    });
  }
}

void raise_interrupt() {
  if (!interrupted) return;
  remove_temporary_files();
  std::signal(interrupting_signal, SIG_DFL);
  std::raise(interrupting_signal);
}

void RemoteFlags::add_to(CLI::App& command) {
  command.add_option("--ssh-option", ssh_options, "An option for ssh, as after ssh -o; repeatable")
      ->type_name("NAME=VALUE")
      ->allow_extra_args(false);
  command
      .add_option("--agent", agent,
                  "The program to send to the device (default: kvreplay-agent-MACHINE beside "
                  "kvreplay)")
      ->type_name("FILE");
  command
      .add_option(
          "--agent-folder", agent_folder,
          "Folder of the device for the agent (default: /tmp by ssh, /data/local/tmp by adb)")
      ->type_name("DIR");
  command
      .add_option("--link-timeout", link_timeout_s,
                  "Seconds of silence after which the device counts as lost")
      ->type_name("S")
      ->check(in_range(2.0, 3600.0))
      ->capture_default_str();
}

void PagesFlags::add_to(CLI::App& command) {
  CLI::Option* huge_pages =
      command.add_flag("--huge-pages", huge,
                       "Use huge pages, which split large requests less; probe and replay alike");
  command
      .add_flag(
          "--scattered-pages", scattered,
          "Use 64 MiB of pages that lie apart, in turn, as a cache of keys and values does: no "
          "two are one piece, and none is in the processor's caches; probe and replay alike")
      ->excludes(huge_pages);
}

Pages PagesFlags::pages() const {
  if (scattered) return Pages::kScattered;
  return huge ? Pages::kHuge : Pages::kOrdinary;
}

std::unique_ptr<RemoteDevice> RemoteFlags::connect(const std::string& target,
                                                   bool allow_destructive) const {
  if (!is_device_address(target)) {
    if (ssh_options.empty() && agent.empty() && agent_folder.empty()) return nullptr;
    throw UserError({target, ""}, "is a path of this machine, which needs no agent",
                    "ssh:[USER@]HOST[:PORT]:/PATH, adb:SERIAL:/PATH");
  }
  RemoteOptions options;
  options.agent = agent;
  options.agents = helper_folder();
  options.folder = agent_folder;
  options.silence = std::chrono::milliseconds(static_cast<std::int64_t>(link_timeout_s * 1000));
  options.allow_destructive = allow_destructive;
  return std::make_unique<RemoteDevice>(parse_device_address(target, ssh_options), options);
}

OpenTarget open_target(const std::string& path, std::uint64_t create_bytes, bool write,
                       bool allow_destructive, const RemoteFlags& remote) {
  stop_at_signals();
  OpenTarget opened{remote.connect(path, allow_destructive), std::nullopt};
  if (create_bytes == 0) {
    if (opened.device) {
      opened.device->open(write);
    } else {
      opened.target.emplace(write ? BlockTarget::open_destructive(path) : BlockTarget::open(path));
    }
    return opened;
  }
  Progress progress("create", static_cast<std::int64_t>(create_bytes));
  const auto filling = [&, before = std::uint64_t{0}](std::uint64_t done) mutable {
    if (interrupted) throw UserError({path, ""}, "interrupted before the first request", "");
    progress.advance(static_cast<std::int64_t>(done - before));
    before = done;
  };
  if (opened.device) {
    opened.device->create(create_bytes, interrupted, filling);
  } else {
    opened.target.emplace(BlockTarget::create(path, create_bytes, filling));
  }
  return opened;
}

}  // namespace kvreplay
