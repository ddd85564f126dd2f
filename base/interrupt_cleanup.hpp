#pragma once

#include <array>
#include <csignal>
#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <thread>

namespace kvreplay {

/// The signals that end the program from outside.
inline constexpr std::array<int, 3> kEndingSignals{SIGINT, SIGTERM, SIGHUP};

/// Ignores SIGHUP, as nohup does: whoever started the program wants it to go on.
[[nodiscard]] bool is_ignored(int signal);

/// From now on `signal` removes the temporary files of unfinished outputs, reports that in one
/// line, and ends the program by its default action. An ignored signal stays ignored. May be called
/// in a signal handler.
void clean_up_at(int signal);

/// Ends the program with `exit_code` after `message`, without the temporary files of unfinished
/// outputs and the folder of an InterruptCleanup. May be called in a signal handler, on any thread.
[[noreturn]] void end_program(std::string_view message, int exit_code);

/// A child process that only tries something: signals end it by their default action, it gets no
/// line from end_program(), and the temporary files are its parent's.
void become_helper_process();

/// A line for end_program(), put together without allocation.
class MessageLine {
 public:
  MessageLine& operator<<(std::string_view text) {
    for (const char character : text) {
      if (size_ + 1 < text_.size())
        text_[size_++] = static_cast<unsigned char>(character) < ' ' ? ' ' : character;
    }
    return *this;
  }
  [[nodiscard]] std::string_view end() {
    text_[size_++] = '\n';
    return {text_.data(), size_};
  }

 private:
  std::array<char, 8192> text_{};
  std::size_t size_ = 0;
};

/// While it lives, SIGINT, SIGTERM and SIGHUP remove a folder ("" = none) and the temporary files
/// of unfinished outputs, report in one line what is left, and end the program with 128 + the
/// signal's number. An ignored signal stays ignored. Threads started in its lifetime do not receive
/// these signals. Only one object may live at a time.
class InterruptCleanup {
 public:
  explicit InterruptCleanup(std::filesystem::path folder,
                            std::string what_is_left = "nothing was written");
  ~InterruptCleanup();
  InterruptCleanup(const InterruptCleanup&) = delete;
  InterruptCleanup& operator=(const InterruptCleanup&) = delete;

 private:
  void wait(const sigset_t& awaited, const std::stop_token& stop) const;
  void remove_outputs() const;

  std::filesystem::path folder_;
  std::string what_is_left_;
  sigset_t signals_{};
  sigset_t mask_before_{};
  std::jthread waiter_;  // last: it uses the others
};

}  // namespace kvreplay
