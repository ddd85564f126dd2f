#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/engine/simulation.hpp"
#include "devices/flash/fifo.hpp"
#include "devices/flash/parameters.hpp"
#include "devices/flash/service_order.hpp"

namespace kvreplay::flash {

/// Program and erase suspension: whether a read interrupts them, and how much time an interruption
/// costs.
struct Suspension {
  bool enabled;
  SimTime time;  ///< from the suspend command until the die can sense

  explicit Suspension(const Arguments& arguments)
      : enabled(arguments.flag("suspend_programs")), time(from_us(arguments.real("suspend_us"))) {}

  [[nodiscard]] static std::vector<Parameter> parameters() {
    return {
        flag_parameter("suspend_programs", false,
                       "a read interrupts a program or an erase of its die; otherwise it waits"),
        real_parameter("suspend_us", "us", 0, {0, 1e6},
                       "from the interruption until the die can sense"),
    };
  }
};

/// One NAND die, which does one array operation at a time. Without suspension it serves in the
/// device's order of service. With suspension, reads go in the order of arrival and before programs
/// and erases, even one that has begun: that one ends later by all the time that the reads took, so
/// no work is lost.
class Die final : private EventHandler {
 public:
  Die(Simulation& simulation, const Suspension& suspension, ServiceOrder& order)
      : simulation_(simulation), suspension_(suspension), server_(simulation, order) {}

  /// Senses for `service` ns; `done.on_event(argument)` at the end.
  void sense(SimTime service, EventHandler& done, std::uint64_t argument) {
    if (!suspension_.enabled) {
      server_.use(service, done, argument);
      return;
    }
    const SimTime from = std::max(simulation_.now(), sensing_until_);
    const bool interrupts = running_ && sensing_until_ <= simulation_.now();
    sensing_until_ = from + (interrupts ? suspension_.time : 0) + service;
    if (running_) modify_until_ += sensing_until_ - from;
    simulation_.schedule(sensing_until_, done, argument);
  }

  /// Programs or erases for `service` ns; `done.on_event(argument)` at the end.
  void modify(SimTime service, EventHandler& done, std::uint64_t argument) {
    if (!suspension_.enabled) {
      server_.use(service, done, argument);
      return;
    }
    modifications_.push({service, &done, argument});
    if (!running_) begin();
  }

 private:
  struct Modification {
    SimTime service = 0;
    EventHandler* done = nullptr;
    std::uint64_t argument = 0;
  };

  void begin() {
    running_ = true;
    modify_until_ = std::max(simulation_.now(), sensing_until_) + modifications_.front().service;
    simulation_.schedule(modify_until_, *this, 0);
  }

  void on_event(std::uint64_t /*argument*/) override {
    if (simulation_.now() < modify_until_) {  // reads have come in between
      simulation_.schedule(modify_until_, *this, 0);
      return;
    }
    const Modification finished = modifications_.front();
    modifications_.pop();
    running_ = false;
    if (!modifications_.empty()) begin();
    finished.done->on_event(finished.argument);
  }

  Simulation& simulation_;
  const Suspension suspension_;
  OrderedServer server_;  ///< without suspension

  Fifo<Modification> modifications_;  ///< the first is in the array, or interrupted
  bool running_ = false;
  SimTime modify_until_ = 0;
  SimTime sensing_until_ = 0;
};

}  // namespace kvreplay::flash
