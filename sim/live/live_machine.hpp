#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <mutex>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "sim/live/live_io.hpp"
#include "sim/time/machine/machine.hpp"

namespace kvreplay {

/// What a live machine computes and transfers at the step that is under way.
class LiveWork {
 public:
  [[nodiscard]] virtual std::size_t layers() const = 0;
  /// Perhaps on another thread than the rest, while transfers of other layers go on.
  virtual void compute(Kernels kernels, std::size_t layer) = 0;

  // The others are called between two computations or during those of other layers.

  virtual void start(TransferKind kind, std::size_t layer, LiveIo::Batch& batch) = 0;
  /// All that was started has completed; starts what comes next, or returns false.
  [[nodiscard]] virtual bool go_on(TransferKind kind, std::size_t layer, LiveIo::Batch& batch) = 0;

 protected:
  ~LiveWork() = default;
};

/// A machine in real time: commands go to a real target from the thread that runs the steps. While
/// transfers are under way, kernels run on a thread of their own; otherwise on the same one. Where
/// a processor is left for each of the two, neither sleeps when the other is about to end, since
/// waking takes tens of microseconds; where not, kernels leave the steps' thread only for reads.
/// Until a computation is about to end, by its time in the step before, the steps' thread sleeps:
/// a served or virtual device may need that processor for its own work. (Not where kernels read.) A
/// failed command is a UserError of run(), an exception of a kernel likewise; then the machine can
/// only be destroyed.
class LiveMachine final : public Machine {
 public:
  /// `work` and `io` outlive the machine; no `io`: nothing is transferred. `own_processors`: as
  /// above.
  LiveMachine(LiveWork& work, LiveIo* io, bool own_processors);
  ~LiveMachine() override;
  LiveMachine(const LiveMachine&) = delete;
  LiveMachine& operator=(const LiveMachine&) = delete;

  /// One step, to its end.
  void run(StepTask step);
  /// Until all transfers are over.
  void drain();

  [[nodiscard]] std::size_t layers() const override { return work_.layers(); }
  Wait compute(Kernels kernels, std::size_t layer) override;
  void start(TransferKind kind, std::size_t layer) override;
  Wait wait(TransferKind kind, std::size_t layer) override;

  /// From a kernel: reads, and waits for it. The wait is no computation.
  void read_now(std::span<const IoCommand> commands, LiveIo::Reader& reader);

  /// Time since the machine was made in which it waited for transfers and computed nothing.
  [[nodiscard]] std::int64_t exposed_ns() const { return exposed_ns_; }

  /// A computation beside transfers, which another thread does.
  struct HandOver {
    std::int64_t idle_ns = 0;  ///< since that thread's last one
    std::int64_t took_ns = 0;  ///< until it began, and from its end until that was seen
  };
  [[nodiscard]] const HandOver& last_hand_over() const { return hand_over_; }
  /// What all of them took, ns.
  [[nodiscard]] std::int64_t hand_over_ns() const { return hand_over_ns_; }

 private:
  struct Computation final : Waitable {
    [[nodiscard]] bool is_over() override { return machine->idle(); }
    void resume_when_over(WaitingStep& step) override { machine->suspend(*this, step); }
    LiveMachine* machine = nullptr;
  };
  struct Transfer final : Waitable {
    [[nodiscard]] bool is_over() override;
    void resume_when_over(WaitingStep& step) override { machine->suspend(*this, step); }

    LiveMachine* machine = nullptr;
    TransferKind kind = TransferKind::kReads;
    std::size_t layer = 0;
    LiveIo::Batch batch;
    bool open = false;
  };
  struct LateRead {
    std::span<const IoCommand> commands;
    LiveIo::Reader* reader = nullptr;
    LiveIo::Batch batch;
    bool started = false;
  };

  void suspend(Waitable& what, WaitingStep& step);
  [[nodiscard]] bool idle();
  /// Takes completions, and sleeps until something can have changed.
  void progress();
  void serve_late_read();
  /// When this thread should be awake, because the other one is about to end its computation.
  [[nodiscard]] std::int64_t due_ns() const;
  [[nodiscard]] bool reading() const;
  [[nodiscard]] bool leaves_thread() const;
  void serve(const std::stop_token& stop);

  LiveWork& work_;
  LiveIo* io_;
  const bool own_processors_;
  Computation computation_;
  std::vector<Transfer> transfers_;  // by layer, then kind
  Waitable* awaited_ = nullptr;
  WaitingStep* waiter_ = nullptr;
  bool here_ = false;  // a kernel runs on the steps' thread
  std::int64_t exposed_ns_ = 0;

  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::atomic<bool> busy_ = false;  // written under the lock, as those below are read too
  Kernels kernels_{};
  std::size_t layer_ = 0;
  std::atomic<LateRead*> late_read_ = nullptr;  // likewise
  // Some kernel has read: the next one must not find this thread asleep.
  std::atomic<bool> reads_late_ = false;
  bool abandoned_ = false;  // a late read will never end
  std::exception_ptr failure_;
  std::int64_t waited_ns_ = 0;   // of kernels, for late reads
  std::int64_t started_ns_ = 0;  // the last computation on the other thread
  std::int64_t ended_ns_ = 0;
  // Of the computation on the other thread, for the steps' thread.
  std::int64_t begun_ns_ = 0;      // 0: it has been seen to be over
  std::int64_t* usual_ = nullptr;  // how long it took in earlier steps, ns; 0: there was none
  std::map<std::pair<Kernels, std::size_t>, std::int64_t> usual_ns_;
  HandOver hand_over_;
  std::int64_t hand_over_ns_ = 0;
  std::jthread processor_;  // last: it uses the others
};

}  // namespace kvreplay
