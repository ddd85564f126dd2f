#include "devices/remote/child_process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <thread>

#include "base/error.hpp"

extern char** environ;

namespace kvreplay {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kErrorBytesKept = 4096;
constexpr int kLastLines = 4;  ///< adb reports the error first, ssh last
constexpr const char* kLineEnds = "\r\n";

/// Reading end, writing end.
std::array<int, 2> make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    throw UserError({}, std::string("no pipe (") + std::strerror(errno) + ")", "");
  }
  return ends;
}

/// Our end and the child's end. Unlike a pipe, a socket whose other side is gone can be written to
/// without a signal.
std::array<int, 2> make_sockets() {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    throw UserError({}, std::string("no sockets (") + std::strerror(errno) + ")", "");
  }
  return ends;
}

}  // namespace

ChildProcess::ChildProcess(const std::vector<std::string>& words) {
  const auto input = make_sockets();
  const auto output = make_pipe();
  const auto errors = make_pipe();
  input_ = input[0];
  output_ = output[0];
  errors_ = errors[0];
  for (const int ours : {input_, output_, errors_}) ::fcntl(ours, F_SETFL, O_NONBLOCK);

  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, input[1], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&files, output[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&files, errors[1], STDERR_FILENO);
  // A separate process group: we pass Ctrl-C on ourselves, and killing the group ends all its
  // processes.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  posix_spawnattr_setpgroup(&attributes, 0);
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const int error =
      ::posix_spawnp(&process_, arguments[0], &files, &attributes, arguments.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  for (const int theirs : {input[1], output[1], errors[1]}) ::close(theirs);
  if (error == 0) return;
  for (const int ours : {input_, output_, errors_}) ::close(ours);
  throw UserError({words.front(), ""},
                  std::string("cannot be started (") + std::strerror(error) + ")",
                  "an installed program");
}

ChildProcess::~ChildProcess() {
  if (!exit_code_) {
    ::kill(-process_, SIGKILL);
    (void)wait(std::chrono::seconds(5));
  }
  for (const int descriptor : {input_, output_, errors_}) {
    if (descriptor >= 0) ::close(descriptor);
  }
}

void ChildProcess::read_errors() {
  std::array<char, 4096> bytes{};
  for (;;) {
    const ssize_t got = ::read(errors_, bytes.data(), bytes.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) {
      ::close(errors_);
      errors_ = -1;
      return;
    }
    error_text_.append(bytes.data(), static_cast<std::size_t>(got));
    if (error_text_.size() > kErrorBytesKept) {
      error_text_.erase(0, error_text_.size() - kErrorBytesKept);
    }
  }
}

bool ChildProcess::poll(bool for_input, Milliseconds patience, bool& input_ready) {
  std::array<pollfd, 3> wanted{{{for_input ? -1 : output_, POLLIN, 0},
                                {errors_, POLLIN, 0},
                                {for_input ? input_ : -1, POLLOUT, 0}}};
  const int ready =
      ::poll(wanted.data(), wanted.size(), static_cast<int>(std::max<long>(patience.count(), 0)));
  input_ready = ready > 0 && wanted[2].revents != 0;
  if (ready > 0 && wanted[1].revents != 0) read_errors();
  return ready > 0 && wanted[0].revents != 0;
}

bool ChildProcess::write(std::string_view bytes, Milliseconds patience) {
  Clock::time_point deadline = Clock::now() + patience;
  while (!bytes.empty()) {
    if (input_ < 0) return false;
    const ssize_t sent = ::send(input_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      bytes.remove_prefix(static_cast<std::size_t>(sent));
      deadline = Clock::now() + patience;
      continue;
    }
    if (sent < 0 && errno != EAGAIN && errno != EINTR) return false;
    const auto left = std::chrono::duration_cast<Milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) return false;
    bool ready = false;
    (void)poll(true, left, ready);
  }
  return true;
}

void ChildProcess::close_input() {
  if (input_ >= 0) ::close(input_);
  input_ = -1;
}

std::optional<std::string> ChildProcess::read(Milliseconds patience) {
  const Clock::time_point deadline = Clock::now() + patience;
  for (;;) {
    std::array<char, 1 << 16> bytes{};
    const ssize_t got = ::read(output_, bytes.data(), bytes.size());
    if (got > 0) return std::string(bytes.data(), static_cast<std::size_t>(got));
    if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
      if (errors_ >= 0) read_errors();
      return std::nullopt;
    }
    const auto left = std::chrono::duration_cast<Milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) return "";
    bool ignored = false;
    (void)poll(false, left, ignored);
  }
}

std::optional<int> ChildProcess::wait(Milliseconds patience) {
  const Clock::time_point deadline = Clock::now() + patience;
  while (!exit_code_) {
    int status = 0;
    const pid_t ended = ::waitpid(process_, &status, WNOHANG);
    if (ended == process_) {
      exit_code_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    } else if (Clock::now() >= deadline) {
      return std::nullopt;
    } else {
      std::this_thread::sleep_for(Milliseconds(5));
    }
  }
  if (errors_ >= 0) read_errors();
  return exit_code_;
}

std::string ChildProcess::last_words() const {
  std::string words;
  std::size_t end = error_text_.find_last_not_of(kLineEnds);
  for (int line = 0; line < kLastLines && end != std::string::npos; ++line) {
    const std::size_t before = error_text_.find_last_of(kLineEnds, end);
    const std::size_t begin = before == std::string::npos ? 0 : before + 1;
    words = error_text_.substr(begin, end + 1 - begin) + (line == 0 ? "" : " / ") + words;
    end = begin == 0 ? std::string::npos : error_text_.find_last_not_of(kLineEnds, begin - 1);
  }
  return words;
}

}  // namespace kvreplay
