#include "tools/kvreplay/interrupt_cleanup.hpp"

#include <unistd.h>

#include <ctime>
#include <iostream>
#include <system_error>
#include <utility>

namespace kvreplay {

InterruptCleanup::InterruptCleanup(std::filesystem::path folder, std::string what_is_left)
    : folder_(std::move(folder)), what_is_left_(std::move(what_is_left)) {
  sigemptyset(&signals_);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals_, signal);
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
    if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
    std::cerr << "\nkvreplay: interrupted; " << what_is_left_ << std::endl;
    ::_exit(128 + signal);
  }
}

}  // namespace kvreplay
