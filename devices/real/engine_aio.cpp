// Linux AIO by raw system calls: phones have no libaio, but their filter for apps allows these
// calls.

#include <linux/aio_abi.h>
#include <linux/time_types.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "devices/real/io_engine.hpp"

namespace kvreplay {
namespace {

class LinuxAio final : public IoEngine {
 public:
  explicit LinuxAio(const Context& context)
      : IoEngine(context.watch),
        context_(context),
        controls_(context.depth),
        events_(context.depth) {
    if (::syscall(SYS_io_setup, context.depth, &queue_) != 0) throw failed("io_setup", errno);
  }
  ~LinuxAio() override { ::syscall(SYS_io_destroy, queue_); }
  LinuxAio(const LinuxAio&) = delete;
  LinuxAio& operator=(const LinuxAio&) = delete;

 private:
  void begin(std::uint32_t slot, const IoRequest& request) override {
    prepare(slot, request);
    (void)submit_prepared();  // wait() submits whatever is not taken now
  }

  void await(std::int64_t until_ns, std::vector<IoResult>& results) override {
    if (!submit(results)) return;
    __kernel_old_timespec time{};
    if (until_ns != kForever) {
      const std::int64_t left = std::max<std::int64_t>(0, until_ns - monotonic_ns());
      time.tv_sec = static_cast<__kernel_old_time_t>(left / 1'000'000'000);
      time.tv_nsec = static_cast<long>(left % 1'000'000'000);
    }
    const long count = ::syscall(SYS_io_getevents, queue_, 1L, static_cast<long>(events_.size()),
                                 events_.data(), until_ns == kForever ? nullptr : &time);
    if (count < 0 && errno == EINTR) return;
    if (count < 0) throw failed("io_getevents", errno);
    in_kernel_ -= static_cast<std::size_t>(count);
    for (long i = 0; i < count; ++i) {
      const io_event& event = events_[static_cast<std::size_t>(i)];
      results.push_back({static_cast<std::uint32_t>(event.data), event.res, monotonic_ns()});
    }
  }

  [[nodiscard]] static UserError failed(const char* call, int error) {
    return {{},
            std::string(call) + " failed (" + std::strerror(error) + ")",
            "a system that permits Linux AIO"};
  }

  void prepare(std::uint32_t slot, const IoRequest& request) {
    iocb& control = controls_[slot];
    control = {};
    control.aio_data = slot;
    control.aio_lio_opcode = request.command.write ? IOCB_CMD_PWRITE : IOCB_CMD_PREAD;
    control.aio_fildes = static_cast<std::uint32_t>(context_.target.descriptor());
    control.aio_buf =
        reinterpret_cast<std::uintptr_t>(context_.memory.data() + request.memory_offset);
    control.aio_nbytes = request.command.bytes;
    control.aio_offset = static_cast<std::int64_t>(request.command.offset);
    prepared_.push_back(&control);
  }

  /// Returns 0, or an errno when the kernel does not take the first of the prepared requests.
  int submit_prepared() {
    while (!prepared_.empty()) {
      const long taken =
          ::syscall(SYS_io_submit, queue_, static_cast<long>(prepared_.size()), prepared_.data());
      if (taken > 0) {
        in_kernel_ += static_cast<std::size_t>(taken);
        prepared_.erase(prepared_.begin(), prepared_.begin() + taken);
      } else if (errno != EINTR) {
        return errno;
      }
    }
    return 0;
  }

  /// Returns whether anything is in the kernel afterwards. A request that the kernel refuses gets
  /// its error as its result.
  bool submit(std::vector<IoResult>& results) {
    while (const int error = submit_prepared()) {
      if (error == EAGAIN && in_kernel_ > 0) break;  // there is room again after a completion
      const auto slot = static_cast<std::uint32_t>(prepared_.front()->aio_data);
      prepared_.erase(prepared_.begin());
      results.push_back({slot, -std::int64_t{error}, monotonic_ns()});
    }
    return in_kernel_ > 0;
  }

  const Context context_;
  aio_context_t queue_ = 0;
  std::vector<iocb> controls_;   ///< by slot
  std::vector<iocb*> prepared_;  ///< not submitted yet
  std::size_t in_kernel_ = 0;
  std::vector<io_event> events_;
};

const Registered<IoEngine> kLinuxAio{{
    .name = "aio",
    .help = "Linux AIO by raw system calls",
    .source = "ours",
    .parameters = {},
    .make = [](const Arguments& /*arguments*/, const IoEngine::Context& context)
        -> std::unique_ptr<IoEngine> { return std::make_unique<LinuxAio>(context); },
}};

}  // namespace
}  // namespace kvreplay
