#include "sim/replay/phase_columns.hpp"

#include <algorithm>
#include <limits>
#include <map>
#include <string>

#include "base/error.hpp"
#include "base/number_text.hpp"
#include "sim/replay/wear.hpp"

namespace kvreplay {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
/// Below this a user is warned.
constexpr double kMinYears = 2;

/// A number of the prefill; an empty field where it was not simulated.
template <typename Number>
std::function<CellValue(const CellResult&)> of_prefill(Number Prefill::*member, double unit = 1) {
  return [=](const CellResult& cell) -> CellValue {
    const Prefill& prefill = cell.timing.prefill;
    if (!prefill.known()) return kUnknown;
    return static_cast<double>(prefill.*member) / unit;
  };
}

/// Of one prompt, in millijoules.
std::function<CellValue(const CellResult&)> prefill_energy(double (*part)(const Energy&)) {
  return [=](const CellResult& cell) -> CellValue {
    return part(cell.timing.prefill.energy) / 1e6 / static_cast<double>(cell.batch);
  };
}

std::function<CellValue(const CellResult&)> of_wear(double Wear::*member) {
  return [=](const CellResult& cell) -> CellValue { return wear_of(cell).*member; };
}

std::function<CellValue(const CellResult&)> of_commands(CommandLatency Timing::*kind,
                                                        SimTime CommandLatency::*member) {
  return [=](const CellResult& cell) -> CellValue {
    const CommandLatency& latency = cell.timing.*kind;
    return latency.commands == 0 ? kUnknown : static_cast<double>(latency.*member) / 1e3;
  };
}

}  // namespace

std::vector<Column<CellResult>> phase_columns() {
  constexpr double kMs = 1e6;
  return {
      {"ttft_ms", "time to the first token: prefill compute + index + exposed writes of the prompt",
       of_prefill(&Prefill::ttft_ns, kMs)},
      {"prefill_compute_ms", "time of the prefill that the model's own work takes",
       of_prefill(&Prefill::compute_ns, kMs)},
      {"index_ms", "time of the prefill that the system's index takes: clusters, codebooks, bounds",
       of_prefill(&Prefill::index_ns, kMs)},
      {"prompt_write_hidden_ms", "time of the prefill that writes run while the processor computes",
       [](const CellResult& c) -> CellValue {
         const Prefill& prefill = c.timing.prefill;
         if (!prefill.known()) return kUnknown;
         return static_cast<double>(prefill.busy_write_ns - prefill.exposed_write_ns) / kMs;
       }},
      {"prompt_write_exposed_ms", "time of the prefill that the processor waits for writes",
       of_prefill(&Prefill::exposed_write_ns, kMs)},
      {"prefill_dram_bytes",
       "peak DRAM of the prefill: entries, what waits to be written, states between layers",
       [](const CellResult& c) -> CellValue {
         if (!c.timing.prefill.known()) return kUnknown;
         return c.timing.prefill.dram_bytes;
       }},
      {"prefill_energy_mj", "energy per prompt: processor, DRAM and flash",
       prefill_energy([](const Energy& energy) { return energy.total_nj(); })},
      {"prefill_compute_energy_mj", "energy per prompt of the processor, computing and waiting",
       prefill_energy([](const Energy& energy) { return energy.compute_nj; })},
      {"prefill_dram_energy_mj", "energy per prompt of the DRAM: bits moved, and standby",
       prefill_energy([](const Energy& energy) { return energy.dram_nj; })},
      {"prefill_flash_energy_mj",
       "energy per prompt of the flash device: pages, bits moved, idle power",
       prefill_energy([](const Energy& energy) { return energy.flash_nj; })},
      {"nand_written_bytes_per_prompt",
       "bytes programmed in flash per prompt, folding and moved ones included",
       of_wear(&Wear::prompt_bytes)},
      {"nand_written_bytes_per_token",
       "bytes programmed in flash per decoded token, folding and moved ones included",
       of_wear(&Wear::token_bytes)},
      {"erases_per_prompt", "erase blocks of a die that a prompt's programmed bytes fill",
       of_wear(&Wear::prompt_erases)},
      {"erases_per_token", "erase blocks of a die that a decoded token's programmed bytes fill",
       of_wear(&Wear::token_erases)},
      {"prompt_write_amplification",
       "bytes programmed in flash / bytes that cross the link to the device, of the prompt",
       of_wear(&Wear::prompt_amplification)},
      {"endurance_share_per_1000",
       "share of the device's rated endurance that 1,000 conversations take",
       of_wear(&Wear::share_per_1000)},
      {"years_of_life", "years until conversations_per_day have used up the rated endurance",
       of_wear(&Wear::years)},
      {"read_command_p50_us", "median time of a read command, from submission to completion",
       of_commands(&Timing::reads, &CommandLatency::p50_ns)},
      {"read_command_p99_us", "99th percentile of the time of a read command",
       of_commands(&Timing::reads, &CommandLatency::p99_ns)},
      {"read_command_p999_us", "99.9th percentile of the time of a read command",
       of_commands(&Timing::reads, &CommandLatency::p999_ns)},
      {"write_command_p50_us", "median time of a write command, from submission to completion",
       of_commands(&Timing::writes, &CommandLatency::p50_ns)},
      {"write_command_p99_us", "99th percentile of the time of a write command",
       of_commands(&Timing::writes, &CommandLatency::p99_ns)},
      {"write_command_p999_us", "99.9th percentile of the time of a write command",
       of_commands(&Timing::writes, &CommandLatency::p999_ns)},
  };
}

std::vector<std::string> wear_lines(std::span<const CellResult> cells) {
  struct Worn {
    std::vector<std::string> systems;
    double least = std::numeric_limits<double>::infinity();
  };
  std::map<std::string, Worn> devices;
  for (const CellResult& cell : cells) {
    const double years = wear_of(cell).years;
    if (!(years < kMinYears)) continue;
    Worn& worn = devices[cell.device];
    worn.least = std::min(worn.least, years);
    if (worn.systems.empty() || worn.systems.back() != cell.system) {
      worn.systems.push_back(cell.system);
    }
  }
  std::vector<std::string> lines;
  for (auto& [device, worn] : devices) {
    std::sort(worn.systems.begin(), worn.systems.end());
    worn.systems.erase(std::unique(worn.systems.begin(), worn.systems.end()), worn.systems.end());
    lines.push_back("wear (" + join(worn.systems) + "): " + device +
                    " would be worn out in under " + fixed_text(kMinYears, 0) +
                    " years, the soonest in " + fixed_text(worn.least, 1) +
                    " (years_of_life, docs/prefill-and-wear.md)");
  }
  return lines;
}

}  // namespace kvreplay
