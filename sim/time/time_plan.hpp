#pragma once

#include <cstdint>
#include <vector>

#include "devices/device_config.hpp"
#include "policies/place/place.hpp"
#include "sim/time/model_spec.hpp"
#include "sim/time/pipeline/pipeline.hpp"
#include "sim/time/platform.hpp"
#include "sim/time/prefill.hpp"

namespace kvreplay {

class KnownPrefills;
class Schedule;
class Timeline;

/// What the time between two turns takes from memory.
enum class IdleDrops {
  kNothing,
  kCache,   ///< the groups that the cache holds, which are on flash too
  kMemory,  ///< all but the weights: what only memory holds is written before
};

struct TimeOptions {
  std::int64_t batch = 1;
  std::int64_t timed_steps = 64;   ///< steps to simulate; 0 = all after the warm-up
  std::int64_t warm_up_steps = 0;  ///< first steps of the plan to leave out
  std::uint64_t seed = 1;          ///< draws the timed steps
  Schedule* schedule = nullptr;    ///< receives what the timed steps do, step by step
  Timeline* timeline = nullptr;    ///< sees what the first timed steps do, and the prefill
  /// Tokens of each sequence that the prefill computes together; 0 = the prefill is not simulated.
  std::int64_t prefill_chunk_tokens = 0;
  /// The timed steps follow the prefill on its device: with a full write buffer, a booster in use,
  /// heat. False: they begin on a device that has done nothing.
  bool after_prefill = false;
  Schedule* prefill_schedule = nullptr;  ///< receives what the prefill does, as one step
  /// The sequences of the batch have their prompt in common: it is computed and written once, and
  /// all read it where it lies. What a step rewrites of it, its sequence has of its own.
  bool shared_prefix = false;
  // Of a conversation.
  SimTime idle_ns = 60'000'000'000;  ///< between an answer and the next question
  IdleDrops idle_drops = IdleDrops::kNothing;
  bool turns_read_selected = false;  ///< PrefillCell::reads_selected
  SimTime sustained_ns = 0;          ///< Timing::sustained; 0 = it is not simulated
};

/// One decoded token for every sequence of the batch.
struct StepTiming {
  SimTime latency_ns = 0;  ///< == compute_ns + exposed_io_ns
  SimTime compute_ns = 0;
  SimTime exposed_io_ns = 0;    ///< the processor waits for reads or writes
  SimTime busy_io_ns = 0;       ///< at least one read or write is in progress
  std::int64_t read_bytes = 0;  ///< that crossed the link
  std::int64_t read_requests = 0;
  std::int64_t write_bytes = 0;
  std::int64_t write_requests = 0;
};

/// DRAM by use, for the whole batch and all layers.
struct DramUse {
  std::int64_t weights_bytes = 0;
  std::int64_t cache_bytes = 0;           ///< groups held in memory
  std::int64_t full_attention_bytes = 0;  ///< entries of the layers with full attention
  std::int64_t index_bytes = 0;           ///< representatives
  std::int64_t buffered_bytes = 0;     ///< entries in memory outside groups: sinks, window, tails;
                                       ///< and the states of layers that do not attend
  std::int64_t read_buffer_bytes = 0;  ///< for reads in progress, and what later layers still use

  /// Everything except the weights: what the system's KV management takes.
  [[nodiscard]] std::int64_t kv_bytes() const {
    return cache_bytes + full_attention_bytes + index_bytes + buffered_bytes + read_buffer_bytes;
  }
};

/// How long single commands took, from when the host had them to their completion. Nearest ranks;
/// 0 without any.
struct CommandLatency {
  std::int64_t commands = 0;
  SimTime p50_ns = 0;
  SimTime p99_ns = 0;
  SimTime p999_ns = 0;
};

struct TurnTiming;

/// A part of a long run of decode steps.
struct SustainedInterval {
  SimTime end_ns = 0;        ///< from the beginning of the prefill
  double tokens = 0;         ///< of the batch; a step counts to the share of it that lies within
  double compute_ns = 0;     ///< likewise
  double exposed_io_ns = 0;  ///< likewise
  SimTime throttled_ns = 0;  ///< computed at the throttled rate
  double mean_power_w = 0;   ///< of the processor, at the end: PowerLimit::mean_w()
  double temperature_c = 0;  ///< of the device, at the end; NaN without a thermal model
};

/// What stage 3 measured.
struct Timing {
  std::vector<StepTiming> steps;  ///< the timed ones, in order
  std::int64_t batch = 1;

