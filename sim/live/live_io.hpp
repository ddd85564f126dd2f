#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "devices/real/io_engine.hpp"

namespace kvreplay {

/// The commands of a live run: an engine that is kept filled, and what each command is for. Used
/// from the thread that constructed it.
class LiveIo {
 public:
  struct Options {
    std::string engine;
    DeviceLimits limits;  ///< queue_depth requests outstanding at most
    Pages pages = Pages::kOrdinary;
    RequestWatch* watch = nullptr;
  };
  /// Commands that are waited for as a whole.
  struct Batch {
    std::size_t left = 0;
  };
  class Reader {
   public:
    /// What the command read; valid during the call.
    virtual void on_read(const IoCommand& command, std::span<const std::byte> bytes) = 0;

   protected:
    ~Reader() = default;
  };
  struct Counters {
    std::int64_t read_bytes = 0;
    std::int64_t read_requests = 0;
    std::int64_t write_bytes = 0;
    std::int64_t write_requests = 0;
  };

  LiveIo(const BlockTarget& target, const Options& options);
  /// Waits for what is outstanding.
  ~LiveIo();
  LiveIo(const LiveIo&) = delete;
  LiveIo& operator=(const LiveIo&) = delete;

  /// Returns at once. Reader and batch outlive the commands.
  void read(std::span<const IoCommand> commands, Reader& reader, Batch& batch);
  /// `data`: the commands' bytes, one after the other; they outlive the commands.
  void write(std::span<const IoCommand> commands, std::span<const std::byte> data, Batch& batch);
  /// Takes completions until the given time; a time in the past does not wait. Throws UserError at
  /// the first command that failed.
  void poll(std::int64_t until_ns);
  void wait(const Batch& batch) {
    while (batch.left > 0) poll(IoEngine::kForever);
  }

  [[nodiscard]] bool under_way() const { return left_ > 0; }
  [[nodiscard]] const Counters& counters() const { return counters_; }
  /// Time with at least one command under way.
  [[nodiscard]] std::int64_t busy_ns(std::int64_t now) const {
    return busy_ns_ + (under_way() ? now - busy_since_ns_ : 0);
  }
  [[nodiscard]] const DeviceLimits& limits() const { return options_.limits; }
  [[nodiscard]] std::int64_t memory_bytes() const { return std::ssize(io_.memory()); }
  [[nodiscard]] std::string notes() const { return notes_of(io_.engine(), options_.pages); }

 private:
  struct Pending {
    IoCommand command;
    Reader* reader = nullptr;
    const std::byte* data = nullptr;
    Batch* batch = nullptr;
  };
  void add(const Pending& pending);
  void fill_queue();

  const BlockTarget& target_;
  Options options_;
  EngineWithMemory io_;
  std::deque<Pending> waiting_;
  std::vector<Pending> flights_;  // by slot
  std::vector<std::uint32_t> idle_;
  std::vector<IoResult> results_;
  std::optional<IoFailure> failure_;
  std::size_t left_ = 0;
  std::int64_t busy_ns_ = 0;
  std::int64_t busy_since_ns_ = 0;
  Counters counters_;
};

}  // namespace kvreplay
