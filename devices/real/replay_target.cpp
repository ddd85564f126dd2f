#include "devices/real/replay_target.hpp"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/memory.hpp"
#include "devices/real/host.hpp"
#include "devices/real/io_engine.hpp"
#include "devices/real/measuring_thread.hpp"
#include "devices/real/probe.hpp"

namespace kvreplay {

using Json = nlohmann::ordered_json;

namespace {

Json replay_setting_json(const BlockTarget& target, const EngineChoice& choice, std::uint32_t depth,
                         const std::string& notes) {
  Json setting;
  setting["target"] = {{"path", target.path()},
                       {"kind", target.is_block_device() ? "block device" : "file"},
                       {"size_bytes", target.size_bytes()},
                       {"offset_alignment_bytes", target.alignment().offset_bytes},
                       {"direct_io_proof", target.direct_io_proof()},
                       {"file_system", file_system_of(target.descriptor_path())}};
  setting["engine"] = {
      {"name", choice.name}, {"depth", depth}, {"notes", notes}, {"refused", Json::array()}};
  for (const auto& [name, reason] : choice.refused) {
    setting["engine"]["refused"].push_back({{"engine", name}, {"reason", reason}});
  }
  setting["host"] = to_json(host_facts());
  return setting;
}

std::size_t memory_of_replay(const Schedule& schedule, std::uint32_t depth, Pages pages) {
  return std::max(memory_bytes(schedule, depth),
                  pages == Pages::kScattered ? kScatteredBytes : std::size_t{0});
}

/// As for a probe: checked first, because memory that is granted and not there ends the program.
void check_depth(const Schedule& schedule, std::uint32_t depth, Pages pages) {
  const auto available = static_cast<std::size_t>(available_memory_bytes());
  const std::size_t needed = memory_of_replay(schedule, depth, pages);
  if (available == 0 || needed <= available) return;  // 0: unknown
  throw UserError({"", "--depth"},
                  "found " + std::to_string(depth) + " requests of up to " +
                      std::to_string(schedule.limits().max_transfer_bytes) + " bytes, which take " +
                      std::to_string(needed) + " bytes of memory",
                  "at most " + std::to_string(available) + ", what the machine has available");
}

}  // namespace

Schedule fit(const Schedule& schedule, std::uint64_t target_bytes, bool wrap,
             const std::string& target_name) {
  if (schedule.space_bytes() <= target_bytes) return schedule;
  if (wrap) return schedule.wrapped(target_bytes);
  throw UserError({target_name, ""},
                  "has " + std::to_string(target_bytes) + " bytes, but the plan uses " +
                      std::to_string(schedule.space_bytes()),
                  "a larger target, or --wrap");
}

ReplayEnd replay_schedule(const BlockTarget& target, const Schedule& whole,
                          const ReplayRequest& request,
                          const std::function<void(std::int64_t)>& compute,
                          const std::atomic<bool>& stop, const ReplaySink& sink) {
  Schedule schedule = fit(whole, target.size_bytes(), request.wrap, target.path());
  const std::uint32_t block = target.alignment().offset_bytes;
  if (schedule.limits().logical_block_bytes % block != 0) {
    throw UserError({target.path(), ""},
                    "takes multiples of " + std::to_string(block) + " bytes, but the plan is for " +
                        std::to_string(schedule.limits().logical_block_bytes),
                    "--set device.logical_block_bytes=" + std::to_string(block));
  }
  check(target, schedule);

  const EngineChoice choice = choose_engine(target, request.engine);
  std::uint32_t depth = request.depth > 0 ? request.depth : schedule.limits().queue_depth;
  if (choice.name == "sync" && request.depth == 0) depth = 1;
  check_depth(schedule, depth, request.pages);
  const auto own_target = std::make_shared<const BlockTarget>(target.duplicate());
  const auto parts = std::make_shared<ReplayParts>();
  const auto measured = std::make_shared<ScheduleMeasurement>();
  bool setting_sent = false;
  auto measure = [own_target, parts, measured, choice, depth, compute, pages = request.pages,
                  schedule = std::move(schedule), &sink, &setting_sent](Measuring& measuring) {
    const EngineWithMemory io(choice.name, *own_target, memory_of_replay(schedule, depth, pages),
                              pages, depth, &measuring.watch);
    fill_random(io.memory(), 1);
    const Json setting =
        replay_setting_json(*own_target, choice, depth, notes_of(io.engine(), pages));
    measuring.tell([setting, &sink, &setting_sent] {
      sink.on_setting(setting);
      setting_sent = true;
    });
    *measured = run_schedule(
        io.engine(), schedule,
        {.depth = depth,
         .turn_bytes = pages == Pages::kScattered ? io.memory().size() : 0,
         .compute = compute,
         .stop = &measuring.stop,
         .on_step = [&parts](const ScheduleMeasurement& so_far) { parts->note(so_far); }});
  };

  ScheduleMeasurement so_far;
  const auto tell_parts = [&] {
    if (!setting_sent) return;
    while (const auto part = parts->take()) {
      add_part(*part, target.path(), so_far);
      sink.on_part(*part);
    }
  };
  const auto now_and_then = [&, next_ns = std::int64_t{0}]() mutable {
    constexpr std::int64_t kEveryNs = 1'000'000'000;
    if (monotonic_ns() < next_ns) return;
    next_ns = monotonic_ns() + kEveryNs;
    tell_parts();
  };
  const auto unanswered =
      measure_in_thread(depth, static_cast<std::int64_t>(request.request_timeout_seconds * 1e9),
                        stop, std::move(measure), now_and_then);
  tell_parts();

  ReplayEnd end;
  end.measurement = unanswered ? std::move(so_far) : std::move(*measured);
  if (unanswered) end.measurement.failure = unanswered;
  if (end.measurement.interrupted) end.ended_by = "interrupted";
  if (end.measurement.failure)
    end.ended_by = end.measurement.failure->to_error(target.path()).what();
  return end;
}

}  // namespace kvreplay
