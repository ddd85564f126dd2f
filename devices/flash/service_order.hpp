#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/engine/server.hpp"
#include "base/random.hpp"
#include "devices/flash/parameters.hpp"

namespace kvreplay::flash {

/// Which of the pages that wait for a die, a channel or the link is served next: the first to
/// arrive, or a random one. With random order, a large command ends with the last of its pages, so
/// that commands in progress together all end late, whichever was first. Virtual disks behave so.
class ServiceOrder {
 public:
  explicit ServiceOrder(const Arguments& arguments)
      : random_order_(arguments.text("service_order") == "random"),
        random_(unsigned_of(arguments, "service_seed")) {}

  [[nodiscard]] static std::vector<Parameter> parameters() {
    return {
        choice_parameter("service_order", {"arrival", "random"}, "arrival",
                         "which of the pages that wait for a die, a channel or the link is next: "
                         "the first to arrive, or one drawn at random"),
        integer_parameter("service_seed", "", 1, {0, 1e15}, "seed of the draws"),
    };
  }

  [[nodiscard]] bool random_order() const { return random_order_; }
  [[nodiscard]] std::uint64_t draw(std::uint64_t count) { return random_.below(count); }

 private:
  const bool random_order_;
  Random random_;
};

/// Serves one job at a time in the device's order of service, and is never idle while a job waits.
class OrderedServer final : private EventHandler {
 public:
  /// The order must outlive the server.
  OrderedServer(Simulation& simulation, ServiceOrder& order)
      : simulation_(&simulation), order_(&order), in_arrival_(simulation) {}

  /// Queues a job of `service` nanoseconds; `done.on_event(argument)` is called at its end.
  void use(SimTime service, EventHandler& done, std::uint64_t argument) {
    if (!order_->random_order()) {
      in_arrival_.use(service, done, argument);
      return;
    }
    waiting_.push_back({service, &done, argument});
    if (running_.done == nullptr) begin();
  }

 private:
  struct Job {
    SimTime service = 0;
    EventHandler* done = nullptr;
    std::uint64_t argument = 0;
  };

  void begin() {
    std::swap(waiting_[order_->draw(waiting_.size())], waiting_.back());
    running_ = waiting_.back();
    waiting_.pop_back();
    simulation_->schedule(simulation_->now() + running_.service, *this, 0);
  }

  void on_event(std::uint64_t /*argument*/) override {
    const Job finished = std::exchange(running_, {});
    if (!waiting_.empty()) begin();
    finished.done->on_event(finished.argument);
  }

  Simulation* simulation_;
  ServiceOrder* order_;
  Server in_arrival_;
  std::vector<Job> waiting_;
  Job running_;  ///< `done` is null when idle
};

}  // namespace kvreplay::flash
