#ifdef KVREPLAY_HAS_IO_URING

#include <liburing.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>

#include "devices/real/queue_loop.hpp"

namespace kvreplay {
namespace {

class IoUring final : public IoEngine {
 public:
  explicit IoUring(const Context& context) : context_(context) {
    // Completions are then handled when we ask for them, not by interrupting our thread. Kernels
    // before 6.1 do not know the first flags, before 5.19 not the second.
    int error = 0;
    for (const unsigned flags :
         {IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN, IORING_SETUP_COOP_TASKRUN, 0U}) {
      error = ::io_uring_queue_init(context.depth, &ring_, flags);
      if (error != -EINVAL) break;
    }
    if (error < 0) throw refused("io_uring_setup", error);

    const int descriptor = context.target.descriptor();
    error = ::io_uring_register_files(&ring_, &descriptor, 1);
    if (error < 0) {
      ::io_uring_queue_exit(&ring_);
      throw refused("registering the file", error);
    }
    // Registered buffers count as locked memory, which the system may not grant.
    const iovec memory{context.memory.data(), context.memory.size()};
    registered_ = ::io_uring_register_buffers(&ring_, &memory, 1) == 0;
  }
  ~IoUring() override { ::io_uring_queue_exit(&ring_); }
  IoUring(const IoUring&) = delete;
  IoUring& operator=(const IoUring&) = delete;

  [[nodiscard]] std::string notes() const override {
    return registered_ ? "" : "buffers are not registered (locked memory is limited)";
  }

  [[nodiscard]] IoReport run(const IoSource& source, std::uint32_t depth) override {
    return run_queue(
        source, depth,
        [this](std::uint32_t slot, const IoRequest& request) {
          prepare(slot, request);
          // One by one, as fio does: of a batch, the device sees the first with the last. What the
          // kernel has no room for goes with the wait.
          ::io_uring_submit(&ring_);
        },
        [this](const auto& reap) {
          int submitted = 0;
          do {
            submitted = ::io_uring_submit_and_wait(&ring_, 1);
          } while (submitted == -EINTR || submitted == -EAGAIN);
          if (submitted < 0) throw refused("io_uring_enter", submitted);
          unsigned head = 0;
          unsigned seen = 0;
          io_uring_cqe* completion = nullptr;
          io_uring_for_each_cqe(&ring_, head, completion) {
            ++seen;
            reap(static_cast<std::uint32_t>(completion->user_data), completion->res);
          }
          ::io_uring_cq_advance(&ring_, seen);
        });
  }

 private:
  [[nodiscard]] static UserError refused(const char* call, int error) {
    return {{},
            std::string(call) + " failed (" + std::strerror(-error) + ")",
            "a system that permits io_uring"};
  }

  void prepare(std::uint32_t slot, const IoRequest& request) {
    constexpr int kFile = 0;
    const auto [offset, bytes, write] = request.command;
    std::byte* memory = context_.memory.data() + request.memory_offset;
    io_uring_sqe* entry = ::io_uring_get_sqe(&ring_);  // never null: the ring holds `depth`
    if (registered_ && write) {
      ::io_uring_prep_write_fixed(entry, kFile, memory, bytes, offset, 0);
    } else if (registered_) {
      ::io_uring_prep_read_fixed(entry, kFile, memory, bytes, offset, 0);
    } else if (write) {
      ::io_uring_prep_write(entry, kFile, memory, bytes, offset);
    } else {
      ::io_uring_prep_read(entry, kFile, memory, bytes, offset);
    }
    entry->flags |= IOSQE_FIXED_FILE;
    entry->user_data = slot;
  }

  const Context context_;
  io_uring ring_{};
  bool registered_ = false;
};

const Registered<IoEngine> kIoUring{{
    .name = "io_uring",
    .help = "io_uring with a registered file and registered buffers",
    .source = "ours",
    .parameters = {},
    .make = [](const Arguments& /*arguments*/, const IoEngine::Context& context)
        -> std::unique_ptr<IoEngine> { return std::make_unique<IoUring>(context); },
}};

}  // namespace
}  // namespace kvreplay

#endif
