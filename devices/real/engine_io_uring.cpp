#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "devices/real/io_engine.hpp"
#include "devices/real/io_ring.hpp"

namespace kvreplay {
namespace {

class IoUring final : public IoEngine {
 public:
  explicit IoUring(const Context& context) : IoEngine(context.watch), context_(context) {
    // Completions are then handled when we ask for them, without interrupting our thread. Kernels
    // before 6.1 do not know the first flags; those before 5.19 do not know the second.
    for (const unsigned flags :
         {IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN, IORING_SETUP_COOP_TASKRUN, 0U}) {
      ring_ = std::make_unique<IoRing>(context.depth, flags);
      if (ring_->error() != -EINVAL) break;
    }
    if (ring_->error() < 0) throw refused("io_uring_setup", ring_->error());
    const int error = ring_->register_file(context.target.descriptor());
    if (error < 0) throw refused("registering the file", error);
    // Registered buffers count as locked memory, which the system may refuse.
    registered_ = ring_->register_memory(context.memory) == 0;
  }

  [[nodiscard]] std::string notes() const override {
    return registered_ ? "" : "buffers are not registered (locked memory is limited)";
  }

 private:
  void begin(std::uint32_t slot, const IoRequest& request) override {
    prepare(slot, request);
    // Submits one by one, as fio does: with a batch, the device sees the first request only with
    // the last. wait() submits what the kernel has no room for.
    (void)ring_->submit(0);
  }

  void await(std::int64_t until_ns, std::vector<IoResult>& results) override {
    const int submitted =
        until_ns == kForever
            ? ring_->submit(1)
            : ring_->submit(1, std::max<std::int64_t>(0, until_ns - monotonic_ns()));
    const bool none_yet = submitted == -EINTR || submitted == -EAGAIN || submitted == -ETIME;
    if (submitted < 0 && !none_yet) throw refused("io_uring_enter", submitted);
    ring_->drain([&](std::uint64_t slot, std::int32_t result) {
      results.push_back({static_cast<std::uint32_t>(slot), result, monotonic_ns()});
    });
  }

  [[nodiscard]] static UserError refused(const char* call, int error) {
    return {{},
            std::string(call) + " failed (" + std::strerror(-error) + ")",
            "a system that permits io_uring"};
  }

  void prepare(std::uint32_t slot, const IoRequest& request) {
    const auto [offset, bytes, write] = request.command;
    io_uring_sqe& entry = ring_->prepare();
    if (registered_) {
      entry.opcode = write ? IORING_OP_WRITE_FIXED : IORING_OP_READ_FIXED;
    } else {
      entry.opcode = write ? IORING_OP_WRITE : IORING_OP_READ;
    }
    entry.flags = IOSQE_FIXED_FILE;
    entry.fd = 0;  // index of the registered file
    entry.off = offset;
    entry.addr = reinterpret_cast<std::uintptr_t>(context_.memory.data() + request.memory_offset);
    entry.len = bytes;
    entry.user_data = slot;
  }

  const Context context_;
  std::unique_ptr<IoRing> ring_;
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
