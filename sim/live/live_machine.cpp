#include "sim/live/live_machine.hpp"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <utility>

namespace kvreplay {
namespace {

/// Largest delay before the end of a computation is noticed while commands are under way.
constexpr std::int64_t kNoticeNs = 20'000;
/// How long before the usual end of a computation the steps' thread is awake.
constexpr std::int64_t kAwakeNs = 50'000;
/// How long it sleeps at once until then: a processor that sleeps longer wakes later.
constexpr std::int64_t kNapNs = 50'000;
/// How long a thread with a processor of its own watches before it sleeps.
constexpr std::int64_t kWatchNs = 500'000;

}  // namespace

LiveMachine::LiveMachine(LiveWork& work, LiveIo* io, bool own_processors)
    : work_(work),
      io_(io),
      own_processors_(own_processors),
      transfers_(work.layers() * kTransferKinds) {
  computation_.machine = this;
  for (std::size_t i = 0; i < transfers_.size(); ++i) {
    transfers_[i].machine = this;
    transfers_[i].kind = static_cast<TransferKind>(i % kTransferKinds);
    transfers_[i].layer = i / kTransferKinds;
  }
  processor_ = std::jthread([this](const std::stop_token& stop) { serve(stop); });
}

LiveMachine::~LiveMachine() {
  {
    const std::lock_guard lock(mutex_);
    abandoned_ = true;
  }
  changed_.notify_all();
}

void LiveMachine::run(StepTask step) {
  step.start();
  while (!step.done()) {
    if (awaited_ == nullptr) throw std::logic_error("the pipeline waits for what never comes");
    while (!awaited_->is_over()) {
      const std::int64_t begin = monotonic_ns();
      const bool for_transfer = awaited_ != &computation_;
      progress();
      if (for_transfer) exposed_ns_ += monotonic_ns() - begin;
    }
    awaited_ = nullptr;
    std::exchange(waiter_, nullptr)->resume();
  }
  step.rethrow();
}

void LiveMachine::drain() {
  for (Transfer& transfer : transfers_) {
    while (!transfer.is_over()) progress();
  }
}

bool LiveMachine::reading() const {
  return std::any_of(transfers_.begin(), transfers_.end(), [](const Transfer& transfer) {
    return transfer.open && transfer.kind != TransferKind::kWrites && transfer.batch.left > 0;
  });
}

bool LiveMachine::leaves_thread() const {
  return own_processors_ ? io_ != nullptr && io_->under_way() : reading();
}

Wait LiveMachine::compute(Kernels kernels, std::size_t layer) {
  if (!leaves_thread()) {
    if (io_ != nullptr && io_->under_way()) {
      io_->poll(0);
      for (Transfer& transfer : transfers_) (void)transfer.is_over();
    }
    here_ = true;
    work_.compute(kernels, layer);
    here_ = false;
    return Wait(computation_);
  }
  usual_ = &usual_ns_[{kernels, layer}];
  begun_ns_ = monotonic_ns();
  {
    const std::lock_guard lock(mutex_);
    if (busy_) throw std::logic_error("a pipeline computes two things at once");
    hand_over_.idle_ns = begun_ns_ - ended_ns_;
    kernels_ = kernels;
    layer_ = layer;
    busy_ = true;
  }
  changed_.notify_all();
  return Wait(computation_);
}

void LiveMachine::start(TransferKind kind, std::size_t layer) {
  Transfer& transfer = transfers_[layer * kTransferKinds + static_cast<std::size_t>(kind)];
  if (!transfer.is_over()) throw std::logic_error("a transfer was started while under way");
  transfer.open = true;
  work_.start(kind, layer, transfer.batch);
}

Wait LiveMachine::wait(TransferKind kind, std::size_t layer) {
  return Wait(transfers_[layer * kTransferKinds + static_cast<std::size_t>(kind)]);
}

bool LiveMachine::Transfer::is_over() {
  while (open && batch.left == 0) {
    open = machine->work_.go_on(kind, layer, batch);
  }
  return !open;
}

void LiveMachine::suspend(Waitable& what, WaitingStep& step) {
  awaited_ = &what;
  waiter_ = &step;
}

bool LiveMachine::idle() {
  const std::lock_guard lock(mutex_);
  if (busy_) return false;
  exposed_ns_ += std::exchange(waited_ns_, 0);
  if (const std::int64_t begun = std::exchange(begun_ns_, 0); begun != 0) {
    // Once longer is perhaps an interruption; once shorter is possible.
    const std::int64_t took = ended_ns_ - begun;
    *usual_ = *usual_ == 0 ? took : std::min(took, *usual_ + *usual_ / 16);
    hand_over_.took_ns = started_ns_ - begun + monotonic_ns() - ended_ns_;
    hand_over_ns_ += hand_over_.took_ns;
  }
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
  return true;
}

std::int64_t LiveMachine::due_ns() const {
  return begun_ns_ == 0 || reads_late_ ? 0 : begun_ns_ + *usual_ - kAwakeNs;
}

void LiveMachine::progress() {
  serve_late_read();
  if (io_ == nullptr || !io_->under_way()) {
    const auto changed = [this] { return !busy_ || late_read_ != nullptr; };
    const std::int64_t now = monotonic_ns();
    if (const std::int64_t due = due_ns(); own_processors_ && now < due) {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, std::chrono::nanoseconds(due - now), changed);
      return;
    }
    while (own_processors_ && !changed() && monotonic_ns() < now + kWatchNs) {
    }
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::milliseconds(50), changed);  // a signal may have come
    return;
  }
  std::int64_t until = IoEngine::kForever;
  {
    const std::lock_guard lock(mutex_);
    if (!busy_ && awaited_ == &computation_) return;  // it has just ended
    if (busy_ && late_read_ == nullptr) {
      const std::int64_t now = monotonic_ns();
      const std::int64_t due = due_ns();
      if (now < due) {
        until = std::min(due, now + kNapNs);
      } else {
        until = own_processors_ ? 0 : now + kNoticeNs;
      }
    }
  }
  io_->poll(until);
  // Of a transfer in several parts, the next one may begin.
  for (Transfer& transfer : transfers_) {
    if (transfer.open && transfer.kind == TransferKind::kWrites) (void)transfer.is_over();
  }
}

