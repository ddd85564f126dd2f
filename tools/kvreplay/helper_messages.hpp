#pragma once

#include <string>
#include <thread>

#include "base/error.hpp"

namespace kvreplay {

/// The standard error of a helper program. It is passed on as it comes, but for its last line,
/// which, unless the helper works on
/// for seconds after it, becomes part of the program's own error where the helper fails.
class HelperMessages {
 public:
  /// Throws UserError when there is no pipe to be had.
  HelperMessages();
  ~HelperMessages();
  HelperMessages(const HelperMessages&) = delete;
  HelperMessages& operator=(const HelperMessages&) = delete;

  /// What the helper must have as its standard error.
  [[nodiscard]] int descriptor() const { return write_end_; }
  /// Call once the helper was started, or could not be.
  void started();
  /// Waits for the end of the helper's messages. Returns the last line if the helper has failed;
  /// otherwise passes it on, too.
  std::string finish(bool failed);

 private:
  void read();

  int read_end_ = -1;
  int write_end_ = -1;
  std::string held_;    ///< the last line, or what there is of it
  std::string passed_;  ///< a last line that was passed on, since the helper went on working
  std::thread reader_;
};

/// The error of a helper that failed, in its own words: its last line, without the names that it or
/// the program put before it. `status` is that of waitpid().
[[nodiscard]] UserError helper_error(const std::string& helper, std::string last_line, int status);

}  // namespace kvreplay
