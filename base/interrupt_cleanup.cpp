#include "base/interrupt_cleanup.hpp"

#include <unistd.h>

#include <ctime>
#include <iostream>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/output_file.hpp"

namespace kvreplay {
namespace {

void clean_up_and_end(int signal) {
  const std::string_view said = remove_temporary_files()
                                    ? "\nkvreplay: interrupted; nothing was written\n"
                                    : "\nkvreplay: interrupted\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, said.data(), said.size());
  std::raise(signal);  // takes effect at the handler's end
}

}  // namespace

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
  waiter_ = std::jthread([this](const std::stop_token& stop) { wait(stop); });
}

InterruptCleanup::~InterruptCleanup() {
  waiter_.request_stop();
  waiter_.join();
  pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
}

void InterruptCleanup::wait(const std::stop_token& stop) const {
  constexpr timespec kPatience{0, 50'000'000};  // how late a stop is noticed
  while (!stop.stop_requested()) {
    const int signal = sigtimedwait(&signals_, nullptr, &kPatience);
    if (signal < 0) continue;
    std::error_code ignored;
    remove_temporary_files();
    if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
    std::cerr << "\nkvreplay: interrupted; " << what_is_left_ << std::endl;
    ::_exit(128 + signal);
  }
}

}  // namespace kvreplay