void LiveMachine::serve_late_read() {
  const std::lock_guard lock(mutex_);
  LateRead* read = late_read_;
  if (read == nullptr) return;
  if (!std::exchange(read->started, true)) io_->read(read->commands, *read->reader, read->batch);
  if (read->batch.left > 0) return;
  late_read_ = nullptr;
  changed_.notify_all();
}

void LiveMachine::read_now(std::span<const IoCommand> commands, LiveIo::Reader& reader) {
  if (commands.empty()) return;
  const std::int64_t begin = monotonic_ns();
  if (here_) {
    LiveIo::Batch batch;
    io_->read(commands, reader, batch);
    io_->wait(batch);
    exposed_ns_ += monotonic_ns() - begin;
    return;
  }
  LateRead read{.commands = commands, .reader = &reader, .batch = {}};
  std::unique_lock lock(mutex_);
  late_read_ = &read;
  reads_late_ = true;
  changed_.notify_all();
  changed_.wait(lock, [&] { return late_read_ == nullptr || abandoned_; });
  if (late_read_ != nullptr) throw std::runtime_error("a read ended with the run");
  waited_ns_ += monotonic_ns() - begin;
}

void LiveMachine::serve(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [this] { return busy_.load(); })) {
    const auto [kernels, layer] = std::pair(kernels_, layer_);
    lock.unlock();
    std::exception_ptr failure;
    const std::int64_t started_ns = monotonic_ns();
    try {
      work_.compute(kernels, layer);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    started_ns_ = started_ns;
    ended_ns_ = monotonic_ns();
    failure_ = failure;
    busy_ = false;
    changed_.notify_all();
    lock.unlock();
    for (const std::int64_t end = monotonic_ns() + kWatchNs;
         own_processors_ && !busy_ && !stop.stop_requested() && monotonic_ns() < end;) {
    }
    lock.lock();
  }
}

}  // namespace kvreplay
