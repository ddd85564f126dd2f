#include "sim/replay/wear.hpp"

namespace kvreplay {
namespace {

constexpr double kDaysPerYear = 365.25;

}  // namespace

Wear wear_of(const CellResult& cell) {
  const Timing& timing = cell.timing;
  const Endurance& rated = cell.endurance;
  const auto batch = static_cast<double>(cell.batch);
  const double tokens = batch * static_cast<double>(timing.steps.size());
  Wear wear;
  wear.token_bytes = static_cast<double>(timing.flash_write_bytes + timing.unfolded_bytes) / tokens;
  if (rated.erase_block_bytes > 0) {
    wear.token_erases = wear.token_bytes / static_cast<double>(rated.erase_block_bytes);
  }
  if (!timing.prefill.known()) return wear;
  const auto programmed = static_cast<double>(timing.prefill.flash_write_bytes);
  wear.prompt_bytes = programmed / batch;
  if (rated.erase_block_bytes > 0) {
    wear.prompt_erases = wear.prompt_bytes / static_cast<double>(rated.erase_block_bytes);
  }
  if (timing.prefill.write_bytes > 0) {
    wear.prompt_amplification = programmed / static_cast<double>(timing.prefill.write_bytes);
  }
  if (rated.rated_bytes == 0) return wear;
  const double bytes =
      wear.prompt_bytes + static_cast<double>(cell.conversation.tokens) * wear.token_bytes;
  wear.share_per_1000 = 1000 * bytes / rated.rated_bytes;
  const double per_day = cell.conversation.per_day * bytes;
  if (per_day > 0) wear.years = rated.rated_bytes / per_day / kDaysPerYear;
  return wear;
}

}  // namespace kvreplay
