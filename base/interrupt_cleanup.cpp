#include "base/interrupt_cleanup.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <ctime>
#include <latch>
#include <system_error>
#include <utility>

#include "base/output_file.hpp"

namespace kvreplay {
namespace {

/// Writes to standard error what is said last: other threads, which still run, write to nowhere
/// from then on. May be called by a signal's handler.
void write_last(std::string_view text) {
  const int error = ::dup(STDERR_FILENO);
  const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (error >= 0 && nowhere >= 0) ::dup2(nowhere, STDERR_FILENO);
  [[maybe_unused]] const ssize_t written =
      ::write(error >= 0 ? error : STDERR_FILENO, text.data(), text.size());
}

void clean_up_and_end(int signal) {
  const std::string_view said = remove_temporary_files()
                                    ? "\nkvreplay: interrupted; nothing was written\n"
                                    : "\nkvreplay: interrupted\n";
  write_last(said);
  std::raise(signal);  // takes effect at the handler's end
}

void write_last_line(std::string_view line) {
  if (::isatty(STDERR_FILENO) != 0) {  // after progress
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, "\n", 1);
  }
  write_last(line);
}

/// What end_program() was asked for. The first caller fills it in, and only then sets `said`.
struct Ending {
  std::atomic_flag begun = ATOMIC_FLAG_INIT;
  std::string_view message;
  int exit_code = 0;
  std::atomic<bool> said{false};
};
Ending program_ending;
static_assert(std::atomic<bool>::is_always_lock_free, "written by a signal handler");

std::atomic<bool> is_helper{false};

/// Wakes the thread of an InterruptCleanup. By default a process ignores it.
constexpr int kWakingSignal = SIGURG;

/// Whether a thread of an InterruptCleanup waits, which can remove a folder; a handler cannot.
std::atomic<bool> has_waiter{false};

}  // namespace

void end_program(std::string_view message, int exit_code) {
  constexpr timespec kMoment{0, 20'000'000};
  constexpr int kMoments = 250;  // then the waiting thread is stuck
  if (is_helper) ::_exit(exit_code);
  if (!program_ending.begun.test_and_set()) {
    program_ending.message = message;
    program_ending.exit_code = exit_code;
    program_ending.said = true;
    for (int i = 0; has_waiter && i < kMoments; ++i) ::nanosleep(&kMoment, nullptr);
    remove_temporary_files();
    write_last_line(message);
    ::_exit(exit_code);
  }
  // Another thread ends the program. Or this one has failed while it did.
  for (int i = 0; i < 2 * kMoments; ++i) ::nanosleep(&kMoment, nullptr);
  write_last_line(message);
  ::_exit(exit_code);
}

void become_helper_process() {
  is_helper = true;
  for (const int signal : kEndingSignals) {
    if (!is_ignored(signal)) ::signal(signal, SIG_DFL);
  }
}

bool is_ignored(int signal) {
  struct sigaction action {};
  ::sigaction(signal, nullptr, &action);
  return action.sa_handler == SIG_IGN;
}

void clean_up_at(int signal) {
  if (is_ignored(signal)) return;
  struct sigaction action {};
  action.sa_handler = clean_up_and_end;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  for (const int other : kEndingSignals) sigaddset(&action.sa_mask, other);
  ::sigaction(signal, &action, nullptr);
}

InterruptCleanup::InterruptCleanup(std::filesystem::path folder, std::string what_is_left)
    : folder_(std::move(folder)), what_is_left_(std::move(what_is_left)) {
  sigemptyset(&signals_);
  for (const int signal : kEndingSignals) {
    if (!is_ignored(signal)) sigaddset(&signals_, signal);
  }
  pthread_sigmask(SIG_BLOCK, &signals_, &mask_before_);
  // A process that forks while this thread begins would copy the locks of what it allocates.
  std::latch begun(1);
  waiter_ = std::jthread([this, &begun](const std::stop_token& stop) {
    sigset_t awaited = signals_;
    sigaddset(&awaited, kWakingSignal);
    pthread_sigmask(SIG_BLOCK, &awaited, nullptr);
    begun.count_down();
    wait(awaited, stop);
  });
  begun.wait();
  has_waiter = true;
}

InterruptCleanup::~InterruptCleanup() {
  has_waiter = false;
  waiter_.request_stop();
  pthread_kill(waiter_.native_handle(), kWakingSignal);
  waiter_.join();
  pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
}

void InterruptCleanup::remove_outputs() const {
  std::error_code ignored;
  remove_temporary_files();
  if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
}

void InterruptCleanup::wait(const sigset_t& awaited, const std::stop_token& stop) const {
  constexpr timespec kPatience{0, 50'000'000};  // how late end_program() is noticed
  while (!stop.stop_requested()) {
    const int signal = sigtimedwait(&awaited, nullptr, &kPatience);
    if (program_ending.said) {
      remove_outputs();
      write_last_line(program_ending.message);
      ::_exit(program_ending.exit_code);
    }
    if (signal < 0 || signal == kWakingSignal) continue;
    remove_outputs();
    write_last("\nkvreplay: interrupted; " + what_is_left_ + "\n");
    ::_exit(128 + signal);
  }
}

}  // namespace kvreplay
