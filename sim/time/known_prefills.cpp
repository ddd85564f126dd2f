#include "sim/time/known_prefills.hpp"

#include <cassert>
#include <cstdint>
#include <utility>

#include "base/hash.hpp"
#include "base/packed.hpp"

namespace kvreplay {
namespace {

/// Every number that a prefill takes from a layer's plan.
void write_plan(PackedWriter& write, const LayerPlan& plan) {
  visit_all(write, plan.sliding_window, plan.prompt.flops, plan.prompt.square_flops,
            plan.prompt.bytes, plan.prompt.factorise_flops, plan.prompt.similarities,
            plan.dram.entries_bytes, plan.dram.buffered_bytes, plan.dram.index_bytes,
            plan.io.prompt_ready);
  write(std::ssize(plan.io.prompt_writes));
  for (const Extent& extent : plan.io.prompt_writes) visit_all(write, extent.offset, extent.bytes);
  // What is written does not wait in the cache.
  if (plan.io.prompt_writes.empty()) write(plan.dram.cache_bytes);
}

/// A hash of all that the prefill of a prompt depends on, but for its model, platform and device.
std::string content_hash(const PrefillCell& cell) {
  PackedWriter write;
  visit_all(write, cell.batch, cell.chunk_tokens, cell.index_on_flash, cell.plan.prompt_tokens,
            cell.plan.steps);
  for (const KvShape& kind : cell.plan.kinds) write(kind.one_vector);
  std::map<const LayerPlan*, std::int64_t> numbers;
  for (const TargetLayer& layer : cell.layers) {
    visit_all(write, layer.full_attention, layer.sliding_window, layer.uses_earlier_entries);
    write(std::ssize(layer.region));
    for (const std::uint64_t offset : layer.region) write(offset);
    write(layer.plan != nullptr);
    if (layer.plan == nullptr) continue;
    const auto [known, is_new] = numbers.try_emplace(layer.plan, std::ssize(numbers));
    write(known->second);
    if (is_new) write_plan(write, *layer.plan);
  }
  return sha256_text(write.bytes());
}

}  // namespace

Prefill KnownPrefills::get(const PrefillCell& cell, const DeviceSpec& device) {
  assert(cell.turn == 0 && cell.timeline == nullptr && cell.schedule == nullptr);
  Known* known = nullptr;
  {
    Key key(&cell.model, &cell.platform, &device, content_hash(cell));
    const std::lock_guard guard(mutex_);
    known = &known_[std::move(key)];
  }
  std::call_once(known->once, [&] { known->prefill = time_prefill(cell, device); });
  return known->prefill;
}

}  // namespace kvreplay
