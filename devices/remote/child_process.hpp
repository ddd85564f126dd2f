// By hand: popen(3) has one direction and no time limit.

#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kvreplay {

/// A local program whose standard input, output and error we hold. No call waits longer than its
/// time limit; the destructor kills the program and those that it started.
class ChildProcess {
 public:
  using Milliseconds = std::chrono::milliseconds;

  /// `words` are the program, looked up on PATH, and its arguments; no shell sees them. Throws
  /// UserError when it cannot be started.
  explicit ChildProcess(const std::vector<std::string>& words);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  /// Returns false when not all bytes were taken: the program ended, or took none for `patience`.
  [[nodiscard]] bool write(std::string_view bytes, Milliseconds patience);
  void close_input();
  /// Output of the program; "" when there is none within `patience`. Nothing at the end.
  [[nodiscard]] std::optional<std::string> read(Milliseconds patience);
  /// The exit code, 128 + the signal that ended it, or nothing when it runs for longer than
  /// `patience`.
  [[nodiscard]] std::optional<int> wait(Milliseconds patience);
  /// The last four lines that it wrote to standard error, as one line: "first / second".
  [[nodiscard]] std::string last_words() const;

 private:
  /// Waits until output or error can be read (or input be written), and takes what is on error.
  /// Returns whether output can be read.
  [[nodiscard]] bool poll(bool for_input, Milliseconds patience, bool& input_ready);
  void read_errors();

  pid_t process_ = -1;
  int input_ = -1;
  int output_ = -1;
  int errors_ = -1;
  std::string error_text_;  ///< the end of it
  std::optional<int> exit_code_;
};

}  // namespace kvreplay
