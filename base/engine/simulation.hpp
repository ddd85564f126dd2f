// By hand: a clock and a heap; SystemC or OMNeT++ would each bring a run time of its own.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace kvreplay {

/// Virtual time in nanoseconds since the simulation began.
using SimTime = std::int64_t;

/// Something that a simulation can wake. The argument is the handler's own: the one it was
/// scheduled with.
class EventHandler {
 public:
  virtual void on_event(std::uint64_t argument) = 0;

 protected:
  ~EventHandler() = default;
};

class Process;
class ProcessPromise;

/// A virtual clock and a binary heap of small events. Events at the same time run in the order in
/// which they were scheduled, so a run is a pure function of its inputs. No allocation per event.
class Simulation {
 public:
  Simulation() = default;
  /// Destroys the unfinished processes, so that a run cut short leaks nothing.
  ~Simulation();
  Simulation(const Simulation&) = delete;
  Simulation& operator=(const Simulation&) = delete;

  [[nodiscard]] SimTime now() const { return now_; }
  [[nodiscard]] std::uint64_t events_run() const { return events_run_; }

  /// Requires `at` >= now(), or throws std::logic_error: an event in the past would silently break
  /// causality.
  void schedule(SimTime at, EventHandler& handler, std::uint64_t argument);
  /// Starts a process as an event at the current time. It then runs to its end whether or not the
  /// `Process` object is kept (process.hpp).
  void spawn(const Process& process);
  /// Runs until no event is left. An exception from a handler or a process comes out here; pending
  /// events remain pending.
  void run();
  /// Runs all events up to and including `at`, then sets the clock to it; for a clock that follows
  /// another. An `at` before now() changes nothing.
  void run_until(SimTime at);
  /// When the next event is due; nothing when no event is pending.
  [[nodiscard]] std::optional<SimTime> next_at() const {
    return heap_.empty() ? std::nullopt : std::optional(heap_.front().at);
  }

 private:
  friend class ProcessPromise;

  struct Event {
    SimTime at;
    std::uint64_t sequence;
    EventHandler* handler;
    std::uint64_t argument;
  };
  [[nodiscard]] static bool before(const Event& a, const Event& b) {
    return a.at != b.at ? a.at < b.at : a.sequence < b.sequence;
  }
  Event pop();
  void run_next();

  SimTime now_ = 0;
  std::uint64_t next_sequence_ = 0;
  std::uint64_t events_run_ = 0;
  std::vector<Event> heap_;                 ///< parent i, children 2i+1 and 2i+2; the first is next
  std::vector<ProcessPromise*> processes_;  ///< spawned and not finished
};

}  // namespace kvreplay
