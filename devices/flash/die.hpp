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

/// Pages of the device, in the order of their addresses.
struct PageRange {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

/// What a die has sensed stays in its page registers until its next array operation: a read of
/// these pages takes no array time. Not under a random order of service, since the operation before
/// a read is then not known when it arrives.
struct PageRegister {
  bool reused;

  explicit PageRegister(const Arguments& arguments)
      : reused(arguments.flag("reuse_page_register") &&
               arguments.text("service_order") == "arrival") {}

  [[nodiscard]] static std::vector<Parameter> parameters() {
    return {flag_parameter("reuse_page_register", true,
                           "a read of the pages that its die sensed last needs no array time "
                           "(service_order arrival only)")};
  }
};

/// One NAND die, which does one array operation at a time. Without suspension it serves in the
/// device's order of service. With suspension, reads go in the order of arrival and before programs
/// and erases, even one that has begun: that one ends later by all the time that the reads took, so
/// no work is lost.
class Die final : private EventHandler {
 public:
  Die(Simulation& simulation, const Suspension& suspension, const PageRegister& page_register,
      ServiceOrder& order)
      : simulation_(simulation),
        suspension_(suspension),
        page_register_(page_register),
        server_(simulation, order) {}

  /// Whether these pages will be in the registers when the die is done with all that it was asked
  /// for.
  [[nodiscard]] bool will_hold(PageRange pages) const {
    return page_register_.reused && pages.begin >= held_.begin && pages.end <= held_.end;
  }

  /// `done.on_event(argument)` once the registers hold what they `will_hold`.
  void reuse(EventHandler& done, std::uint64_t argument) {
    if (!suspension_.enabled) {
      server_.use(0, done, argument);
      return;
    }
    simulation_.schedule(std::max(simulation_.now(), sensing_until_), done, argument);
  }

  /// Senses the pages, of one plane group, for `service` ns; `done.on_event(argument)` at the end.
  void sense(PageRange pages, SimTime service, EventHandler& done, std::uint64_t argument) {
    held_ = pages;
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

  /// Senses something that no read of a command names, such as a line of the map.
  void sense(SimTime service, EventHandler& done, std::uint64_t argument) {
    sense(PageRange{}, service, done, argument);
  }

  /// Programs or erases for `service` ns; `done.on_event(argument)` at the end.
  void modify(SimTime service, EventHandler& done, std::uint64_t argument) {
    held_ = {};
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
  const PageRegister page_register_;
  OrderedServer server_;  ///< without suspension

  Fifo<Modification> modifications_;  ///< the first is in the array, or interrupted
  bool running_ = false;
  SimTime modify_until_ = 0;
  SimTime sensing_until_ = 0;
  PageRange held_;  ///< by the page registers after all that was asked for
};

}  // namespace kvreplay::flash