  // Over the timed steps, the batch and all layers (those with full attention request nothing).
  std::int64_t requested_bytes = 0;
  std::int64_t hit_bytes = 0;
  std::int64_t missed_bytes = 0;
  std::int64_t best_hit_bytes = 0;       ///< LayerPlan::Accounting::best_hit_bytes
  std::int64_t min_read_bytes = 0;       ///< what it leaves to read; all, where the cache is paged
  std::int64_t flash_read_bytes = 0;     ///< sensed in NAND
  std::int64_t flash_write_bytes = 0;    ///< programmed in NAND, with what the device moved
  std::int64_t erases = 0;               ///< of an erase block of a die
  std::int64_t wrapped_write_bytes = 0;  ///< DeviceCounters::wrapped_write_bytes
  /// Mean per query head, step, sequence and target layer that attends.
  double attended_tokens = 0;
  std::int64_t prompt_write_bytes = 0;  ///< of the batch, before the first step; not timed
  std::int64_t moved_bytes = 0;   ///< over the timed steps: LayerPlan::Accounting::moved_bytes
  std::int64_t region_bytes = 0;  ///< of the batch: what the layouts take on flash
  std::int64_t live_bytes = 0;    ///< of these, entries of groups when the plan ends
  /// Bits per element of a key or value, mean of the entries of all tokens in layers that select.
  double stored_bits = 0;
  DramUse dram;
  Energy energy;                    ///< of the timed steps
  std::int64_t unfolded_bytes = 0;  ///< DeviceCounters::unfolded_bytes, of flash_write_bytes
  CommandLatency reads;             ///< of the timed steps
  CommandLatency writes;
  Prefill prefill;
  /// Of a conversation, all on one device, each with a prefill of its new tokens; empty where the
  /// plan has no turns.
  std::vector<TurnTiming> turns;
  /// The prefill and then the plan's decoded steps, over and over, on one device: equal parts of
  /// TimeOptions::sustained_ns. Those of the prefill have no tokens.
  std::vector<SustainedInterval> sustained;

  /// Counts one step of one sequence of a layer that follows `plan`.
  void add(const LayerPlan& plan, std::size_t step);
};

/// One turn of a conversation.
struct TurnTiming {
  std::int64_t earlier_tokens = 0;  ///< before its new ones, of each sequence
  std::int64_t new_tokens = 0;
  std::int64_t decoded_tokens = 0;
  SimTime resume_ns = 0;  ///< what idle time took from memory is read, or made anew
  SimTime restore_ns =
      0;  ///< all that earlier turns left on flash is read, with nothing else to do
  SimTime recompute_ns = 0;  ///< recompute_time(): the same tokens are prefilled anew
  // Of the index that earlier turns left; the shorter one is part of resume_ns.
  SimTime index_read_ns = 0;
  SimTime index_rebuild_ns = 0;
  SimTime suspend_ns = 0;  ///< before the idle time: what only memory holds is written
  std::int64_t suspend_bytes = 0;
  Timing timing;  ///< prefill.ttft_ns has resume_ns in it
};

/// What the plan holds in memory for `batch` sequences of the model.
[[nodiscard]] DramUse dram_use(const IoPlan& plan, const ModelSpec& model, const Pipeline& pipeline,
                               std::int64_t batch);

/// Stage 3: replays a plan on a device and platform. Target layers [0, plan.full_attention_layers)
/// attend in full, in memory; a later layer i follows the plan's layer i mod R, of the R of its
/// kind that do not. A layer that uses an earlier one's keys and values attends to what that one
/// has selected and fetched at the step; a layer that does not attend has a state. Sequence j of
/// the batch follows the steps rotated by j / batch of their number; every (sequence, layer) has a
/// region of its own on the device.
///
/// `timed_steps` steps are timed. Each is drawn at random from one of as many equal strata, so that
/// they cover the sequence evenly and do not beat with periodic work (such as a page that fills
/// every 16 steps). TimeOptions::schedule receives the operations that the pipeline requests; timed
/// on the same device (devices/schedule/time_schedule.hpp), it gives the same steps. Throws
/// UserError when the warm-up leaves no step, or the plan has no layer to follow.
///
/// `prefills` remembers Timing::prefill for further cells.
[[nodiscard]] Timing time_plan(const IoPlan& plan, const ModelSpec& model,
                               const PlatformSpec& platform, const DeviceSpec& device,
                               const PartConfig<Pipeline>& pipeline, const TimeOptions& options,
                               KnownPrefills* prefills = nullptr);

}  // namespace kvreplay
