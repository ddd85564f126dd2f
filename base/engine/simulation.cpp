#include "base/engine/simulation.hpp"

#include <algorithm>
#include <stdexcept>

namespace kvreplay {

void Simulation::schedule(SimTime at, EventHandler& handler, std::uint64_t argument) {
  if (at < now_) throw std::logic_error("an event was scheduled in the past");
  const Event event{at, next_sequence_++, &handler, argument};
  std::size_t hole = heap_.size();
  heap_.push_back(event);
  while (hole > 0) {
    const std::size_t parent = (hole - 1) / 2;
    if (!before(event, heap_[parent])) break;
    heap_[hole] = heap_[parent];
    hole = parent;
  }
  heap_[hole] = event;
}

Simulation::Event Simulation::pop() {
  const Event first = heap_.front();
  const Event moved = heap_.back();
  heap_.pop_back();
  const std::size_t size = heap_.size();
  if (size == 0) return first;
  std::size_t hole = 0;
  for (std::size_t child = 1; child < size; child = 2 * hole + 1) {
    if (child + 1 < size && before(heap_[child + 1], heap_[child])) ++child;
    if (!before(heap_[child], moved)) break;
    heap_[hole] = heap_[child];
    hole = child;
  }
  heap_[hole] = moved;
  return first;
}

void Simulation::run_next() {
  const Event event = pop();
  now_ = event.at;
  ++events_run_;
  event.handler->on_event(event.argument);
}

void Simulation::run() {
  while (!heap_.empty()) run_next();
}

void Simulation::run_until(SimTime at) {
  while (!heap_.empty() && heap_.front().at <= at) run_next();
  now_ = std::max(now_, at);
}

}  // namespace kvreplay
