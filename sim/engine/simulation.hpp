#pragma once

#include <cstdint>
#include <vector>

namespace kvreplay {

/// Virtual time in nanoseconds since the simulation began.
using SimTime = std::int64_t;

/// Something that a simulation wakes. The argument is the handler's own: what it was scheduled with.
class EventHandler {
 public:
  virtual void on_event(std::uint64_t argument) = 0;

 protected:
  ~EventHandler() = default;
};

/// A virtual clock and a binary heap of small events. Events at the same time run in the order in
/// which they were scheduled, so a run is a pure function of its inputs. No allocation an event.
class Simulation {
 public:
  [[nodiscard]] SimTime now() const { return now_; }
  [[nodiscard]] std::uint64_t events_run() const { return events_run_; }

  /// `at` >= now().
  void schedule(SimTime at, EventHandler& handler, std::uint64_t argument);
  /// Runs until no event is left.
  void run();

 private:
  struct Event {
    SimTime at;
    std::uint64_t sequence;
    EventHandler* handler;
    std::uint64_t argument;
  };

  SimTime now_ = 0;
  std::uint64_t next_sequence_ = 0;
  std::uint64_t events_run_ = 0;
  std::vector<Event> heap_;
};

}  // namespace kvreplay
