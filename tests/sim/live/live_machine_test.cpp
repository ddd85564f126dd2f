#include "sim/live/live_machine.hpp"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <memory>
#include <thread>

#include "base/error.hpp"
#include "devices/real/block_target.hpp"
#include "devices/real/io_engine.hpp"
#include "tests/support/temporary_folder.hpp"

namespace kvreplay {
namespace {

/// An engine whose requests stay under way until they are let go, and that counts who waits for
/// them without an end before that.
class HeldEngine final : public IoEngine {
 public:
  static inline bool held = true;
  static inline int waits_without_end = 0;

 private:
  void begin(std::uint32_t slot, const IoRequest& request) override {
    done_.push_back({slot, request.command.bytes, monotonic_ns()});
  }
  void await(std::int64_t until_ns, std::vector<IoResult>& results) override {
    if (held) {
      if (until_ns == kForever) ++waits_without_end;
      std::this_thread::sleep_for(std::chrono::microseconds(until_ns > monotonic_ns() ? 10 : 0));
      return;
    }
    results.insert(results.end(), done_.begin(), done_.end());
    done_.clear();
  }

  std::vector<IoResult> done_;
};

const Registered<IoEngine> kHeld({
    .name = "held",
    .help = "a test's",
    .source = "ours",
    .parameters = {},
    .make = [](const Arguments&, const IoEngine::Context&) -> std::unique_ptr<IoEngine> {
      return std::make_unique<HeldEngine>();
    },
});

/// Computes nothing, and reads one block.
class OneRead final : public LiveWork, private LiveIo::Reader {
 public:
  explicit OneRead(LiveIo& io) : io_(io) {}

  [[nodiscard]] std::size_t layers() const override { return 1; }
  void compute(Kernels /*kernels*/, std::size_t /*layer*/) override { ++computations; }
  void start(TransferKind /*kind*/, std::size_t /*layer*/, LiveIo::Batch& batch) override {
    const std::array commands{IoCommand{.offset = 0, .bytes = 4096, .write = false}};
    io_.read(commands, *this, batch);
  }
  [[nodiscard]] bool go_on(TransferKind /*kind*/, std::size_t /*layer*/,
                           LiveIo::Batch& /*batch*/) override {
    return false;
  }

  int computations = 0;
  int reads = 0;

 private:
  void on_read(const IoCommand& /*command*/, std::span<const std::byte> /*bytes*/) override {
    ++reads;
  }

  LiveIo& io_;
};

constexpr int kComputations = 20000;

StepTask compute_beside_a_read(Machine& machine) {
  machine.start(TransferKind::kReads, 0);
  for (int i = 0; i < kComputations; ++i) co_await machine.compute(Kernels::kAttend, 0);
  HeldEngine::held = false;
  co_await machine.wait(TransferKind::kReads, 0);
}

// A computation may end between the look at it and the wait for the device.
TEST(LiveMachineTest, AComputationThatHasJustEndedNeverWaitsForARead) {
  const TemporaryFolder folder;
  std::unique_ptr<BlockTarget> target;
  try {
    target = std::make_unique<BlockTarget>(BlockTarget::create(folder.file("target"), 1 << 20));
  } catch (const UserError&) {
    GTEST_SKIP() << "no direct I/O in the temporary folder (set TMPDIR)";
  }
  for (const bool own_processors : {true, false}) {
    SCOPED_TRACE(own_processors);
    HeldEngine::held = true;
    HeldEngine::waits_without_end = 0;
    LiveIo io(*target, {.engine = "held", .limits = {}});
    OneRead work(io);
    {
      LiveMachine machine(work, &io, own_processors);
      machine.run(compute_beside_a_read(machine));
    }
    EXPECT_EQ(work.computations, kComputations);
    EXPECT_EQ(work.reads, 1);
    EXPECT_EQ(HeldEngine::waits_without_end, 0);
  }
}

}  // namespace
}  // namespace kvreplay
