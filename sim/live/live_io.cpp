#include "sim/live/live_io.hpp"

#include <cstring>

namespace kvreplay {
namespace {

std::size_t slot_bytes(const LiveIo::Options& options) {
  return options.limits.max_transfer_bytes;
}

}  // namespace

LiveIo::LiveIo(const BlockTarget& target, const Options& options)
    : target_(target),
      options_(options),
      io_(options.engine, target, slot_bytes(options) * options.limits.queue_depth, options.pages,
          options.limits.queue_depth, options.watch),
      flights_(options.limits.queue_depth) {
  for (std::uint32_t slot = options.limits.queue_depth; slot > 0; --slot) idle_.push_back(slot - 1);
}

LiveIo::~LiveIo() {
  waiting_.clear();
  while (idle_.size() < flights_.size()) {
    results_.clear();
    try {
      io_.engine().wait(IoEngine::kForever, results_);
    } catch (...) {
      return;  // an engine that cannot even wait
    }
    for (const IoResult& result : results_) idle_.push_back(result.slot);
  }
}

void LiveIo::read(std::span<const IoCommand> commands, Reader& reader, Batch& batch) {
  for (const IoCommand& command : commands) add({command, &reader, nullptr, &batch});
  fill_queue();
}

void LiveIo::write(std::span<const IoCommand> commands, std::span<const std::byte> data,
                   Batch& batch) {
  const std::byte* at = data.data();
  for (const IoCommand& command : commands) {
    add({command, nullptr, at, &batch});
    at += command.bytes;
  }
  fill_queue();
}

void LiveIo::add(const Pending& pending) {
  target_.check(pending.command);
  if (left_++ == 0) busy_since_ns_ = monotonic_ns();
  ++pending.batch->left;
  waiting_.push_back(pending);
}

void LiveIo::fill_queue() {
  while (!waiting_.empty() && !idle_.empty() && !failure_) {
    const std::uint32_t slot = idle_.back();
    idle_.pop_back();
    const Pending& next = flights_[slot] = waiting_.front();
    waiting_.pop_front();
    const std::size_t at = slot * slot_bytes(options_);
    if (next.command.write) {
      std::memcpy(io_.memory().data() + at, next.data, next.command.bytes);
      ++counters_.write_requests;
      counters_.write_bytes += next.command.bytes;
    } else {
      ++counters_.read_requests;
      counters_.read_bytes += next.command.bytes;
    }
    io_.engine().start(slot, {next.command, at});
  }
}

void LiveIo::poll(std::int64_t until_ns) {
  results_.clear();
  if (idle_.size() < flights_.size()) io_.engine().wait(until_ns, results_);
  for (const IoResult& result : results_) {
    const Pending& done = flights_[result.slot];
    idle_.push_back(result.slot);
    const auto failure = result.failure(done.command);
    if (failure && !failure_) failure_ = failure;
    if (failure) continue;
    if (done.reader != nullptr) {
      done.reader->on_read(done.command,
                           std::as_const(io_).memory().subspan(result.slot * slot_bytes(options_),
                                                               done.command.bytes));
    }
    --done.batch->left;
    if (--left_ == 0) busy_ns_ += result.completed_ns - busy_since_ns_;
  }
  if (failure_) throw failure_->to_error(target_.path());
  fill_queue();
}

}  // namespace kvreplay
