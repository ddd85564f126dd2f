#include "tools/kvreplay/helper_messages.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <iostream>
#include <utility>

#include "base/error.hpp"

namespace kvreplay {
namespace {

/// A helper that still runs so long after a line did not end with it.
constexpr int kHoldMs = 2000;

}  // namespace

HelperMessages::HelperMessages() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw UserError({"", ""}, std::strerror(errno), "a pipe");
  read_end_ = ends[0];
  write_end_ = ends[1];
}

HelperMessages::~HelperMessages() {
  if (write_end_ >= 0) ::close(write_end_);
  if (reader_.joinable()) reader_.join();
  if (read_end_ >= 0) ::close(read_end_);
}

void HelperMessages::started() {
  ::close(std::exchange(write_end_, -1));
  reader_ = std::thread([this] { read(); });
}

void HelperMessages::read() {
  char buffer[1 << 12];
  while (true) {
    if (held_.ends_with('\n')) {
      pollfd waiting{read_end_, POLLIN, 0};
      if (::poll(&waiting, 1, kHoldMs) == 0) {
        std::cerr << held_ << std::flush;
        passed_ = std::exchange(held_, "");
      }
    }
    const ssize_t count = ::read(read_end_, buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;
    held_.append(buffer, static_cast<std::size_t>(count));
    // A bar of progress has no end of line; it is passed on at once.
    const std::size_t bar = held_.rfind('\r');
    const std::size_t last_end =
        held_.size() > 1 ? held_.rfind('\n', held_.size() - 2) : std::string::npos;
    std::size_t ready = last_end == std::string::npos ? 0 : last_end + 1;
    if (bar != std::string::npos && bar >= ready) ready = held_.size();
    std::cerr << held_.substr(0, ready) << std::flush;
    held_.erase(0, ready);
  }
}

std::string HelperMessages::finish(bool failed) {
  if (reader_.joinable()) reader_.join();
  if (!failed) {
    std::cerr << held_ << std::flush;
    return "";
  }
  std::string line = held_.empty() ? passed_ : held_;
  while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.pop_back();
  return line;
}

UserError helper_error(const std::string& helper, std::string last_line, int status) {
  const std::string name = helper.substr(helper.rfind('/') + 1);
  const std::string stem = name.substr(0, name.rfind('.'));
  for (const std::string& before :
       {std::string("kvreplay: "), helper + ": ", name + ": ", stem + ": "}) {
    if (last_line.starts_with(before)) last_line.erase(0, before.size());
  }
  if (!last_line.empty()) return {{helper, ""}, last_line, ""};
  const std::string how = WIFSIGNALED(status)
                              ? "was ended by signal " + std::to_string(WTERMSIG(status))
                              : "failed with exit code " + std::to_string(WEXITSTATUS(status));
  return {{helper, ""}, how + " and said nothing", "a helper that runs"};
}

}  // namespace kvreplay
